"""Behaviour cloning: what was done in recorded episodes becomes more probable, whatever came of it.

    L = -log p(a | s) - entropy * H

The steps come from a table, as those of DQN do; the network and its distribution are those of PPO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.agents.actor_critic import ActorCritic, Learnt
from millstream.agents.features import Features
from millstream.agents.maths import namespace
from millstream.agents.networks.protocol import Network
from millstream.agents.replayed import TableHyper, group
from millstream.core.data import Batch, Gradients, Lesson, Rollout
from millstream.core.errors import ConfigError
from millstream.core.settings import setting
from millstream.core.spec import Box, EnvSpec


@dataclass(frozen=True)
class CloningHyper(TableHyper):
    """Hyper-parameters of behaviour cloning."""

    minibatch: int = setting(256, low=1, applies="learner")
    """Steps in one gradient."""
    entropy: float = setting(0.0, low=0, high=10, applies="learner")
    """Weight of the entropy bonus: how much is left open where the recorded player was sure."""
    max_norm: float = setting(1.0, low=0, applies="learner")
    """Longest gradient; 0 means no limit."""
    normalise_observations: bool = setting(False)
    """Shift and scale observations by their running statistics."""


class Cloning(ActorCritic):
    """The likelihood of recorded actions."""

    Hyper = CloningHyper
    window = 4
    """Rollouts a reader may be ahead: the table copies them at once."""
    max_lag: int | None = None
    sequences = False
    replayed = True
    """Learns from a table, not from each rollout once."""
    recorded = True
    """Learns from what others did: without a dataset there is nothing."""

    def __init__(self, spec: EnvSpec, network: Network, features: Features):
        if network.recurrent:
            raise ConfigError("cloning learns from single steps, a network with memory needs more; try --network auto")
        super().__init__(spec, network, features)

    def prepare(self, state: Learnt, rollouts: Sequence[Rollout], hyper: CloningHyper) -> tuple[Learnt, Batch]:
        """What was seen, and what was done then."""
        for rollout in rollouts:
            self._see(state, rollout, hyper)
        statistics = self._statistics(state, hyper)
        parts = [self._columns(rollout, statistics) for rollout in rollouts]
        batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return state, {name: self.network.place(array) for name, array in batch.items()}

    def gradients(self, state: Learnt, minibatch: Batch, hyper: CloningHyper) -> tuple[Gradients, Lesson]:
        """Of the loss above; nothing is said about values."""
        outputs, tape = self.network.forward(state.weights, group(minibatch, "in/"))
        actions = minibatch["actions"]
        log_prob, entropy, slip = self.distribution.evaluate(outputs, actions, minibatch.get("mask"))
        xp, share = namespace(log_prob), 1 / len(log_prob)
        back = self.distribution.backward(slip, xp.full_like(log_prob, -share), -hyper.entropy * share)
        back["value"] = xp.zeros_like(outputs["value"])
        lesson = {"policy_loss": -float(xp.sum(log_prob)) * share, "entropy": float(xp.sum(entropy)) * share}
        if not isinstance(self.spec.action, Box):
            lesson["likelihood"] = float(xp.sum(xp.exp(log_prob))) * share
        return self.network.backward(tape, back), lesson

    def _columns(self, rollout: Rollout, statistics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rows of picked steps [1, B]."""
        now, _ = self.features.ends(rollout)
        columns = {f"in/{name}": array for name, array in self.features.inputs(now, statistics).items()}
        if "mask" in rollout.extras:
            columns["mask"] = rollout.extras["mask"][0]
        return columns | {"actions": rollout.actions[0]}
