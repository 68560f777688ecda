"""Distributions over actions: sampling, log-probability, entropy, and the way back.

`evaluate` gives a tape; `backward` turns dL/dlog_prob and dL/dentropy into gradients at the network's
outputs. Outputs are `policy` [N, width] and, for continuous actions, `log_std` [width].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from millstream.agents.maths import log_softmax, namespace
from millstream.core.data import Array
from millstream.core.spec import Box, Discrete, MultiDiscrete, Space

_NEVER = -1e9  # a logit for what is not allowed: its probability is exactly 0 in float32, its gradient too


class Distribution(Protocol):
    """How outputs become actions and gradients find their way back."""

    @property
    def width(self) -> int:
        """How many numbers of `policy` the network gives."""

    @property
    def spread(self) -> int:
        """How many numbers of `log_std` the network keeps; 0 for discrete actions."""

    def sample(
        self, outputs: Mapping[str, Array], mask: Array | None, rng: Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions and their log-probabilities; with no generator the most probable ones."""

    def evaluate(self, outputs: Mapping[str, Array], actions: Array, mask: Array | None) -> tuple[Array, Array, Any]:
        """Log-probability [N] and entropy [N] of actions, and a tape."""

    def backward(self, tape: Any, d_log_prob: Array, d_entropy: Array | float) -> dict[str, Array]:
        """Gradients at the outputs; a single number stands for the same at every row."""


def for_space(action: Space) -> Distribution:
    """The distribution that fits an action space."""
    if isinstance(action, Discrete):
        return Categorical(action.n)
    if isinstance(action, MultiDiscrete):
        return MultiCategorical(action.nvec)
    return DiagGaussian(action)


