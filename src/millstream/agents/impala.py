"""IMPALA (Espeholt et al. 2018): actors run ahead, V-trace corrects for it, each step is learnt from once.

L = -rho * A * log_prob + value_weight * (V - v)^2 / 2 - entropy * H
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.agents.actor_critic import ActorCritic, ActorCriticHyper, Learnt, rows, slots_first
from millstream.agents.maths import namespace, vtrace
from millstream.core.data import Array, Batch, Gradients, Lesson, Rollout
from millstream.core.settings import setting


@dataclass(frozen=True)
class ImpalaHyper(ActorCriticHyper):
    """Hyper-parameters of IMPALA."""

    learning_rate: float = setting(1e-3, above=0, high=1, applies="learner")
    """Step size of Adam."""
    trace: float = setting(1.0, low=0, high=1, applies="learner")
    """Lambda of V-trace: how far targets look ahead."""
    entropy: float = setting(0.01, low=0, high=10, applies="learner")
    """Weight of the entropy bonus."""
    epochs: int = setting(1, low=1, high=1000, applies="learner")
    """How often each step is learnt from in one update."""
    minibatch: int = setting(640, low=1, applies="learner")
    """Steps in one gradient."""
    clip_rho: float = setting(1.0, above=0, applies="learner")
    """Largest importance weight of a step's own error."""
    clip_c: float = setting(1.0, above=0, applies="learner")
    """Largest importance weight with which later errors reach back."""


class Impala(ActorCritic):
    """V-trace over sequences."""

    Hyper = ImpalaHyper
    window = 4
    """Rollouts an actor may be ahead; what is old is corrected, not dropped."""
    max_lag: int | None = None
    sequences = True

    def prepare(self, state: Learnt, rollouts: Sequence[Rollout], hyper: ImpalaHyper) -> tuple[Learnt, Batch]:
        """Sequences slot by slot; what follows their last step is known before they are learnt from."""
        parts = []
        for rollout in rollouts:
            columns = self._read(state, rollout, hyper)
            ended = columns.pop("continues") == 0
            del columns["values"]
            columns |= {"ended": ended}
            parts.append(
                {name: array if name.startswith("carry/") else slots_first(array) for name, array in columns.items()}
            )
        for rollout in rollouts:
            self._see(state, rollout, hyper)
        batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return state, {name: self.network.place(array) for name, array in batch.items()}

    def correct(
        self, state: Learnt, rollouts: Sequence[Rollout], stale: Sequence[bool], hyper: ImpalaHyper
    ) -> tuple[Learnt, Batch]:
        """As `prepare`: V-trace corrects every rollout for its age."""
        return self.prepare(state, rollouts, hyper)

    def gradients(self, state: Learnt, minibatch: Batch, hyper: ImpalaHyper) -> tuple[Gradients, Lesson]:
        """V-trace with the values and probabilities of now; targets are constants."""
        outputs, tape = self._forward(state, minibatch, sequences=True)
        xp = namespace(outputs["value"])
        slots, steps = minibatch["rewards"].shape
        values = xp.reshape(outputs["value"], (slots, steps + 1))
        # one row more than steps: the last observation has a value, and no action of its own
        actions = _padded(minibatch["actions"])
        mask = rows(minibatch["mask"]) if "mask" in minibatch else None
        log_prob, entropy, slip = self.distribution.evaluate(outputs, rows(actions), mask)
        log_prob = xp.reshape(log_prob, (slots, steps + 1))[:, :-1]
        counted = xp.where(minibatch["valid"], xp.ones_like(log_prob), xp.zeros_like(log_prob))
        share = counted / max(float(xp.sum(counted)), 1.0)
        targets, advantages = self._targets(minibatch, log_prob, values, hyper)
        error = values[:, :-1] - targets
        columns = (-advantages * share, -hyper.entropy * share, hyper.value_weight * error * share)
        d_log_prob, d_entropy, d_value = (rows(_padded(column)) for column in columns)
        back = self.distribution.backward(slip, d_log_prob, d_entropy)
        back["value"] = d_value
        kept = xp.reshape(entropy, (slots, steps + 1))[:, :-1]
        log_ratio = log_prob - minibatch["log_prob"]
        lesson = {
            "policy_loss": -float(xp.sum(advantages * log_prob * share)),
            "value_loss": float(xp.sum(0.5 * error * error * share)),
            "entropy": float(xp.sum(kept * share)),
            "approx_kl": float(xp.sum((xp.exp(log_ratio) - 1 - log_ratio) * share)),
        }
        return self.network.backward(tape, back), lesson

    def _targets(self, minibatch: Batch, log_prob: Array, values: Array, hyper: ImpalaHyper) -> tuple[Array, Array]:
        """V-trace, time first and back. What follows is the value of now; at an episode's end, the one prepared."""
        xp = namespace(values)
        ended = minibatch["ended"]
        following = xp.where(ended, minibatch["next_values"], values[:, 1:])
        continues = xp.where(ended, xp.zeros_like(log_prob), xp.ones_like(log_prob))
        targets, advantages = vtrace(
            (log_prob - minibatch["log_prob"]).T,
            minibatch["rewards"].T,
            values[:, :-1].T,
            following.T,
            continues.T,
            hyper.discount,
            hyper.trace,
            hyper.clip_rho,
            hyper.clip_c,
        )
        return targets.T, advantages.T


def _padded(column: Array) -> Array:
    """[b, T, ...] -> [b, T + 1, ...], zeros last."""
    xp = namespace(column)
    return xp.concat([column, xp.zeros_like(column[:, :1])], axis=1)
