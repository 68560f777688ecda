"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018).

critics  Q(s, a) -> R + discount^n * the lesser of both targets at s', target policy(s') + clipped noise
policy   raises the first critic at s, policy(s), every other time
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from millstream.agents.continuous import Continuous, ContinuousHyper, Learnt, leaves
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
        """Of the policy, then of the critics."""
        import torch

        network, inputs = self.network, group(minibatch, "in/")
        play, judge = network.learning
        goal = self._goal(state, minibatch, hyper)
        judging, playing = leaves(judge, state.judge), leaves(play, state.player)
        with torch.enable_grad():
            one, other = network.judges(judging, inputs, minibatch["actions"])
            errors = (one - goal) ** 2 + (other - goal) ** 2
            critic_loss = (errors * minibatch["importance"] if "importance" in minibatch else errors).mean()
            actions = torch.tanh(network.plays(playing, inputs))
            policy_loss = -network.judges(judge.names(state.judge), inputs, actions)[0].mean()
            found = torch.autograd.grad(
                critic_loss + policy_loss, [*playing.values(), *judging.values()], materialize_grads=True
            )
        lesson = {
            "loss": float(critic_loss.detach()),
            "policy_loss": float(policy_loss.detach()),
            "q_values": float(one.detach().mean()),
        }
        return torch.cat([gradient.reshape(-1) for gradient in found]), lesson

    def apply(self, state: Learnt, gradients: Gradients, hyper: TD3Hyper) -> Learnt:
        """Critics always, the policy and all targets now and then."""
        player, judge = self.network.parts(gradients)
        self._move(state.judge, judge, state.judge_adam, hyper.learning_rate)
        if state.judge_adam.count % hyper.delay == 0:
            self._move(state.player, player, state.player_adam, hyper.learning_rate)
            state.target_judge += hyper.target_rate * (state.judge - state.target_judge)
            state.target_player += hyper.target_rate * (state.player - state.target_player)
        return state

    def priorities(self, state: Learnt, batch: Batch, hyper: TD3Hyper) -> np.ndarray:
        """How much each step of a batch still surprises the first critic."""
        return self._surprise(state, batch, self._goal(state, batch, hyper))

    def _goal(self, state: Learnt, minibatch: Batch, hyper: TD3Hyper) -> Array:
        """What the critics should say."""
        import torch

        play, judge = self.network.learning
        following = group(minibatch, "next/")
        limit = hyper.smoothing_limit
        with torch.no_grad():
            noise = (minibatch["next_noise"] * hyper.smoothing).clamp(-limit, limit)
            actions = torch.tanh(self.network.plays(play.names(state.target_player), following)) + noise
            worth = torch.minimum(
                *self.network.judges(judge.names(state.target_judge), following, actions.clamp(-1, 1))
            )
            return minibatch["returns"] + minibatch["discounts"] * worth

    def _choose(self, outputs: np.ndarray, params: Params, rng: Generator | None) -> np.ndarray:
        actions = np.tanh(outputs)
        if rng is None:
            return actions
        noise = rng.standard_normal(actions.shape, np.float32) * np.float32(params.hyper["noise"])
        return np.clip(actions + noise, -1, 1)

    def _of_actors(self, hyper: TD3Hyper) -> dict[str, float]:
        return {"noise": hyper.noise}
