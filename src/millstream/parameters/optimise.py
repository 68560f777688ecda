"""How an aggregate moves the weights. Adam's maths is an agent's, so a server is given it as a function."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from millstream.core.data import Array
from millstream.core.errors import AgentError, CheckpointError, ConfigError, Diverged, UnknownName
from millstream.core.ports import Snapshots
from millstream.parameters.layout import Refusal, finite

Optimiser: TypeAlias = Callable[[np.ndarray, np.ndarray], Array]
"""`apply(weights, gradients) -> weights`, flat and float32. Both are its to change; None: it changed them in place.

One call at a time; it must not push itself. With `snapshot` and `restore` its state is saved with the parameters."""
NAMES = ("sgd", "add")


def moved(optimiser: str | Optimiser, weights: np.ndarray, push: np.ndarray, kind: str, rate: float) -> np.ndarray:
    """New weights in memory of their own, all finite; Refusal where they would not be. The push is used up."""
    with np.errstate(over="ignore", invalid="ignore"):
        if callable(optimiser):
            result = _given(optimiser, weights, push if kind == "gradients" else np.negative(push, out=push))
        else:
            if kind == "gradients" and optimiser == "sgd":
                push *= -rate
            push += weights
            result = push
    if not finite(result):
        raise Refusal("overflow", "with it the weights would no longer be finite; lower the learning rate")
    return result


def check(optimiser: str | Optimiser, rate: float) -> None:
    """Raise unless the optimiser is a known one."""
    if not callable(optimiser) and optimiser not in NAMES:
        hint = "(Adam and others: a function apply(weights, gradients) -> weights)"
        raise ConfigError(str(UnknownName.of("optimiser", str(optimiser), NAMES, hint)))
    if not (isinstance(rate, int | float) and 0 < rate < math.inf):
        raise ConfigError(f"learning_rate is above 0 and finite, got {rate!r}")


def snapshot(optimiser: object) -> Any:
    """A copy of what the optimiser remembers, where it says so."""
    return copy.deepcopy(optimiser.snapshot()) if isinstance(optimiser, Snapshots) else None


def restore(optimiser: object, remembered: Any) -> None:
    """Give it back; CheckpointError when there is nobody to take it."""
    if remembered is None:
        return
    if not isinstance(optimiser, Snapshots):
        raise CheckpointError("it was saved with the state of an optimiser; give the server that optimiser")
    optimiser.restore(remembered)


def _given(apply: Optimiser, weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    own = weights.copy()
    try:
        answer = apply(own, gradients)
    except Diverged as error:
        raise Refusal("overflow", str(error)) from error
    if answer is None or answer is own:
        return own
    result = np.array(answer, np.float32)  # a copy: it may be memory that the optimiser goes on using
    if result.shape != weights.shape:
        raise AgentError(f"the optimiser gave weights of shape {result.shape}, expected {weights.shape}")
    return result
