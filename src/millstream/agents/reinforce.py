"""REINFORCE (Williams 1992): what was followed by a high return becomes more probable.

    L = -G * log_prob - entropy * H

G is the discounted return from a step on, normalised over the batch. Where an episode is cut, by the rollout's end or
by a time limit, the rest of it was not seen. A step counts where what was not seen weighs at most `unseen`, as
discounting weighs it; others are left out, because a return that stops too early would be wrong. With a `baseline` a
value is learnt beside the policy, stands for what was not seen, and is taken off: then every step counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millstream.agents.a2c import A2C, OneGradientHyper
from millstream.agents.actor_critic import Learnt
from millstream.agents.maths import discounted
from millstream.core.data import Batch, Gradients, Lesson, Rollout
from millstream.core.settings import setting


@dataclass(frozen=True)
class ReinforceHyper(OneGradientHyper):
    """Hyper-parameters of REINFORCE."""

    learning_rate: float = setting(1e-3, above=0, high=1, applies="learner")
    """Step size of Adam."""
    normalise_advantages: bool = setting(True, applies="learner")
    """Shift and scale returns over the whole batch."""
    unseen: float = setting(0.05, low=0, high=1, applies="learner")
    """The share of a return that may lie beyond a cut; a step with more is left out. 0 wants terminated episodes."""
    baseline: bool = setting(False, applies="learner")
    """Whether a value is learnt, taken off returns, and trusted beyond a cut."""

    trace = 1.0


class Reinforce(A2C):
    """Returns as they were, without a critic."""

    Hyper = ReinforceHyper
    sequences = True
    """A row is a slot's whole sequence: what is left out of it is known by `valid`."""

    def gradients(self, state: Learnt, minibatch: Batch, hyper: Any) -> tuple[Gradients, Lesson]:
        """The policy's alone where there is no baseline."""
        if hyper.baseline:
            return super().gradients(state, minibatch, hyper)
        gradients, lesson = super().gradients(state, minibatch, replace(hyper, value_weight=0.0))
        return gradients, {name: number for name, number in lesson.items() if name != "value_loss"}

    def apply(self, state: Learnt, gradients: Gradients, hyper: Any) -> Learnt:
        """A batch of which no return is known teaches nothing, and Adam should not go on by itself."""
        return super().apply(state, gradients, hyper) if gradients.any() else state

    def digest(self, batch: Batch) -> Lesson:
        """The share of rows that were learnt from."""
        valid = batch["valid"]
        return {"known": float(valid.sum()) / (valid.shape[0] * valid.shape[1])}

    def _judge(self, columns: dict[str, np.ndarray], rollout: Rollout, hyper: Any) -> dict[str, np.ndarray]:
        if hyper.baseline:
            return super()._judge(columns, rollout, hyper)
        rewards, continues = columns["rewards"], columns["continues"]
        returns = discounted(rewards, continues, hyper.discount, np.zeros_like(rewards[0]))
        # what a reward of 1 at the first step beyond each cut would add, and nothing else: the weight of what is unseen
        cut = hyper.discount * (rollout.truncated & ~rollout.terminated).astype(np.float32)
        beyond = discounted(cut, continues, hyper.discount, np.ones_like(rewards[0]))
        return {"advantages": returns, "returns": returns, "valid": columns["valid"] & (beyond <= hyper.unseen)}
