"""REINFORCE (Williams 1992): what was followed by a high return becomes more probable.

    L = -G * log_prob - entropy * H

G is the return from a step to the end of its episode, normalised over the batch. Where a rollout ends before the
episode does, G is not known yet. Such steps are left out: a return that stops too early would be wrong. With a
`baseline` a value is learnt beside the policy, stands for what comes after, and is taken off: then every step counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millstream.agents.a2c import A2C, OneGradientHyper
from millstream.agents.actor_critic import Learnt
from millstream.agents.maths import discounted
from millstream.core.data import Batch, Gradients, Lesson
from millstream.core.settings import setting


@dataclass(frozen=True)
class ReinforceHyper(OneGradientHyper):
    """Hyper-parameters of REINFORCE."""

    learning_rate: float = setting(1e-3, above=0, high=1, applies="learner")
    """Step size of Adam."""
    normalise_advantages: bool = setting(True, applies="learner")
    """Shift and scale returns over the whole batch."""
    baseline: bool = setting(False, applies="learner")
    """Whether a value is learnt, taken off returns, and trusted where a rollout or a time limit cuts an episode."""

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

    def _judge(self, columns: dict[str, np.ndarray], hyper: Any) -> dict[str, np.ndarray]:
        if hyper.baseline:
            return super()._judge(columns, hyper)
        continues = columns["continues"]
        returns = discounted(columns["rewards"], continues, hyper.discount, np.zeros_like(continues[0]))
        known = np.logical_or.accumulate(continues[::-1] == 0)[::-1]  # an end lies at this step or after it
        return {"advantages": returns, "returns": returns, "valid": columns["valid"] & known}
