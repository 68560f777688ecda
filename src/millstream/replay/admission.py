"""What may be learnt from: a rollout from another machine is looked at before it reaches the replay."""

from __future__ import annotations

import numpy as np

from millstream.core.data import Rollout
from millstream.core.spec import Box, Discrete, EnvSpec


def objection(rollout: Rollout, spec: EnvSpec) -> str | None:
    """Why not, its first word the one under which it is counted; None when nothing is wrong."""
    return _of_observations(rollout, spec) or _of_actions(rollout, spec) or _of_endings(rollout) or _of_numbers(rollout)


def _of_observations(rollout: Rollout, spec: EnvSpec) -> str | None:
    for group in (rollout.observations, rollout.finals):
        if set(group) != set(spec.observations):
            return f"spec: observations {sorted(group)}, this experiment has {sorted(spec.observations)}"
    for name, space in spec.observations.items():
        for seen, lead in ((rollout.observations[name], 2), (rollout.finals[name], 1)):
            found = seen.shape[lead:]
            if found != space.shape or seen.dtype != np.dtype(space.dtype):
                return f"spec: {name} is {seen.dtype}{list(found)}, not {space.dtype}{list(space.shape)}"
    return None


def _of_actions(rollout: Rollout, spec: EnvSpec) -> str | None:
    actions, space = rollout.actions, spec.action
    if actions.shape[2:] != space.shape:
        return f"spec: actions of shape {list(actions.shape[2:])}, not {list(space.shape)}"
    if isinstance(space, Box):
        fits = actions.dtype.kind == np.dtype(space.dtype).kind
        return None if fits else f"spec: actions are {actions.dtype}, not {space.dtype}"
    choices = np.asarray(space.n if isinstance(space, Discrete) else space.nvec)
    if actions.dtype.kind not in "iu" or ((actions < 0) | (actions >= choices)).any():
        return f"spec: actions that are none of {choices.tolist()}"
    return None


def _of_endings(rollout: Rollout) -> str | None:
    at = rollout.final_at
    if ((at < 0) | (at >= [rollout.steps, rollout.slots])).any():
        return f"shape: endings outside of {rollout.steps} steps of {rollout.slots} slots"
    if not rollout.steps or not rollout.slots:
        return "shape: no steps"
    return None


def _of_numbers(rollout: Rollout) -> str | None:
    arrays = {"rewards": rollout.rewards, "actions": rollout.actions, **rollout.observations, **rollout.carry}
    arrays |= {f"final {name}": array for name, array in rollout.finals.items()} | dict(rollout.extras)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"non_finite: {name}"
    return None
