"""What algorithms share that learn from a table of old steps: its settings, and how picked windows are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from millstream.agents.features import Features
from millstream.core.data import Array, Batch, Carry, Params, Rollout
from millstream.core.errors import ConfigError
from millstream.core.settings import setting
from millstream.core.spec import EnvSpec

H = TypeVar("H", bound="TableHyper")


@dataclass(frozen=True)
class TableHyper:
    """Hyper-parameters of whatever picks steps from a table."""

    learning_rate: float = setting(1e-3, above=0, high=1, applies="learner")
    """Step size of Adam."""
    learning_rate_end: float | None = setting(None, low=0, high=1, applies="learner")
    """Where the step size goes, in a straight line over the run; none keeps it."""
    minibatch: int = setting(64, low=1, applies="learner")
    """Steps in one gradient."""
    gradients: int = setting(16, low=1, high=10_000, applies="learner")
    """Gradients between two policies, each of a minibatch of its own."""
    capacity: int = setting(100_000, low=1)
    """Steps that the table holds."""
    learning_starts: int = setting(1_000, low=1)
    """Steps in the table before the first is learnt from."""
    samples_per_step: float = setting(8.0, above=0)
    """How often each step is learnt from, on average."""

    epochs = n_step = 1
    prioritised = False

    def at(self: H, progress: float) -> H:
        """The values in force when this share of the run (0 to 1) is done."""
        rate, end = self.learning_rate, self.learning_rate_end
        if end is None:
            return self
        return replace(self, learning_rate=rate + (end - rate) * min(max(progress, 0.0), 1.0))


@dataclass(frozen=True)
class ReplayedHyper(TableHyper):
    """Hyper-parameters of every algorithm that learns values from a table."""

    discount: float = setting(0.99, low=0, high=1, applies="learner")
    """How much a reward is worth one step later."""
    n_step: int = setting(1, low=1, high=100)
    """How many steps of reward a target sums before it trusts the target network."""
    prioritised: bool = setting(False)
    """Whether steps that surprised are picked more often."""
    priority_exponent: float = setting(0.6, low=0, high=10)
    """How much more: 0 not at all, 1 in proportion to the surprise."""
    importance: float = setting(0.4, low=0, high=1)
    """How far the picking is corrected for in the loss."""


class Replayed:
    """Reading windows; no algorithm is in here."""

    window = 4
    """Rollouts an actor may be ahead: the table copies them at once."""
    max_lag: int | None = None
    sequences = False
    replayed = True
    """Learns from a table, not from each rollout once."""

    def __init__(self, spec: EnvSpec, network: Any, features: Features):
        if network.recurrent:
            name = type(self).__name__
            raise ConfigError(f"{name} learns from single steps, a network with memory needs more; try --network auto")
        self.spec, self.network, self.features = spec, network, features
        self.grain: int | None = getattr(network, "grain", None)

    def carry(self, params: Params, slots: int) -> Carry:
        """Earlier frames, all empty."""
        return self.features.carry(slots)

    def prepare(self, state: Any, rollouts: Sequence[Rollout], hyper: Any) -> tuple[Any, Batch]:
        """Rewards of the steps that count are summed; what follows them is judged later."""
        parts = [self._read(rollout, hyper) for rollout in rollouts]
        batch = parts[0]
        if len(parts) > 1:
            batch = {name: np.concatenate([part[name] for part in parts]) for name in batch}
        return state, {name: self.network.place(array) for name, array in batch.items()}

    def _read(self, rollout: Rollout, hyper: Any) -> dict[str, np.ndarray]:
        """Rows of picked windows [n, B]: the first step, rewards from there on, what follows the last that counts."""
        now, after = self.features.ends(rollout)
        columns = {f"in/{name}": array for name, array in self.features.inputs(now, {}).items()}
        columns |= {f"next/{name}": array for name, array in self.features.inputs(after, {}).items()}
        if "mask" in rollout.extras:
            columns["mask"] = rollout.extras["mask"][-1]
        if "importance" in rollout.extras:
            columns["importance"] = rollout.extras["importance"][0]
        return columns | {"actions": rollout.actions[0], **_returns(rollout, hyper.discount)}


def group(batch: Batch, prefix: str) -> dict[str, Array]:
    """The columns whose names begin so, without that."""
    return {name[len(prefix) :]: array for name, array in batch.items() if name.startswith(prefix)}


def plain(array: Array) -> np.ndarray:
    """A copy in NumPy, wherever it was."""
    found: np.ndarray = array.copy() if isinstance(array, np.ndarray) else array.detach().cpu().numpy().copy()
    return found


def _returns(rollout: Rollout, discount: float) -> dict[str, np.ndarray]:
    """Discounted rewards of each window, and what the value of what follows is worth then."""
    if rollout.steps == 1:
        going = np.where(rollout.terminated[0], np.float32(0), np.float32(discount))
        return {"returns": rollout.rewards[0], "discounts": going}
    steps = rollout.valid.sum(axis=0)
    over = rollout.terminated[np.maximum(steps, 1) - 1, np.arange(rollout.slots)]
    decay = discount ** np.arange(rollout.steps, dtype=np.float32)[:, None]
    return {
        "returns": (rollout.rewards * decay * rollout.valid).sum(axis=0, dtype=np.float32),
        "discounts": np.where(over, 0, discount**steps).astype(np.float32),
    }
