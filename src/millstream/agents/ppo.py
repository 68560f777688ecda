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

from millstream.agents.actor_critic import ActorCritic, ActorCriticHyper, Learnt, rows, slots_first
from millstream.agents.maths import explained_variance, gae, namespace
from millstream.core.data import Array, Batch, Gradients, Lesson, Rollout
from millstream.core.settings import setting


@dataclass(frozen=True)
class PPOHyper(ActorCriticHyper):
    """Hyper-parameters of PPO."""

    epochs: int = setting(4, low=1, high=1000, applies="learner")
    """How often each step is learnt from in one update."""
    clip: float = setting(0.2, above=0, high=10, applies="learner")
    """How far the ratio of probabilities may move from 1."""
    clip_value: float | None = setting(None, above=0, applies="learner")
    """How far a value may move in one update; none means freely."""
    normalise_advantages: bool = setting(True, applies="learner")
    """Shift and scale advantages over the whole batch."""
    target_kl: float | None = setting(None, above=0, applies="learner")
    """End an update early once the policy has moved this far; none never does."""


class PPO(ActorCritic):
    """The clipped objective over fresh rollouts."""

    Hyper = PPOHyper
    window = 2
    """Rollouts an actor may be ahead: one in training, one being made, so the policy acts one update behind."""
    max_lag: int | None = 1
    """Experience of an older policy is dropped: the ratio can be clipped, but not trusted."""

    @property
    def sequences(self) -> bool:
        """Whether a row of a batch is a slot's whole sequence rather than a step."""
        return self.network.recurrent

    def prepare(self, state: Learnt, rollouts: Sequence[Rollout], hyper: PPOHyper) -> tuple[Learnt, Batch]:
        """Advantages and targets, once for all epochs."""
        parts = []
        for rollout in rollouts:
            columns = self._read(state, rollout, hyper)
            next_values, continues = columns.pop("next_values"), columns.pop("continues")
            columns["advantages"] = gae(
                columns.pop("rewards"), columns["values"], next_values, continues, hyper.discount, hyper.trace
            )
            columns["returns"] = columns["advantages"] + columns["values"]
            parts.append(self._rows(columns, rollout))
        for rollout in rollouts:
            self._see(state, rollout, hyper)
        batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if hyper.normalise_advantages:
            _normalise(batch["advantages"], batch.get("valid"))
        return state, {name: self.network.place(array) for name, array in batch.items()}

    def gradients(self, state: Learnt, minibatch: Batch, hyper: PPOHyper) -> tuple[Gradients, Lesson]:
        """The closed form of the loss above, carried back through distribution and network."""
        outputs, tape = self._forward(state, minibatch, self.sequences)
        if self.sequences:
            minibatch = {name: rows(array) for name, array in minibatch.items() if name in _PER_STEP}
        advantages, old_log_prob = minibatch["advantages"], minibatch["log_prob"]
        log_prob, entropy, slip = self.distribution.evaluate(outputs, minibatch["actions"], minibatch.get("mask"))
        xp = namespace(log_prob)
        share = _share(xp, advantages, minibatch.get("valid"))
        log_ratio = log_prob - old_log_prob
        ratio = xp.exp(log_ratio)
        free, held = ratio * advantages, xp.clip(ratio, 1 - hyper.clip, 1 + hyper.clip) * advantages
        # where the clipped term is the smaller one it counts, and has no slope
        d_log_prob = (held >= free) * free * -share
        error, d_value = self._value_error(outputs["value"], minibatch, hyper)
        back = self.distribution.backward(slip, d_log_prob, -hyper.entropy * share)
        back["value"] = d_value * (hyper.value_weight * share)

        def mean(column: Array) -> float:
            return float(xp.sum(column)) * share if isinstance(share, float) else float(xp.sum(column * share))

        lesson = {
            "policy_loss": -mean(xp.minimum(free, held)),
            "value_loss": 0.5 * mean(error),
            "entropy": mean(entropy),
            "old_approx_kl": -mean(log_ratio),
            "approx_kl": mean(ratio - 1 - log_ratio),
            "clipfrac": mean(abs(ratio - 1) > hyper.clip),
        }
        return self.network.backward(tape, back), lesson

    def digest(self, batch: Batch) -> Lesson:
        """What can be said of a whole batch."""
        values, returns = batch["values"], batch["returns"]
        if "valid" in batch:
            values, returns = values[batch["valid"]], returns[batch["valid"]]
        return {"explained_variance": explained_variance(values, returns)}

    def _rows(self, columns: dict[str, np.ndarray], rollout: Rollout) -> dict[str, np.ndarray]:
        """[T, B, ...] -> steps that count, or whole sequences slot by slot."""
        t = rollout.steps
        if self.sequences:
            return {
                name: array if name.startswith("carry/") else slots_first(array[:t]) for name, array in columns.items()
            }
        del columns["first"]
        valid = columns.pop("valid")
        if valid.all():
            return {name: array[:t].reshape(-1, *array.shape[2:]) for name, array in columns.items()}
        return {name: array[:t][valid] for name, array in columns.items()}

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


_PER_STEP = {"actions", "log_prob", "advantages", "returns", "values", "mask", "valid"}


def _share(xp: Any, like: Array, valid: Array | None) -> Any:
    """The weight of each row in a mean over the rows that count; one number when all of them do."""
    if valid is None:
        return 1 / len(like)
    weights = xp.where(valid, xp.ones_like(like), xp.zeros_like(like))
    return weights / max(float(xp.sum(weights)), 1.0)


def _normalise(advantages: np.ndarray, valid: np.ndarray | None) -> None:
    counted = advantages if valid is None else advantages[valid]
    advantages -= counted.mean()
    advantages /= counted.std() + 1e-8
