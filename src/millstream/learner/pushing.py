"""Learning together: a worker computes gradients, a parameter server applies them for everybody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millstream.core import tree
from millstream.core.data import NONE, Array, Batch, Gradients, Params, Rollout
from millstream.core.errors import AgentError
from millstream.core.ports import Adopts, Agent, Parameters
from millstream.learner import batches

WEIGHTS = "weights"
"""What agents call their flat vector."""


class Pushing:
    """An algorithm whose optimiser is a parameter server. All else is the algorithm's own."""

    def __init__(self, agent: Agent[Any], server: Parameters, worker: str):
        if not isinstance(agent, Adopts) or getattr(agent, "replayed", False):
            why = (
                "keeps more than weights" if isinstance(agent, Adopts) else "has no `adopt` (see core/ports.py, Adopts)"
            )
            raise AgentError(
                f"{type(agent).__name__} cannot learn with others: it {why}; a2c, impala, ppo and reinforce can"
            )
        self.agent, self.server, self.worker = agent, server, worker
        self.version = NONE
        """Of the weights that the next gradient is computed on."""
        self.accepted = self.refused = self.steps = 0
        """Pushes, and the steps behind the weights that came back."""
        self.closed = False
        """Whether the server said that it takes no more pushes."""
        self._shares: Iterator[int] = iter(())
        self.in_a_round = False
        """Whether the server took the last push and waits for those of others."""

    def __getattr__(self, name: str) -> Any:
        """Whatever is not said here, the algorithm says."""
        return getattr(self.agent, name)

    def waiting(self, state: Any) -> tuple[bool, Any]:
        """Whether the round of the last push is still open, and the state with the newest weights."""
        before, state = self.version, self.pull(state)
        self.in_a_round = self.in_a_round and self.version == before
        return self.in_a_round, state

    def pull(self, state: Any) -> Any:
        """The state with the newest weights; statistics stay the worker's own."""
        newer = self.server.latest(self.version)
        if newer is None:
            return state
        self.version, self.steps = newer.version, newer.steps
        return self.agent.adopt(state, Params({WEIGHTS: newer.params.tensors[WEIGHTS]}))

    def prepare(self, state: Any, rollouts: Sequence[Rollout], hyper: Any) -> tuple[Any, Batch]:
        """As the algorithm does."""
        state, batch = self.agent.prepare(state, rollouts, hyper)
        size = batches.rows_of_a_minibatch(batch, hyper.minibatch, self.agent.sequences)
        owed = sum(self._shares)  # an update that ended early pushed less than it had learnt from
        steps = owed + sum(rollout.count for rollout in rollouts)
        self._shares = shares(steps, hyper.epochs * batches.count(batch, size))
        return state, batch

    def apply(self, state: Any, gradients: Gradients, hyper: Any) -> Any:
        """Push, and go on with what the server makes of it."""
        answer = self.server.push_gradients(self.worker, self.version, gradients, next(self._shares, 1))
        self.accepted += answer.accepted
        self.refused += not answer.accepted
        self.in_a_round = answer.accepted and answer.version == self.version  # taken, and nothing has moved yet
        state = state if self.in_a_round else self.pull(state)
        self.closed = answer.reason.startswith("closed")  # last: whoever sees it sees the steps that go with it
        return state


class Applying:
    """A parameter server's optimiser: the algorithm's own, with its clipping and its schedule's first values."""

    def __init__(self, agent: Agent[Any], state: Any, hyper: Any):
        self.agent, self.state, self.hyper = agent, state, hyper

    def __call__(self, weights: Array, gradients: Gradients) -> Array:
        """Where these gradients lead from these weights."""
        state = self.agent.adopt(self.state, Params({WEIGHTS: weights}))  # type: ignore[attr-defined]
        self.state = self.agent.apply(state, gradients, self.hyper)
        return self.agent.policy(self.state, self.hyper).tensors[WEIGHTS]

    def snapshot(self) -> Mapping[str, Any]:
        """The optimiser's moments, with the rest of the state."""
        return {"state": self.state}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        self.state = tree.rebuild(self.state, snapshot["state"])


def shares(steps: int, pushes: int) -> Iterator[int]:
    """How many steps each push of an update stands for: whole numbers from 1 on, which add up where that can be."""
    for index in range(pushes):
        yield max(1, steps * (index + 1) // pushes - steps * index // pushes)