@dataclass(frozen=True)
class Categorical:
    """One of n."""

    n: int
    spread = 0

    @property
    def width(self) -> int:
        """One logit a choice."""
        return self.n

    def sample(
        self, outputs: Mapping[str, Array], mask: Array | None, rng: Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """By inverting the cumulative probabilities: one uniform number a slot."""
        logits = _masked(outputs["policy"], mask).T  # choices first: what runs over choices runs over long rows
        shifted = logits - logits.max(axis=0)
        cumulative = np.exp(shifted)
        np.cumsum(cumulative, axis=0, out=cumulative)  # not normalised: draws are scaled by the whole instead
        whole = cumulative[-1]
        if rng is None:
            actions = shifted.argmax(axis=0)
        else:
            draws = rng.random(len(whole), np.float32) * whole
            actions = np.add.reduce(cumulative[:-1] <= draws, axis=0, dtype=np.int64)
        return actions, shifted[actions, np.arange(len(whole))] - np.log(whole)

    def evaluate(self, outputs: Mapping[str, Array], actions: Array, mask: Array | None) -> tuple[Array, Array, Any]:
        """Closed forms over the log-softmax."""
        logits = _masked(outputs["policy"], mask)
        xp = namespace(logits)
        log_p = log_softmax(logits)
        p = xp.exp(log_p)
        entropy = -xp.sum(p * log_p, axis=-1)
        rows = xp.arange(len(log_p), device=log_p.device)
        return log_p[rows, actions], entropy, (log_p, p, entropy, rows, actions)

    def backward(self, tape: Any, d_log_prob: Array, d_entropy: Array | float) -> dict[str, Array]:
        """d log p(a) = onehot(a) - p;  dH = -p (log p + H)."""
        log_p, p, entropy, rows, actions = tape
        gradient = -p * d_log_prob[:, None]
        if not _is_zero(d_entropy):
            gradient -= p * (log_p + entropy[:, None]) * _column(d_entropy)
        gradient[rows, actions] += d_log_prob
        return {"policy": gradient}


@dataclass(frozen=True)
class MultiCategorical:
    """Several independent choices; log-probabilities and entropies add up."""

    nvec: tuple[int, ...]
    spread = 0

    @property
    def width(self) -> int:
        """One logit a choice of each."""
        return sum(self.nvec)

    def sample(
        self, outputs: Mapping[str, Array], mask: Array | None, rng: Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each choice by itself."""
        picks = [part.sample(inner, legal, rng) for part, inner, legal in self._parts(outputs, mask)]
        return np.stack([actions for actions, _ in picks], axis=-1), np.sum([log_p for _, log_p in picks], axis=0)

    def evaluate(self, outputs: Mapping[str, Array], actions: Array, mask: Array | None) -> tuple[Array, Array, Any]:
        """Sums over the choices."""
        found = [
            part.evaluate(inner, actions[:, index], legal)
            for index, (part, inner, legal) in enumerate(self._parts(outputs, mask))
        ]
        return (
            sum(log_p for log_p, _, _ in found),
            sum(entropy for _, entropy, _ in found),
            [tape for _, _, tape in found],
        )

    def backward(self, tape: Any, d_log_prob: Array, d_entropy: Array | float) -> dict[str, Array]:
        """Side by side, in the order of the logits."""
        parts = [
            Categorical(n).backward(inner, d_log_prob, d_entropy) for n, inner in zip(self.nvec, tape, strict=True)
        ]
        return {"policy": namespace(d_log_prob).concat([part["policy"] for part in parts], axis=-1)}

    def _parts(
        self, outputs: Mapping[str, Array], mask: Array | None
    ) -> list[tuple[Categorical, dict[str, Array], Any]]:
        edges = np.cumsum((0, *self.nvec)).tolist()
        return [
            (Categorical(n), {"policy": outputs["policy"][:, a:b]}, None if mask is None else mask[:, a:b])
            for n, a, b in zip(self.nvec, edges, edges[1:], strict=False)
        ]


class DiagGaussian:
    """Independent normal numbers; the spread does not depend on what is seen."""

    def __init__(self, action: Box):
        self.shape, self.width, self.spread = action.shape, action.width, action.width

    def sample(
        self, outputs: Mapping[str, Array], mask: Array | None, rng: Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean plus noise; the environment clips, the log-probability is of the unclipped number."""
        mean, log_std = outputs["policy"], outputs["log_std"]
        noise = np.zeros_like(mean) if rng is None else rng.standard_normal(mean.shape, np.float32)
        actions = mean + noise * np.exp(log_std)
        log_p = (-0.5 * noise * noise - log_std - 0.5 * math.log(2 * math.pi)).sum(axis=-1)
        return actions.reshape(len(mean), *self.shape), log_p

    def evaluate(self, outputs: Mapping[str, Array], actions: Array, mask: Array | None) -> tuple[Array, Array, Any]:
        """Sums over the dimensions."""
        mean, log_std = outputs["policy"], outputs["log_std"]
        xp = namespace(mean)
        inverse = xp.exp(-log_std)
        z = (xp.reshape(actions, mean.shape) - mean) * inverse
        log_p = xp.sum(-0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi), axis=-1)
        entropy = xp.sum(log_std) + 0.5 * self.width * (1 + math.log(2 * math.pi)) + xp.zeros_like(log_p)
        return log_p, entropy, (z, inverse)

    def backward(self, tape: Any, d_log_prob: Array, d_entropy: Array | float) -> dict[str, Array]:
        """d log p / d mean = z / std;  d log p / d log_std = z^2 - 1;  dH / d log_std = 1."""
        z, inverse = tape
        xp = namespace(z)
        entropy = d_entropy * len(z) if isinstance(d_entropy, float) else xp.sum(d_entropy)
        spread = xp.sum(d_log_prob[:, None] * (z * z - 1), axis=0) + entropy
        return {"policy": d_log_prob[:, None] * z * inverse, "log_std": spread}


def _is_zero(weight: Array | float) -> bool:
    return isinstance(weight, float) and weight == 0


def _column(weight: Array | float) -> Array | float:
    return weight if isinstance(weight, float) else weight[:, None]


def _masked(logits: Array, mask: Array | None) -> Array:
    if mask is None:
        return logits
    xp = namespace(logits)
    return xp.where(mask, logits, xp.asarray(_NEVER, dtype=logits.dtype, device=logits.device))
