"""Advantage actor-critic, the synchronous one (Mnih et al. 2016): one gradient of the newest policy's own steps.

L = -A * log_prob + value_weight * (V - R)^2 / 2 - entropy * H
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from millstream.agents.actor_critic import ActorCriticHyper, Learnt
from millstream.agents.on_policy import OnPolicy, mean, shares
from millstream.core.data import Batch, Gradients, Lesson
from millstream.core.settings import setting


@dataclass(frozen=True)
class OneGradientHyper(ActorCriticHyper):
    """Hyper-parameters of algorithms whose update is one gradient of all its steps: a second would not be of them."""

    epochs = 1
    minibatch = sys.maxsize


@dataclass(frozen=True)
class A2CHyper(OneGradientHyper):
    """Hyper-parameters of A2C."""

    learning_rate: float = setting(7e-4, above=0, high=1, applies="learner")
    """Step size of Adam."""
    trace: float = setting(1.0, low=0, high=1, applies="learner")
    """Lambda: how far advantages look ahead; 1 sums rewards to the rollout's end."""
    normalise_advantages: bool = setting(False, applies="learner")
    """Shift and scale advantages over the whole batch."""


class A2C(OnPolicy):
    """The plain policy gradient, with a value to judge by."""

    Hyper: type[OneGradientHyper] = A2CHyper
    window = 1
    """Rollouts an actor may be ahead: none, it waits for the policy that its last one made."""
    max_lag: int | None = 0
    """Nothing corrects for another policy, so experience of one is dropped."""

    def gradients(self, state: Learnt, minibatch: Batch, hyper: OneGradientHyper) -> tuple[Gradients, Lesson]:
        """The closed form of the loss above, carried back through distribution and network."""
        outputs, tape, minibatch = self._outputs(state, minibatch)
        advantages = minibatch["advantages"]
        log_prob, entropy, slip = self.distribution.evaluate(outputs, minibatch["actions"], minibatch.get("mask"))
        share = shares(advantages, minibatch.get("valid"))
        error = outputs["value"] - minibatch["returns"]
        back = self.distribution.backward(slip, -advantages * share, -hyper.entropy * share)
        back["value"] = error * (hyper.value_weight * share)
        lesson = {
            "policy_loss": -mean(advantages * log_prob, share),
            "value_loss": 0.5 * mean(error * error, share),
            "entropy": mean(entropy, share),
        }
        return self.network.backward(tape, back), lesson
