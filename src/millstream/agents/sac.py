"""Soft actor-critic (Haarnoja et al. 2018): as much reward as can be had by a policy that stays as random as it may.

    critics      Q(s, a) -> R + discount^n * (the lesser of both targets at s', a' - temperature * log p(a'))
    policy       raises the lesser of both critics at s, a - temperature * log p(a)
    temperature  moves until the policy's entropy is `entropy_goal`

Actions are tanh of a normal number, stretched to the bounds of the environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from millstream.agents import optimiser
from millstream.agents.continuous import Continuous, ContinuousHyper, Learnt
from millstream.agents.maths import namespace
from millstream.agents.replayed import group
from millstream.core.data import Array, Batch, Gradients, Lesson, Params
from millstream.core.settings import setting

_LOWEST, _HIGHEST = -20.0, 2.0  # of the logarithm of the spread
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class SACHyper(ContinuousHyper):
    """Hyper-parameters of SAC."""

    temperature: float | None = setting(None, above=0, applies="learner")
    """What entropy is worth; none begins with 1 and moves it until the entropy is as wanted."""
    entropy_goal: float | None = setting(None, applies="learner")
    """The entropy that is wanted; none means minus the number of numbers in an action."""


@dataclass
class SoftLearnt(Learnt):
    """And the logarithm of the temperature."""

    log_temperature: Array = None
    temperature_adam: optimiser.Adam | None = None


class SAC(Continuous):
    """A random policy, and a price on being so."""

    Hyper = SACHyper
    outputs = 2

    def init(self, seed: int) -> SoftLearnt:
        """A temperature of 1."""
        log = self.network.place(np.zeros(1, np.float32))
        return SoftLearnt(**vars(super().init(seed)), log_temperature=log, temperature_adam=optimiser.Adam.fresh(log))

    def gradients(self, state: SoftLearnt, minibatch: Batch, hyper: SACHyper) -> tuple[Gradients, Lesson]:
        """Of the policy, then of the critics, then of the temperature's logarithm."""
        temperature, goal = self._temperature(state, hyper), self._goal(state, minibatch, hyper)
        gradient = self._blank(state)
        lesson = self._critics(state, minibatch, goal, 0.5, gradient)
        lesson |= self._policy(state, minibatch, temperature, gradient)
        wanted = -self.network.actions if hyper.entropy_goal is None else hyper.entropy_goal
        gradient[-1] = lesson["entropy"] - wanted
        return gradient, {**lesson, "temperature": temperature}

    def apply(self, state: SoftLearnt, gradients: Gradients, hyper: SACHyper) -> SoftLearnt:
        """A step of each; the target critics follow."""
        assert state.temperature_adam is not None
        player, judge = self.network.parts(gradients[:-1])
        self._move(state.player, player, state.player_adam, hyper.learning_rate)
        self._move(state.judge, judge, state.judge_adam, hyper.learning_rate)
        self._move(state.log_temperature, gradients[-1:], state.temperature_adam, hyper.learning_rate)
        optimiser.follow(state.target_judge, state.judge, hyper.target_rate)
        return state

    def priorities(self, state: SoftLearnt, batch: Batch, hyper: SACHyper) -> np.ndarray:
        """How much each step of a batch still surprises the first critic."""
        return self._surprise(state, batch, self._goal(state, batch, hyper))

    def _temperature(self, state: SoftLearnt, hyper: SACHyper) -> float:
        return math.exp(float(state.log_temperature[0])) if hyper.temperature is None else hyper.temperature

    def _goal(self, state: SoftLearnt, minibatch: Batch, hyper: SACHyper) -> Array:
        """What the critics should say."""
        following = group(minibatch, "next/")
        outputs, _ = self.network.plays(state.player, following)
        drawn = Drawn.of(outputs, minibatch["next_noise"])
        one, other, _ = self.network.judges(state.target_judge, following, drawn.actions)
        worth = namespace(one).minimum(one, other) - self._temperature(state, hyper) * drawn.log_prob
        return minibatch["returns"] + minibatch["discounts"] * worth

    def _policy(self, state: SoftLearnt, minibatch: Batch, temperature: float, gradient: Array) -> dict[str, float]:
        """Write the gradient of the policy: what its actions cost in freedom, less what the lesser critic says."""
        inputs = group(minibatch, "in/")
        outputs, tape = self.network.plays(state.player, inputs)
        drawn = Drawn.of(outputs, minibatch["noise"])
        one, other, judged = self.network.judges(state.judge, inputs, drawn.actions)
        xp, share = namespace(one), 1 / len(one)
        lesser, nothing = one < other, xp.zeros_like(one)
        price = xp.full_like(one, -share)
        slopes = self.network.slopes(judged, xp.where(lesser, price, nothing), xp.where(lesser, nothing, price))
        cost = float(xp.sum(temperature * drawn.log_prob - xp.minimum(one, other))) * share
        self.network.teach_player(tape, drawn.back(slopes, temperature * share), gradient)
        return {"policy_loss": cost, "entropy": -float(xp.mean(drawn.log_prob))}

    def _choose(self, outputs: np.ndarray, params: Params, rng: Generator | None) -> np.ndarray:
        mean, log_std = np.split(outputs, 2, axis=1)
        if rng is not None:
            spread = np.exp(np.clip(log_std, _LOWEST, _HIGHEST))
            mean = mean + rng.standard_normal(mean.shape, np.float32) * spread
        return np.tanh(mean)


@dataclass(frozen=True)
class Drawn:
    """Actions of a policy, the logarithms of their densities [N], and what the way back needs."""

    actions: Array
    """Between -1 and 1: tanh of normal numbers."""
    log_prob: Array
    step: Array
    """How far such a number moves with the logarithm of its spread."""
    free: Array
    """Whether that logarithm is within its bounds."""

    @classmethod
    def of(cls, outputs: Array, noise: Array) -> Drawn:
        """From what the policy says: means, then logarithms of spreads."""
        xp, half = namespace(outputs), outputs.shape[-1] // 2
        mean, wanted = outputs[:, :half], outputs[:, half:]
        log_std = xp.clip(wanted, _LOWEST, _HIGHEST)
        step = noise * xp.exp(log_std)
        x = mean + step
        # log(1 - tanh(x)^2) without losing the last digits where tanh is nearly 1
        size = abs(x)
        shrink = 2 * (math.log(2) - size - xp.log1p(xp.exp(-2 * size)))
        densities = -0.5 * noise * noise - log_std - _HALF_LOG_TAU - shrink
        return cls(xp.tanh(x), xp.sum(densities, axis=-1), step, wanted == log_std)

    def back(self, slopes: Array, price: float) -> Array:
        """The gradient at the outputs from that at the actions, and from `price` at each log-probability."""
        xp, actions = namespace(slopes), self.actions
        x = slopes * (1 - actions * actions) + 2 * price * actions
        return xp.concat([x, xp.where(self.free, x * self.step - price, xp.zeros_like(x))], axis=-1)
