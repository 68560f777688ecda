"""The actor: its policy plays all slots and fills rollouts, in memory that the bus gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.core.codec import Layout, rollout_of
from millstream.core.data import NONE, Array, Carry, Params, Rollout, Stamp, Step, Version
from millstream.core.ports import Agent, Bus, Clock, Env, PolicyStore, Snapshots
from millstream.core.topics import EXPERIENCES, METRICS_ACTORS


class Episodes:
    """Returns and lengths of the episodes that every slot is in, counted once a rollout."""

    def __init__(self, slots: int):
        self.returns, self.lengths = np.zeros(slots), np.zeros(slots, np.int64)

    def see(self, rollout: Rollout) -> list[tuple[int, float, int]]:
        """(slot, return, length) of those that ended in it; the others go on in the next."""
        totals = np.cumsum(rollout.rewards, axis=0, dtype=np.float64)
        counts = np.cumsum(rollout.valid, axis=0)
        at, slots = rollout.final_at.T
        ended = []
        for slot, total, count in zip(slots.tolist(), totals[at, slots], counts[at, slots], strict=True):
            ended.append((slot, float(self.returns[slot] + total), int(self.lengths[slot] + count)))
            self.returns[slot], self.lengths[slot] = -total, -count  # what came before belongs to others
        self.returns += totals[-1]
        self.lengths += counts[-1]
        return ended


class Actor:
    """One bounded piece of a rollout a step; a half-filled slab waits for the next."""

    def __init__(
        self,
        *,
        experiment: str,
        index: int,
        epoch: int,
        env: Env,
        agent: Agent[Any],
        bus: Bus,
        policies: PolicyStore,
        rng: Generator,
        seed: int,
        unroll: int,
        clock: Clock,
        stride: int,
        budget: float | None = None,
    ):
        self.experiment, self.index, self.epoch = experiment, index, epoch
        self.env, self.agent, self.bus, self.policies = env, agent, bus, policies
        self.rng, self.seed, self.unroll, self.clock = rng, seed, unroll, clock
        self.stride, self.budget = stride, budget
        self.version, self.sequence = NONE, 0
        self._sent = 0
        self.seconds = dict.fromkeys(("env", "act", "record", "wait"), 0.0)
        self.episodes = Episodes(env.slots)
        self._params: Params | None = None
        self._layout: Layout | None = None
        self._arrays: dict[str, np.ndarray] | None = None
        self._seen: list[tuple[str, np.ndarray]] = []
        self._t = self._finals = 0
        self._finished: Rollout | None = None
        self._ended: list[tuple[int, float, int]] = []
        self._waiting_since: float | None = None
        self._open(env.reset(seed))

    def step(self) -> int:
        """Up to `stride` steps of every slot, or `budget` seconds; 0 while there is no policy or no credit."""
        if self._finished is not None:
            return self._publish()
        if self._arrays is None and not self._begin():
            if self._waiting_since is None:
                self._waiting_since = self.clock.monotonic()
            return 0
        self._count_waiting()
        done = self._play()
        if self._t == self.unroll:
            self._finish()
        return done

    @property
    def made(self) -> int:
        """Steps of this life, those that were not sent yet included."""
        begun = 0 if self._arrays is None else int(np.count_nonzero(self._arrays["valid"][: self._t]))
        return self._sent + begun

    def snapshot(self) -> Mapping[str, Any]:
        """Everything, between two rollouts; an environment that cannot be kept is left out."""
        kept: dict[str, Any] = {
            "sequence": self.sequence,
            "seed": self.seed,
            "rng": self.rng.bit_generator.state,
            "returns": self.episodes.returns.copy(),
            "lengths": self.episodes.lengths.copy(),
        }
        if isinstance(self.env, Snapshots):
            kept["env"] = self.env.snapshot()
            kept["observations"] = {name: array.copy() for name, array in self._observations.items()}
            kept["first"] = self._first.copy()
            kept["carry"] = {name: np.array(array) for name, array in (self._carry or {}).items()}
            kept["mask"] = None if self._mask is None else self._mask.copy()
        return kept

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there; call `reopen` after it where the environment was left out."""
        self.sequence, self.seed = int(snapshot["sequence"]), int(snapshot["seed"])
        self.rng.bit_generator.state = snapshot["rng"]
        self.episodes.returns[:], self.episodes.lengths[:] = snapshot["returns"], snapshot["lengths"]
        if "env" in snapshot and isinstance(self.env, Snapshots):
            self.env.restore(snapshot["env"])
            self._observations, self._first = snapshot["observations"], snapshot["first"]
            self._carry, self._mask = snapshot["carry"] or None, snapshot["mask"]

    def close(self) -> None:
        """Let go of the environment."""
        self.env.close()

    def reopen(self, number: int) -> None:
        """At checkpoint `number`: an environment that cannot be kept starts anew, here as in a resumed run."""
        if isinstance(self.env, Snapshots):
            return
        self.episodes = Episodes(self.env.slots)
        self._open(self.env.reset(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])))

    def _open(self, opened: Step) -> None:
        self._observations, self._first, self._mask = opened.observations, opened.first, opened.masks
        self._carry = None

    def _begin(self) -> bool:
        """A rollout starts with the newest policy, in memory that the bus gives."""
        newer = self.policies.latest(self.version)
        if newer is not None:
            self._params, self.version = newer.params, newer.version
        if self._params is None:
            return False
        if self._carry is None:
            self._carry = self.agent.carry(self._params, self.env.slots)
        if self._layout is None:
            self._layout = self._plan(self._params)
        memory = self.bus.claim(EXPERIENCES, self.index, self._layout.size)
        if memory is None:
            return False
        self._arrays = self._layout.views(memory)
        self._seen = [(name, self._arrays[f"observations/{name}"]) for name in self._observations]
        for name, array in self._carry.items():
            self._arrays[f"carry/{name}"][...] = array
        self._put_observations(0)
        return True

    def _plan(self, params: Params) -> Layout:
        """Ask the agent once what it will want to write down; the draw is not counted."""
        probe = np.random.default_rng(0)
        carry = self.agent.carry(params, self.env.slots)
        decision, _ = self.agent.act(params, self._observations, carry, self._first, self._mask, probe)
        return Layout.of(self.env.spec, self.unroll, self.env.slots, carry, decision.extras)

    def _play(self) -> int:
        assert self._arrays is not None and self._params is not None and self._carry is not None
        arrays, clock, act, env = self._arrays, self.clock.monotonic, self.agent.act, self.env
        actions, rewards, valid = arrays["actions"], arrays["rewards"], arrays["valid"]
        terminated, truncated = arrays["terminated"], arrays["truncated"]
        extras = [
            (name[7:], array) for name, array in arrays.items() if name[:7] == "extras/" and name != "extras/mask"
        ]
        begun, seconds = self._t, self.seconds
        now = started = clock()
        while self._t < self.unroll and self._t - begun < self.stride:
            t = self._t
            decision, self._carry = act(
                self._params, self._observations, self._carry, self._first, self._mask, self.rng
            )
            acted = clock()
            step = env.step(decision.actions)
            stepped = clock()
            actions[t] = decision.actions
            for name, array in extras:
                array[t] = decision.extras[name]
            rewards[t], valid[t] = step.rewards, step.valid
            terminated[t], truncated[t] = step.terminated, step.truncated
            self._observations, self._first, self._mask = step.observations, step.first, step.masks
            self._t = t + 1
            self._put_observations(t + 1)
            if len(step.ended):
                self._put_finals(t, step)
            seconds["act"] += acted - now
            seconds["env"] += stepped - acted
            now = clock()
            seconds["record"] += now - stepped
            if self.budget is not None and now - started > self.budget:
                break
        return (self._t - begun) * env.slots

    def _put_observations(self, t: int) -> None:
        assert self._arrays is not None
        for name, array in self._seen:
            array[t] = self._observations[name]
        self._arrays["first"][t] = self._first
        if self._mask is not None:
            self._arrays["extras/mask"][t] = self._mask

    def _put_finals(self, t: int, step: Step) -> None:
        assert self._arrays is not None
        start, end = self._finals, self._finals + len(step.ended)
        self._arrays["final_at"][start:end, 0] = t
        self._arrays["final_at"][start:end, 1] = step.ended
        for name, array in step.finals.items():
            self._arrays[f"finals/{name}"][start:end] = array
        self._finals = end

    def _finish(self) -> None:
        assert self._arrays is not None
        made = Stamp(self.experiment, self.index, self.epoch, self.sequence, self.version, self.clock.now())
        self._finished = rollout_of(self._arrays, self.unroll, self._finals, made)
        self._ended = self.episodes.see(self._finished)
        self._publish()

    def _publish(self) -> int:
        assert self._finished is not None
        count = self._finished.count
        if not self.bus.publish(EXPERIENCES, self._finished):
            return 0
        self.bus.publish(METRICS_ACTORS, self._report(self.version, count))
        self._finished, self._arrays = None, None
        self._sent += count
        self._t = self._finals = 0
        self.sequence += 1
        return 1

    def _report(self, version: Version, count: int) -> dict[str, Any]:
        report = {
            "kind": "actor",
            "actor": self.index,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "steps": count,
            "policy": [version.epoch, version.number],
            "episodes": self._ended,
            "seconds": self.seconds,
            "at": self.clock.now(),
        }
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        return report

    def _count_waiting(self) -> None:
        if self._waiting_since is not None:
            self.seconds["wait"] += self.clock.monotonic() - self._waiting_since
            self._waiting_since = None

    _carry: Carry | None
    _observations: Mapping[str, Array]
    _first: Array
    _mask: Array | None
