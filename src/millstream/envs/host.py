"""The one place where an environment's device ends: what lives elsewhere is brought to where rollouts are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from millstream.core.data import Step

_CPU = 1  # DLPack's number for memory that NumPy can read


def on_host(given: Any) -> Any:
    """NumPy arrays of whatever arrays an environment gave, also inside tables and tuples; the rest as it is.

    An array that lies in this machine's memory is not copied.
    """
    if given is None or isinstance(given, np.ndarray):
        return given
    if isinstance(given, Mapping):
        return {name: on_host(part) for name, part in given.items()}
    if type(given) is tuple:
        return tuple(on_host(part) for part in given)
    if hasattr(given, "__dlpack_device__"):
        return _fetched(given)
    return np.asarray(given) if hasattr(given, "__array__") else given


def fetched(step: Step) -> Step:
    """An environment's answer with every array on this machine."""
    if all(isinstance(part, np.ndarray) for part in (step.rewards, *step.observations.values())):
        return step
    return Step(**{field.name: on_host(getattr(step, field.name)) for field in fields(step)})


def _fetched(array: Any) -> np.ndarray:
    if hasattr(array, "detach"):
        array = array.detach()
    if array.__dlpack_device__()[0] == _CPU:
        return np.from_dlpack(array)
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)
