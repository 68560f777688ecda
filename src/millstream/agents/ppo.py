"""Proximal policy optimisation (Schulman et al. 2017).

One update learns `epochs` times from a batch of rollouts. The ratio of probabilities is clipped, so that
no minibatch moves the policy far from the one that made the experience:

    L = -min(ratio * A, clip(ratio, 1 - c, 1 + c) * A) + value_weight * (V - R)^2 / 2 - entropy * H
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.agents.actor_critic import ActorCriticHyper, Learnt
from millstream.agents.maths import namespace, one_step_on, vtrace
from millstream.agents.on_policy import OnPolicy, mean, shares
from millstream.core.data import Batch, Gradients, Lesson, Rollout
from millstream.core.settings import setting


@dataclass(frozen=True)
class PPOHyper(ActorCriticHyper):
    """Hyper-parameters of PPO."""

    trace: float = setting(0.95, low=0, high=1, applies="learner")
    """Lambda: how far advantages look ahead."""
    epochs: int = setting(4, low=1, high=1000, applies="learner")
    """How often each step is learnt from in one update."""
    minibatch: int = setting(2048, low=1, applies="learner")
    """Steps in one gradient."""
    clip: float = setting(0.2, above=0, high=10, applies="learner")
    """How far the ratio of probabilities may move from 1."""
    clip_value: float | None = setting(None, above=0, applies="learner")
    """How far a value may move in one update; none means freely."""
    normalise_advantages: bool = setting(True, applies="learner")
    """Shift and scale advantages over the whole batch."""
    target_kl: float | None = setting(None, above=0, applies="learner")
    """End an update early once the policy has moved this far; none never does."""
    clip_rho: float = setting(1.0, above=0, applies="learner")
    """Where stale experience is corrected: largest importance weight of a step's own error."""
    clip_c: float = setting(1.0, above=0, applies="learner")
    """Where stale experience is corrected: largest importance weight with which later errors reach back."""


class PPO(OnPolicy):
    """The clipped objective over fresh rollouts."""

    Hyper = PPOHyper
    window = 2
    """Rollouts an actor may be ahead: one in training, one being made, so the policy acts one update behind."""
    max_lag: int | None = 1
    """Experience of an older policy is dropped or corrected: its ratio can be clipped, but not trusted."""

    def correct(
        self, state: Learnt, rollouts: Sequence[Rollout], stale: Sequence[bool], hyper: PPOHyper
    ) -> tuple[Learnt, Batch]:
        """As `prepare`; what is stale is judged by V-trace.

        The ratio stays that to the policy which acted, and so does its clip: how far several updates may move away
        from old experience together is bounded. Measured from the present policy, each would go the whole way again.
        """
        return self._prepare(state, rollouts, stale, hyper)

    def gradients(self, state: Learnt, minibatch: Batch, hyper: PPOHyper) -> tuple[Gradients, Lesson]:
        """The closed form of the loss above, carried back through distribution and network."""
        outputs, tape, minibatch = self._outputs(state, minibatch)
        advantages, old_log_prob = minibatch["advantages"], minibatch["log_prob"]
        log_prob, entropy, slip = self.distribution.evaluate(outputs, minibatch["actions"], minibatch.get("mask"))
        xp = namespace(log_prob)
        share = shares(advantages, minibatch.get("valid"))
        log_ratio = log_prob - old_log_prob
        ratio = xp.exp(log_ratio)
        free, held = ratio * advantages, xp.clip(ratio, 1 - hyper.clip, 1 + hyper.clip) * advantages
        # where the clipped term is the smaller one it counts, and has no slope
        d_log_prob = (held >= free) * free * -share
        error, d_value = self._value_error(outputs["value"], minibatch, hyper)
        back = self.distribution.backward(slip, d_log_prob, -hyper.entropy * share)
        back["value"] = d_value * (hyper.value_weight * share)
        lesson = {
            "policy_loss": -mean(xp.minimum(free, held), share),
            "value_loss": 0.5 * mean(error, share),
            "entropy": mean(entropy, share),
            "old_approx_kl": -mean(log_ratio, share),
            "approx_kl": mean(ratio - 1 - log_ratio, share),
            "clipfrac": mean(abs(ratio - 1) > hyper.clip, share),
        }
        return self.network.backward(tape, back), lesson

    def _judge(self, columns: dict[str, np.ndarray], rollout: Rollout, hyper: Any) -> dict[str, np.ndarray]:
        """What was read anew, by V-trace. With all ratios 1 it is GAE.

        A step's own importance weight is not in its advantage: the ratio in the loss is that weight.
        """
        if "log_ratio" not in columns:
            return super()._judge(columns, rollout, hyper)
        log_ratio, rewards, values = columns.pop("log_ratio"), columns["rewards"], columns["values"]
        following, continues, discount, trace = (
            columns["next_values"],
            columns["continues"],
            hyper.discount,
            hyper.trace,
        )
        targets, _ = vtrace(
            log_ratio, rewards, values, following, continues, discount, trace, hyper.clip_rho, hyper.clip_c
        )
        advantages = one_step_on(targets, rewards, values, following, continues, discount, trace)
        return {"advantages": advantages, "returns": targets}

    def _value_error(self, values: Any, minibatch: Batch, hyper: PPOHyper) -> tuple[Any, Any]:
        """Squared error and half its derivative."""
        targets = minibatch["returns"]
        error = values - targets
        if hyper.clip_value is None:
            return error * error, error
        xp, old = namespace(values), minibatch["values"]
        moved = values - old
        clipped = old + xp.clip(moved, -hyper.clip_value, hyper.clip_value) - targets
        # the larger error counts, and beyond the clip it has no slope; inside, the two differ by rounding alone
        worse = (abs(moved) > hyper.clip_value) & (clipped * clipped > error * error)
        return xp.where(worse, clipped * clipped, error * error), xp.where(worse, xp.zeros_like(error), error)
