"""An agent of one's own, with a hyper-parameter of its own: `python examples/own_agent.py`.

`Pessimist` is PPO that learns from noisy rewards as if each were a little worse the further it lies from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import millstream
from millstream.agents.ppo import PPO, PPOHyper
from millstream.core.data import Batch, Rollout
from millstream.core.settings import setting


@dataclass(frozen=True)
class PessimistHyper(PPOHyper):
    """PPO's hyper-parameters, and one more: type, default, bounds and meaning stand together."""

    doubt: float = setting(0.1, low=0, high=1, applies="learner")
    """The part of a reward's size that is taken off."""


class Pessimist(PPO):
    """PPO that doubts large rewards."""

    Hyper = PessimistHyper

    def prepare(self, state: Any, rollouts: Sequence[Rollout], hyper: PessimistHyper) -> tuple[Any, Batch]:
        """Rollouts belong to the bus: give changed copies on, never change them."""
        doubted = [replace(each, rewards=each.rewards - hyper.doubt * np.abs(each.rewards)) for each in rollouts]
        return super().prepare(state, doubted, hyper)


if __name__ == "__main__":
    run = millstream.train("CartPole-v1", algo="own_agent:Pessimist", doubt=0.2, total_steps=20_000)
    print(f"{run.evaluation['mean']:.0f} after {run.result['steps']:,} steps")
