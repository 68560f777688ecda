"""What the `Env` port promises, checked on an environment of many slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.ports import Env
from millstream.core.spec import Box, Discrete, Space
from millstream.envs.gymnasium import summary


def slot_findings(env: Env, steps: int, seed: int) -> list[str]:
    """Findings in plain words; nothing means that every promise was kept."""
    found: list[str] = []
    try:
        first = _walk(env, min(steps, 50), seed, found)
        if not found and first != _walk(env, min(steps, 50), seed, found):
            found.append("with the same seed and actions it gives something else; draw from the seed only")
        if not found:
            _walk(env, steps, seed, found)
    except Exception as error:
        found.append(f"it raised {summary(error)}")
    return found


def actions_for(space: Space, slots: int, rng: np.random.Generator, masks: Array | None = None) -> Array:
    """Random legal actions, one a slot."""
    if isinstance(space, Box):
        low, high = (np.clip(edge, -10, 10) for edge in space.bounds())
        return rng.uniform(low, high, (slots, *space.shape)).astype(np.float32)
    if isinstance(space, Discrete):
        weights = rng.random((slots, space.n)) + (0 if masks is None else masks)
        return weights.argmax(axis=1)
    return rng.integers(0, np.array(space.nvec), (slots, len(space.nvec)))


def _walk(env: Env, steps: int, seed: int, found: list[str]) -> list[bytes]:
    """Random steps; what they gave, as bytes to compare, and what was wrong with it."""
    rng = np.random.default_rng(seed)
    step = env.reset(seed)
    seen = []
    if not step.first.all():
        found.append("reset must mark every slot as first")
    for at in range(steps):
        fault = _fault(env, step, at > 0)
        if fault:
            found.append(fault)
            break
        seen.append(b"".join(array.tobytes() for array in step.observations.values()) + step.rewards.tobytes())
        step = env.step(actions_for(env.spec.action, env.slots, rng, step.masks))
    return seen


def _fault(env: Env, step: Step, stepped: bool) -> str | None:
    fault = _observation_fault(env, step.observations, env.slots, "observations")
    fault = fault or _observation_fault(env, step.finals, len(step.ended), "finals")
    if fault or not stepped:
        return fault
    expected = {"rewards": "float32", "terminated": "bool", "truncated": "bool", "valid": "bool", "first": "bool"}
    for name, dtype in expected.items():
        array = getattr(step, name)
        if array.shape != (env.slots,) or array.dtype != dtype:
            return f"{name} is {array.dtype} of shape {array.shape}, expected {dtype} of shape {(env.slots,)}"
    if not np.isfinite(step.rewards).all():
        return f"a reward is {step.rewards[~np.isfinite(step.rewards)][0]}"
    if not np.array_equal((step.terminated | step.truncated).nonzero()[0], step.ended):
        return "ended must name the slots that are terminated or truncated"
    if env.spec.masked and (step.masks is None or step.masks.shape != (env.slots, env.spec.mask_width)):
        return f"masks must be booleans of shape {(env.slots, env.spec.mask_width)}"
    return None


def _observation_fault(env: Env, arrays: Mapping[str, Any], count: int, where: str) -> str | None:
    if list(arrays) != list(env.spec.observations):
        return f"{where} are named {list(arrays)}, the spec promises {list(env.spec.observations)}"
    for name, space in env.spec.observations.items():
        array = arrays[name]
        if array.shape != (count, *space.shape) or array.dtype != space.dtype:
            promised = f"{space.dtype} of shape {(count, *space.shape)}"
            return f"{where} {name!r} is {array.dtype} of shape {array.shape}, the spec promises {promised}"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{where} {name!r} holds {array[~np.isfinite(array)][0]}"
    return None
