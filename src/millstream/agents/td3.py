"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018).

critics  Q(s, a) -> R + discount^n * the lesser of both targets at s', target policy(s') + clipped noise
policy   raises the first critic at s, policy(s), every other time
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from millstream.agents import optimiser
from millstream.agents.continuous import Continuous, ContinuousHyper, Learnt
from millstream.agents.maths import namespace
from millstream.agents.replayed import group
from millstream.core.data import Array, Batch, Gradients, Lesson, Params
from millstream.core.settings import setting


@dataclass(frozen=True)
class TD3Hyper(ContinuousHyper):
    """Hyper-parameters of TD3."""

    learning_rate: float = setting(1e-3, above=0, high=1, applies="learner")
    """Step size of Adam."""
    noise: float = setting(0.1, low=0, high=10, applies="actor")
    """Spread of what is added to actions while acting, where 1 is half the way between bounds."""
    smoothing: float = setting(0.2, low=0, high=10, applies="learner")
    """Spread of what is added to the target policy's actions."""
    smoothing_limit: float = setting(0.5, low=0, high=10, applies="learner")
    """The most that is added to them."""
    delay: int = setting(2, low=1, high=100, applies="learner")
    """Gradients of the critics for each of the policy."""


class TD3(Continuous):
    """A policy that does not roll dice; what explores is added."""

    Hyper = TD3Hyper

    def gradients(self, state: Learnt, minibatch: Batch, hyper: TD3Hyper) -> tuple[Gradients, Lesson]:
        """Of the policy, then of the critics; the last number says whether it is the policy's turn: else its is 0."""
        gradient = self._blank(state)
        lesson = self._critics(state, minibatch, self._goal(state, minibatch, hyper), 1.0, gradient)
        turn = (state.judge_adam.count + 1) % hyper.delay == 0
        if turn:
            self._policy(state, minibatch, gradient)
        else:
            self.network.parts(gradient)[0][:] = 0
        gradient[-1] = turn
        return gradient, lesson

    def apply(self, state: Learnt, gradients: Gradients, hyper: TD3Hyper) -> Learnt:
        """Critics always, the policy and all targets now and then."""
        player, judge = self.network.parts(gradients[:-1])
        self._move(state.judge, judge, state.judge_adam, hyper.learning_rate)
        if gradients[-1] > 0:
            self._move(state.player, player, state.player_adam, hyper.learning_rate)
            optimiser.follow(state.target_judge, state.judge, hyper.target_rate)
            optimiser.follow(state.target_player, state.player, hyper.target_rate)
        return state

    def priorities(self, state: Learnt, batch: Batch, hyper: TD3Hyper) -> np.ndarray:
        """How much each step of a batch still surprises the first critic."""
        return self._surprise(state, batch, self._goal(state, batch, hyper))

    def _goal(self, state: Learnt, minibatch: Batch, hyper: TD3Hyper) -> Array:
        """What the critics should say."""
        following, limit = group(minibatch, "next/"), hyper.smoothing_limit
        outputs, _ = self.network.plays(state.target_player, following)
        xp = namespace(outputs)
        noise = xp.clip(minibatch["next_noise"] * hyper.smoothing, -limit, limit)
        actions = xp.clip(xp.tanh(outputs) + noise, -1.0, 1.0)
        one, other, _ = self.network.judges(state.target_judge, following, actions)
        return minibatch["returns"] + minibatch["discounts"] * xp.minimum(one, other)

    def _policy(self, state: Learnt, minibatch: Batch, gradient: Array) -> None:
        """Write the gradient of the policy: up, as the first critic sees it."""
        inputs = group(minibatch, "in/")
        outputs, tape = self.network.plays(state.player, inputs)
        xp = namespace(outputs)
        actions = xp.tanh(outputs)
        one, _, judged = self.network.judges(state.judge, inputs, actions)
        slopes = self.network.slopes(judged, xp.full_like(one, -1 / len(one)), xp.zeros_like(one))
        self.network.teach_player(tape, slopes * (1 - actions * actions), gradient)

    def _choose(self, outputs: np.ndarray, params: Params, rng: Generator | None) -> np.ndarray:
        actions = np.tanh(outputs)
        if rng is None:
            return actions
        noise = rng.standard_normal(actions.shape, np.float32) * np.float32(params.hyper["noise"])
        return np.clip(actions + noise, -1, 1)

    def _of_actors(self, hyper: TD3Hyper) -> dict[str, float]:
        return {"noise": hyper.noise}
