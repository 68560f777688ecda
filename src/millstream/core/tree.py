"""Trees of dataclasses, dictionaries, lists, arrays and plain values: taken apart for files, put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.errors import CheckpointError


def flatten(tree: Any, path: str = "") -> tuple[dict[str, np.ndarray], Any]:
    """The arrays of a tree by their path, and the tree with each array replaced by `{"@": path}`: fits JSON."""
    arrays: dict[str, np.ndarray] = {}
    return arrays, _strip(tree, path, arrays)


def unflatten(arrays: Mapping[str, np.ndarray], skeleton: Any) -> Any:
    """The inverse of `flatten`; dataclasses come back as dictionaries."""
    if isinstance(skeleton, Mapping):
        if set(skeleton) == {"@"}:
            try:
                return arrays[skeleton["@"]]
            except KeyError:
                raise CheckpointError(f"the array {skeleton['@']!r} is missing") from None
        return {key: unflatten(arrays, value) for key, value in skeleton.items()}
    if isinstance(skeleton, list):
        return [unflatten(arrays, value) for value in skeleton]
    return skeleton


def rebuild(template: Any, tree: Any, path: str = "state") -> Any:
    """A tree of the template's types from one of plain dictionaries; shapes must agree, devices follow the template."""
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        if not isinstance(tree, Mapping):
            raise CheckpointError(f"{path} should be a {type(template).__name__}, got {type(tree).__name__}")
        names = [field.name for field in dataclasses.fields(template)]
        values = {name: rebuild(getattr(template, name), tree.get(name), f"{path}.{name}") for name in names}
        return type(template)(**values)
    if isinstance(template, dict):
        return {key: rebuild(template.get(key), value, f"{path}.{key}") for key, value in tree.items()}
    if _is_array(template):
        if tuple(np.shape(tree)) != tuple(template.shape):
            raise CheckpointError(f"{path} has shape {tuple(np.shape(tree))}, expected {tuple(template.shape)}")
        if isinstance(template, np.ndarray):
            return np.array(tree, dtype=template.dtype)
        return template.new_tensor(np.asarray(tree))
    return tuple(tree) if isinstance(template, tuple) else tree


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim")


def _strip(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {
            field.name: _strip(getattr(tree, field.name), f"{path}/{field.name}", arrays)
            for field in dataclasses.fields(tree)
        }
    if isinstance(tree, Mapping):
        return {str(key): _strip(value, f"{path}/{key}", arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_strip(value, f"{path}/{index}", arrays) for index, value in enumerate(tree)]
    if isinstance(tree, np.generic):
        return tree.item()
    if _is_array(tree):
        arrays[path] = tree if isinstance(tree, np.ndarray) else tree.detach().cpu().numpy()
        return {"@": path}
    return tree
