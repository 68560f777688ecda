"""What PPO, A2C and REINFORCE share: they learn from fresh rollouts, judged once an update. No algorithm is in here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.agents.actor_critic import ActorCritic, Learnt, rows, slots_first
from millstream.agents.maths import explained_variance, gae, namespace
from millstream.core.data import Array, Batch, Lesson, Rollout

_PER_STEP = {"actions", "log_prob", "advantages", "returns", "values", "mask", "valid"}


class OnPolicy(ActorCritic):
    """Advantages of rollouts, as rows or as sequences."""

    @property
    def sequences(self) -> bool:
        """Whether a row of a batch is a slot's whole sequence rather than a step."""
        return self.network.recurrent

    def prepare(self, state: Learnt, rollouts: Sequence[Rollout], hyper: Any) -> tuple[Learnt, Batch]:
        """Advantages and targets, once for all gradients of an update."""
        return self._prepare(state, rollouts, [False] * len(rollouts), hyper)

    def _prepare(
        self, state: Learnt, rollouts: Sequence[Rollout], anew: Sequence[bool], hyper: Any
    ) -> tuple[Learnt, Batch]:
        """The same, with some rollouts read by the present policy."""
        parts = []
        for rollout, again in zip(rollouts, anew, strict=True):
            columns = self._read(state, rollout, hyper, again)
            columns |= self._judge(columns, rollout, hyper)
            for used in ("rewards", "next_values", "continues"):
                del columns[used]
            parts.append(self._rows(columns, rollout))
        for rollout in rollouts:
            self._see(state, rollout, hyper)
        batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if hyper.normalise_advantages:
            _normalise(batch["advantages"], batch.get("valid"))
        return state, {name: self.network.place(array) for name, array in batch.items()}

    def digest(self, batch: Batch) -> Lesson:
        """What can be said of a whole batch."""
        values, returns = batch["values"], batch["returns"]
        if "valid" in batch:
            values, returns = values[batch["valid"]], returns[batch["valid"]]
        return {"explained_variance": explained_variance(values, returns)}

    def _judge(self, columns: dict[str, np.ndarray], rollout: Rollout, hyper: Any) -> dict[str, np.ndarray]:
        """What to learn from each step [T, B]: its advantage, and what its value should have been."""
        values = columns["values"]
        advantages = gae(
            columns["rewards"], values, columns["next_values"], columns["continues"], hyper.discount, hyper.trace
        )
        return {"advantages": advantages, "returns": advantages + values}

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

    def _outputs(self, state: Learnt, minibatch: Batch) -> tuple[Any, Any, Batch]:
        """What the network says, its tape, and the columns that go with each row of it."""
        outputs, tape = self._forward(state, minibatch, self.sequences)
        if self.sequences:
            minibatch = {name: rows(array) for name, array in minibatch.items() if name in _PER_STEP}
        return outputs, tape, minibatch


def shares(like: Array, valid: Array | None) -> Any:
    """The weight of each row in a mean over the rows that count; one number when all of them do."""
    if valid is None:
        return 1 / len(like)
    xp = namespace(like)
    weights = xp.where(valid, xp.ones_like(like), xp.zeros_like(like))
    return weights / max(float(xp.sum(weights)), 1.0)


def mean(column: Array, share: Any) -> float:
    """The mean by those weights."""
    xp = namespace(column)
    return float(xp.sum(column)) * share if isinstance(share, float) else float(xp.sum(column * share))


def _normalise(advantages: np.ndarray, valid: np.ndarray | None) -> None:
    counted = advantages if valid is None else advantages[valid]
    if counted.size:
        advantages -= counted.mean()
        advantages /= counted.std() + 1e-8
