"""How a network's outputs say what each action is worth: by one number, or by a distribution over numbers.

values    [N, A]  what to choose by
goal              what should have been said of an action, from what the target network says of what follows
compare           what was said against that goal, row by row, and the slope at what was said
backward          that slope at the network's outputs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from millstream.agents.maths import log_softmax, namespace, project
from millstream.core.data import Array


class Compared(NamedTuple):
    """What came of a comparison, a row each."""

    loss: Array  # [N]
    surprise: Array  # [N] 0 where the goal was met
    worth: Array  # [N] as one number
    slope: Array  # [N] or [N, atoms]


class Worth(Protocol):
    """One way of saying it."""

    @property
    def width(self) -> int:
        """How many numbers of `policy` the network gives."""

    @property
    def spread(self) -> int:
        """How many of `log_std`: none."""

    def values(self, outputs: Mapping[str, Array]) -> Array:
        """What to choose by [N, A]."""

    def goal(self, outputs: Mapping[str, Array], actions: Array, returns: Array, discounts: Array) -> Array:
        """What should have been said, when this is said of what follows and this action is taken there."""

    def compare(self, outputs: Mapping[str, Array], actions: Array, goal: Array) -> Compared:
        """How far what is said of actions is from the goal."""

    def backward(self, outputs: Mapping[str, Array], actions: Array, slope: Array) -> dict[str, Array]:
        """The slope at what is said of actions as slopes at the outputs."""


def worth_of(actions: int, dueling: bool, atoms: int, low: float, high: float) -> Worth:
    """One number where there is one atom."""
    return Numbers(actions, dueling) if atoms == 1 else Atoms(actions, dueling, atoms, low, high)


@dataclass(frozen=True)
class Numbers:
    """Q itself, compared by Huber's loss. `dueling` makes it the value of the state plus the action's advantage."""

    actions: int
    dueling: bool
    spread = 0

    @property
    def width(self) -> int:
        """One an action; the network gives the value of the state by itself."""
        return self.actions

    def values(self, outputs: Mapping[str, Array]) -> Array:
        """Advantages where it is dueling: the best is the same."""
        return outputs["policy"]

    def goal(self, outputs: Mapping[str, Array], actions: Array, returns: Array, discounts: Array) -> Array:
        """The return, and what Q says from there on."""
        return returns + discounts * self._chosen(outputs, actions)

    def compare(self, outputs: Mapping[str, Array], actions: Array, goal: Array) -> Compared:
        """Squared while small, straight beyond 1."""
        chosen = self._chosen(outputs, actions)
        xp, error = namespace(chosen), chosen - goal
        size = abs(error)
        return Compared(xp.where(size < 1, 0.5 * error * error, size - 0.5), size, chosen, xp.clip(error, -1.0, 1.0))

    def backward(self, outputs: Mapping[str, Array], actions: Array, slope: Array) -> dict[str, Array]:
        """At one action a row, and with dueling at all others against it."""
        advantages = outputs["policy"]
        xp = namespace(advantages)
        back = xp.where(_hot(actions, advantages, self.actions), slope[:, None], xp.zeros_like(advantages))
        if not self.dueling:
            return {"policy": back, "value": xp.zeros_like(slope)}
        return {"policy": back - slope[:, None] / self.actions, "value": slope}

    def _chosen(self, outputs: Mapping[str, Array], actions: Array) -> Array:
        """Q of one action a row."""
        advantages = outputs["policy"]
        xp = namespace(advantages)
        found = xp.take_along_axis(advantages, actions[:, None], axis=1)[:, 0]
        if self.dueling:
            found = found + outputs["value"] - xp.mean(advantages, axis=1)
        return found


@dataclass(frozen=True)
class Atoms:
    """Probabilities of so many numbers between two bounds, compared by cross entropy (Bellemare et al. 2017)."""

    actions: int
    dueling: bool
    atoms: int
    low: float
    high: float
    spread = 0

    @property
    def width(self) -> int:
        """A logit an atom of each action; with dueling those of the state come last."""
        return (self.actions + self.dueling) * self.atoms

    def values(self, outputs: Mapping[str, Array]) -> Array:
        """The mean of each action's distribution."""
        return self._mean(namespace(outputs["policy"]).exp(log_softmax(self._logits(outputs))))

    def goal(self, outputs: Mapping[str, Array], actions: Array, returns: Array, discounts: Array) -> Array:
        """The distribution of what follows, discounted, moved by the return, and put back onto the atoms."""
        following = namespace(returns).exp(self._chosen(outputs, actions))
        return project(following, returns, discounts, self.low, self.high)

    def compare(self, outputs: Mapping[str, Array], actions: Array, goal: Array) -> Compared:
        """The surprise is the cross entropy without what the goal itself has of it."""
        log_p = self._chosen(outputs, actions)
        xp = namespace(log_p)
        p, loss = xp.exp(log_p), -xp.sum(goal * log_p, axis=1)
        least = -xp.sum(goal * xp.log(xp.clip(goal, 1e-12, 1.0)), axis=1)
        return Compared(loss, abs(loss - least), self._mean(p), p - goal)

    def backward(self, outputs: Mapping[str, Array], actions: Array, slope: Array) -> dict[str, Array]:
        """At the atoms of one action a row, and with dueling at all others against them and at the state's."""
        xp = namespace(slope)
        hot = _hot(actions, slope, self.actions)[:, :, None]
        back = xp.where(hot, slope[:, None], xp.zeros_like(slope[:, None]))
        if self.dueling:
            back = xp.concat([back - slope[:, None] / self.actions, slope[:, None]], axis=1)
        return {"policy": xp.reshape(back, (len(slope), self.width)), "value": xp.zeros_like(slope[:, 0])}

    def _logits(self, outputs: Mapping[str, Array]) -> Array:
        """[N, A, atoms]."""
        policy = outputs["policy"]
        xp = namespace(policy)
        said = xp.reshape(policy, (len(policy), self.actions + self.dueling, self.atoms))
        if not self.dueling:
            return said
        advantages = said[:, :-1]
        return said[:, -1:] + advantages - xp.mean(advantages, axis=1, keepdims=True)

    def _chosen(self, outputs: Mapping[str, Array], actions: Array) -> Array:
        """Logarithms [N, atoms] of what one action a row is said to bring."""
        logits = self._logits(outputs)
        rows = namespace(logits).arange(len(logits), device=logits.device)
        return log_softmax(logits[rows, actions])

    def _mean(self, p: Array) -> Array:
        support = namespace(p).linspace(self.low, self.high, self.atoms, dtype=p.dtype, device=p.device)
        return p @ support


def _hot(actions: Array, like: Array, count: int) -> Array:
    """[N, A]: which action it was."""
    return actions[:, None] == namespace(like).arange(count, device=like.device)[None]
