"""A rollout too large for one message is cut along its slots; each part is a rollout that can be read alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from millstream.core.codec import encode
from millstream.core.data import Array, Rollout
from millstream.core.errors import CodecError, TooLarge


def cut(rollout: Rollout, limit: int) -> list[bytearray]:
    """Encoded parts of at most `limit` bytes."""
    whole = encode(rollout)
    if len(whole) <= limit:
        return [whole]
    pieces = -(-len(whole) // limit)
    while pieces <= rollout.slots:
        bounds = np.linspace(0, rollout.slots, pieces + 1).astype(int)
        parts = [encode(slots_of(rollout, start, end)) for start, end in pairwise(bounds)]
        if all(len(part) <= limit for part in parts):
            return parts
        pieces += 1
    raise TooLarge(
        f"{rollout.steps} steps of one slot take {len(whole) // rollout.slots:,} bytes, and a message holds {limit:,}; "
        "lower actor.unroll"
    )


def slots_of(rollout: Rollout, start: int, end: int) -> Rollout:
    """Some of the slots, in their order."""
    inside = (rollout.final_at[:, 1] >= start) & (rollout.final_at[:, 1] < end)
    return replace(
        rollout,
        observations={name: array[:, start:end] for name, array in rollout.observations.items()},
        finals={name: array[inside] for name, array in rollout.finals.items()},
        final_at=rollout.final_at[inside] - np.array([0, start]),
        actions=rollout.actions[:, start:end],
        rewards=rollout.rewards[:, start:end],
        terminated=rollout.terminated[:, start:end],
        truncated=rollout.truncated[:, start:end],
        first=rollout.first[:, start:end],
        valid=rollout.valid[:, start:end],
        carry={name: array[start:end] for name, array in rollout.carry.items()},
        extras={name: array[:, start:end] for name, array in rollout.extras.items()},
    )


def join(parts: Sequence[Rollout]) -> Rollout:
    """The inverse: slots side by side, endings in the order of their steps."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if any(part.steps != first.steps or part.stamp != first.stamp for part in parts):
        raise CodecError("parts of one rollout do not fit each other")
    starts = np.cumsum([0, *(part.slots for part in parts[:-1])])
    at = np.concatenate([part.final_at + np.array([0, start]) for part, start in zip(parts, starts, strict=True)])
    order = np.lexsort((at[:, 1], at[:, 0]))
    try:
        finals = _beside([part.finals for part in parts], 0)
        beside: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts], axis=1) for name in _BESIDE
        }
        return replace(
            first,
            observations=_beside([part.observations for part in parts], 1),
            finals={name: array[order] for name, array in finals.items()},
            final_at=at[order],
            carry=_beside([part.carry for part in parts], 0),
            extras=_beside([part.extras for part in parts], 1),
            **beside,
        )
    except (KeyError, ValueError) as error:
        raise CodecError(f"parts of one rollout do not fit each other: {error}") from error


_BESIDE = ("actions", "rewards", "terminated", "truncated", "first", "valid")


def _beside(groups: Sequence[Mapping[str, Array]], axis: int) -> dict[str, Array]:
    return {name: np.concatenate([group[name] for group in groups], axis=axis) for name in groups[0]}
