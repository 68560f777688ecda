"""Soft actor-critic (Haarnoja et al. 2018): as much reward as can be had by a policy that stays as random as it may.

    critics      Q(s, a) -> R + discount^n * (the lesser of both targets at s', a' - temperature * log p(a'))
    policy       raises the lesser of both critics at s, a - temperature * log p(a)
    temperature  moves until the policy's entropy is `entropy_goal`

Actions are tanh of a normal number, stretched to the bounds of the environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.agents import optimiser
from millstream.agents.continuous import Continuous, ContinuousHyper, Learnt, leaves
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
        import torch

        network, inputs = self.network, group(minibatch, "in/")
        play, judge = network.learning
        temperature, goal = self._temperature(state, hyper), self._goal(state, minibatch, hyper)
        judging, playing = leaves(judge, state.judge), leaves(play, state.player)
        with torch.enable_grad():
            one, other = network.judges(judging, inputs, minibatch["actions"])
            errors = 0.5 * ((one - goal) ** 2 + (other - goal) ** 2)
            critic_loss = (errors * minibatch["importance"] if "importance" in minibatch else errors).mean()
            actions, log_prob = self._sample(playing, inputs, minibatch["noise"])
            worth = torch.minimum(*network.judges(judge.names(state.judge), inputs, actions))
            policy_loss = (temperature * log_prob - worth).mean()
            found = torch.autograd.grad(
                critic_loss + policy_loss, [*playing.values(), *judging.values()], materialize_grads=True
            )
        entropy = -log_prob.detach().mean()
        wanted = -network.actions if hyper.entropy_goal is None else hyper.entropy_goal
        lesson = {
            "loss": float(critic_loss.detach()),
            "policy_loss": float(policy_loss.detach()),
            "q_values": float(one.detach().mean()),
            "entropy": float(entropy),
            "temperature": temperature,
        }
        return torch.cat([*(gradient.reshape(-1) for gradient in found), (entropy - wanted)[None]]), lesson

    def apply(self, state: SoftLearnt, gradients: Gradients, hyper: SACHyper) -> SoftLearnt:
        """A step of each; the target critics follow."""
        assert state.temperature_adam is not None
        player, judge = self.network.parts(gradients[:-1])
        self._move(state.player, player, state.player_adam, hyper.learning_rate)
        self._move(state.judge, judge, state.judge_adam, hyper.learning_rate)
        self._move(state.log_temperature, gradients[-1:], state.temperature_adam, hyper.learning_rate)
        state.target_judge += hyper.target_rate * (state.judge - state.target_judge)
        return state

    def priorities(self, state: SoftLearnt, batch: Batch, hyper: SACHyper) -> np.ndarray:
        """How much each step of a batch still surprises the first critic."""
        return self._surprise(state, batch, self._goal(state, batch, hyper))

    def _temperature(self, state: SoftLearnt, hyper: SACHyper) -> float:
        return math.exp(float(state.log_temperature)) if hyper.temperature is None else hyper.temperature

    def _goal(self, state: SoftLearnt, minibatch: Batch, hyper: SACHyper) -> Array:
        """What the critics should say."""
        import torch

        play, judge = self.network.learning
        following = group(minibatch, "next/")
        with torch.no_grad():
            actions, log_prob = self._sample(play.names(state.player), following, minibatch["next_noise"])
            worth = torch.minimum(*self.network.judges(judge.names(state.target_judge), following, actions))
            worth -= self._temperature(state, hyper) * log_prob
            return minibatch["returns"] + minibatch["discounts"] * worth

    def _sample(self, named: Any, inputs: Any, noise: Array) -> tuple[Array, Array]:
        """Actions between -1 and 1, and the logarithms of their densities."""
        import torch

        mean, log_std = self.network.plays(named, inputs).chunk(2, dim=-1)
        log_std = log_std.clamp(_LOWEST, _HIGHEST)
        free = mean + noise * log_std.exp()
        # log(1 - tanh(x)^2) without losing the last digits where tanh is nearly 1
        shrink = 2 * (math.log(2) - free - torch.nn.functional.softplus(-2 * free))
        return torch.tanh(free), (-0.5 * noise * noise - log_std - _HALF_LOG_TAU - shrink).sum(-1)

    def _choose(self, outputs: np.ndarray, params: Params, rng: Generator | None) -> np.ndarray:
        mean, log_std = np.split(outputs, 2, axis=1)
        if rng is not None:
            spread = np.exp(np.clip(log_std, _LOWEST, _HIGHEST))
            mean = mean + rng.standard_normal(mean.shape, np.float32) * spread
        return np.tanh(mean)
