"""What SAC and TD3 share: a policy for actions between bounds, two critics, and targets that follow them slowly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from millstream.agents import optimiser
from millstream.agents.adopting import adopted
from millstream.agents.maths import namespace
from millstream.agents.networks.twins import Twins
from millstream.agents.replayed import Replayed, ReplayedHyper, group, plain
from millstream.core.data import Array, Batch, Carry, Decision, Params, Rollout
from millstream.core.errors import Diverged
from millstream.core.settings import setting
from millstream.core.spec import Box, EnvSpec


@dataclass(frozen=True)
class ContinuousHyper(ReplayedHyper):
    """Hyper-parameters of both."""

    learning_rate: float = setting(3e-4, above=0, high=1, applies="learner")
    """Step size of Adam."""
    minibatch: int = setting(256, low=1, applies="learner")
    """Steps in one gradient."""
    gradients: int = setting(8, low=1, high=10_000, applies="learner")
    """Gradients between two policies, each of a minibatch of its own."""
    samples_per_step: float = setting(256.0, above=0)
    """How often each step is learnt from, on average: a gradient for each step where this equals the minibatch."""
    capacity: int = setting(1_000_000, low=1)
    """Steps that the table holds."""
    target_rate: float = setting(0.005, above=0, high=1, applies="learner")
    """How far targets move towards what they follow after each gradient."""


@dataclass
class Learnt:
    """All that learning changes."""

    player: Array
    judge: Array
    target_player: Array
    target_judge: Array
    player_adam: optimiser.Adam
    judge_adam: optimiser.Adam
    seed: int
    draws: int = 0
    """How often noise was drawn: the next is of this number."""


class Continuous(Replayed, ABC):
    """Acting, noise and the optimisers' steps; no algorithm is in here."""

    network: Twins
    outputs = 1

    @classmethod
    def refuses(cls, spec: EnvSpec) -> str | None:
        """Why it cannot learn this, if it cannot."""
        action = spec.action
        within = isinstance(action, Box) and bool(np.isfinite(action.bounds()).all())
        return None if within else "gives numbers between bounds"

    @classmethod
    def build(
        cls, spec: EnvSpec, hyper: Any, kind: str = "auto", shared: bool = False, memory: int = 0, **network: Any
    ) -> Twins:
        """The networks of such an agent; a device that is not there is refused before anything starts."""
        twins = Twins(spec, cls.outputs, kind, **network)
        if twins.device != "cpu":
            twins.place(np.zeros(1))
        return twins

    def init(self, seed: int) -> Learnt:
        """Fresh weights; targets start equal."""
        player, judge = self.network.parts(self.network.init(default_rng([seed, 0])))
        xp, fresh = namespace(player), optimiser.Adam.fresh

        def copy(part: Array) -> Array:
            return xp.asarray(part, copy=True)

        return Learnt(player, judge, copy(player), copy(judge), fresh(player), fresh(judge), seed)

    def act(
        self,
        params: Params,
        observations: Mapping[str, Array],
        carry: Carry,
        first: Array,
        mask: Array | None,
        rng: Generator | None,
    ) -> tuple[Decision, Carry]:
        """Anything at all until learning has begun, then what the policy says."""
        inputs, frames = self.features.observe(observations, carry, first, {})
        if rng is not None and params.hyper["begun"] == 0:
            free = rng.uniform(-1, 1, (len(first), self.network.actions)).astype(np.float32)
        else:
            outputs, _ = self.network.act(params.tensors["weights"], inputs, {}, first)
            free = self._choose(outputs["policy"], params, rng)
        actions = self.network.middle + self.network.reach * free
        return Decision(actions.reshape(len(first), *self.spec.action.shape), {}), frames

    def prepare(self, state: Learnt, rollouts: Sequence[Rollout], hyper: Any) -> tuple[Learnt, Batch]:
        """With the noise that gradients will need: they themselves draw nothing."""
        state, batch = super().prepare(state, rollouts, hyper)
        rows = len(batch["returns"])
        noise = default_rng([state.seed, 1, state.draws]).standard_normal((2, rows, self.network.actions), np.float32)
        state.draws += 1
        place = self.network.place
        scaled = (batch["actions"].reshape(rows, -1) - place(self.network.middle)) / place(self.network.reach)
        return state, {**batch, "actions": scaled, "noise": place(noise[0]), "next_noise": place(noise[1])}

    def adopt(self, state: Learnt, params: Params) -> Learnt:
        """Start from a trained policy of the same shape; critics of it have to learn what it is worth."""
        for mine in (state.player, state.target_player):
            adopted(mine, params.tensors["weights"], self.network.place)
        return state

    def policy(self, state: Learnt, hyper: Any) -> Params:
        """What actors need: the policy's weights alone."""
        return Params(
            {"weights": plain(state.player)}, {"begun": float(state.judge_adam.count > 0), **self._of_actors(hyper)}
        )

    @abstractmethod
    def _choose(self, outputs: np.ndarray, params: Params, rng: Generator | None) -> np.ndarray:
        """Numbers between -1 and 1 from what the policy says."""

    def _of_actors(self, hyper: Any) -> dict[str, float]:
        """Hyper-parameters that actors want to know."""
        return {}

    def _surprise(self, state: Learnt, batch: Batch, goal: Array) -> np.ndarray:
        """How far the first critic is from what it should say."""
        one, *_ = self.network.judges(state.judge, group(batch, "in/"), batch["actions"])
        return plain(abs(one - goal)) + 1e-6

    def _blank(self, state: Learnt) -> Array:
        """Room for the gradient of the policy, of the critics, and of one number more."""
        xp = namespace(state.player)
        return xp.empty(self.network.size + 1, dtype=xp.float32, device=state.player.device)

    def _critics(
        self, state: Learnt, minibatch: Batch, goal: Array, weight: float, gradient: Array
    ) -> dict[str, float]:
        """Write the gradient of both critics: `weight` times their squared errors."""
        one, other, tape = self.network.judges(state.judge, group(minibatch, "in/"), minibatch["actions"])
        first, second = one - goal, other - goal
        share = weight / len(goal)
        if "importance" in minibatch:
            share = share * minibatch["importance"]
        xp = namespace(goal)
        lesson = {
            "loss": float(xp.sum(share * (first * first + second * second))),
            "q_values": float(xp.mean(one)),
        }
        self.network.teach_judges(tape, 2 * share * first, 2 * share * second, gradient)
        return lesson

    def _move(self, weights: Array, gradient: Array, adam: optimiser.Adam, rate: float) -> None:
        _, norm = optimiser.clip(gradient, 0)
        if not np.isfinite(norm):
            raise Diverged("a gradient is not finite: rewards may be too large; try a smaller learning_rate")
        optimiser.adam(weights, gradient, adam, rate, epsilon=1e-8)
