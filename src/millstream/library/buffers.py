"""Replay buffers in a user's hands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.random import default_rng

from millstream import assembly
from millstream.core.data import Array, Rollout, Sample
from millstream.core.errors import ConfigError
from millstream.replay.cut import n_step as windows
from millstream.replay.limit import Free, Limit, SamplesPerInsert
from millstream.replay.pool import Balance, Pool
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import Table, queue

AHEAD = 2
"""How many updates' worth of fresh rollouts wait at most."""


class ReplayBufferPool:
    """Several replay buffers that are sampled as one.

    capacity: steps that all of them hold together. num_buffers: how many there are.
    prioritised: whether steps that surprised are picked more often; n_step: how many steps of reward an item sums.
    Both, and how often each step is learnt from, are the agent's choice where they are left out; an agent that learns
    from each rollout once gets a queue of fresh ones instead of buffers.
    balance: which buffer takes the next rollout: "round_robin", "least_loaded" or "by_actor".
    """

    def __init__(
        self,
        capacity: int = 1_000_000,
        num_buffers: int = 4,
        *,
        prioritised: bool | None = None,
        n_step: int | None = None,
        balance: str = "round_robin",
        seed: int = 1,
    ):
        if capacity < num_buffers or num_buffers < 1:
            raise ConfigError(f"a pool has at least 1 buffer of 1 step, got {num_buffers} for {capacity} steps")
        self.capacity, self.num_buffers, self.balance, self.seed = capacity, num_buffers, balance, seed
        self.prioritised, self.n_step = prioritised, n_step
        self._held: Pool | Table | None = None
        self._saved: Path | None = None

    @property
    def copies(self) -> bool:
        """Whether it copies what it is given, so that the giver may use that memory again."""
        return not isinstance(self._held, Table)

    @property
    def waiting(self) -> int:
        """Items that are there."""
        return 0 if self._held is None else self._held.waiting

    def connect(self, environment: Any, agent: Any) -> None:
        """Hold experience in the form that this agent learns from. What buffers hold already stays."""
        replayed = getattr(agent, "replayed", False)
        if self._held is not None and replayed != isinstance(self._held, Pool):
            raise ConfigError(
                "this pool was used by an agent of another kind: who learns from each rollout once and who learns from "
                "steps again and again need a pool each"
            )
        if not replayed:
            self._held = queue(AHEAD * getattr(environment, "num_workers", 1))
            return
        if self._held is not None:
            return
        prioritised = agent.hyper.prioritised if self.prioritised is None else self.prioritised
        # no slack: who learns while there is something to learn from would use all of it at once
        limit = SamplesPerInsert(agent.hyper.samples_per_step, agent.hyper.learning_starts, slack=1.0)
        steps = agent.hyper.n_step if self.n_step is None else self.n_step
        self._held = self._pool(prioritised, steps, limit, agent.hyper.priority_exponent, agent.hyper.importance)
        if self._saved is not None:
            self._held.load(self._saved)

    def insert(self, rollout: Rollout) -> bool:
        """Keep it; False: not now, ask again."""
        return self._tables().insert(rollout)

    def sample(self, size: int) -> Sample | None:
        """Pick `size` items from all buffers, in proportion to what they hold; None: not now."""
        return self._tables().sample(size)

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Change how likely items are to be picked."""
        self._tables().reprioritise(keys, priorities)

    def resize(self, num_buffers: int) -> None:
        """More buffers, or fewer, each as large as before: what a closed one held moves to the others."""
        self._buffers("resize").resize(num_buffers)
        self.num_buffers = num_buffers

    def save(self, folder: str | Path) -> Path:
        """Write everything; the folder holds a whole save, the new or the previous one, whatever happens."""
        self._buffers("save").save(Path(folder))
        return Path(folder)

    def load(self, folder: str | Path) -> None:
        """Continue exactly as when it was saved; before `connect`, once the agent has said how."""
        if self._held is None and self.n_step is None and self.prioritised is None:
            self._saved = Path(folder)
        else:
            self._buffers("load").load(Path(folder))

    def statistics(self) -> Mapping[str, Any]:
        """How full it is, and how much went through it."""
        held = self._held
        if held is None:
            return {"items": 0, "capacity": self.capacity, "inserted": 0, "sampled": 0}
        if isinstance(held, Pool):
            return held.statistics()
        return {"waiting": held.waiting, "capacity": held.capacity, "inserted": held.inserted, "sampled": held.sampled}

    def worker(self, index: int) -> ReplayBufferPool:
        """A pool of the same kind for one of several workers."""
        return ReplayBufferPool(
            self.capacity,
            self.num_buffers,
            prioritised=self.prioritised,
            n_step=self.n_step,
            balance=self.balance,
            seed=self.seed + 1 + index,
        )

    def snapshot(self) -> Mapping[str, Any]:
        """All that the next sample depends on."""
        return self._tables().snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        self._tables().restore(snapshot)

    def _tables(self) -> Pool | Table:
        if self._held is None:  # nobody said what for: single steps
            self._held = self._pool(bool(self.prioritised), self.n_step or 1, Free())
        return self._held

    def _buffers(self, what: str) -> Pool:
        held = self._tables()
        if not isinstance(held, Pool):
            raise ConfigError(f"this pool is a queue of fresh rollouts, each used once: there is nothing to {what}")
        return held

    def _pool(self, prioritised: bool, steps: int, limit: Limit, *priority: float) -> Pool:
        select = Prioritised(*priority) if prioritised else Uniform()
        balance: Balance = self.balance  # type: ignore[assignment]
        size = -(-self.capacity // self.num_buffers)
        rng = default_rng([self.seed, assembly.REPLAY])
        return Pool(windows(steps), select, limit, size, self.num_buffers, balance, rng)
