"""What may be learnt from: a rollout from another machine is looked at before it reaches the replay."""

from __future__ import annotations

import numpy as np

from millstream.core.data import Rollout
from millstream.core.spec import EnvSpec


def objection(rollout: Rollout, spec: EnvSpec) -> str | None:
    """Why not, its first word the one under which it is counted; None when nothing is wrong."""
    if set(rollout.observations) != set(spec.observations):
        return f"spec: observations {sorted(rollout.observations)}, this experiment has {sorted(spec.observations)}"
    for name, space in spec.observations.items():
        seen = rollout.observations[name]
        if seen.shape[2:] != space.shape or seen.dtype != np.dtype(space.dtype):
            return f"spec: {name} is {seen.dtype}{list(seen.shape[2:])}, not {space.dtype}{list(space.shape)}"
    if rollout.actions.shape[2:] != spec.action.shape:
        return f"spec: actions of shape {list(rollout.actions.shape[2:])}, not {list(spec.action.shape)}"
    arrays = {"rewards": rollout.rewards, "actions": rollout.actions, **rollout.observations}
    arrays |= {f"final {name}": array for name, array in rollout.finals.items()} | dict(rollout.extras)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"non_finite: {name}"
    return None
