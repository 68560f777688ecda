"""Trees of dataclasses, dictionaries, lists, arrays and plain values: taken apart for files, put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.errors import CheckpointError

_ARRAY = "@"


def flatten(tree: Any, path: str = "") -> tuple[dict[str, np.ndarray], Any]:
    """The arrays of a tree by their path, and the tree with each array replaced by `{"@": path}`: fits JSON."""
    arrays: dict[str, np.ndarray] = {}
    return arrays, _strip(tree, path, arrays)


def unflatten(arrays: Mapping[str, np.ndarray], skeleton: Any) -> Any:
    """The inverse of `flatten`; dataclasses come back as dictionaries, tuples as lists."""
    if isinstance(skeleton, Mapping):
        if _ARRAY in skeleton:
            try:
                return arrays[skeleton[_ARRAY]]
            except KeyError:
                raise CheckpointError(f"the array {skeleton[_ARRAY]!r} is missing") from None
        return {key: unflatten(arrays, value) for key, value in skeleton.items()}
    if isinstance(skeleton, list):
        return [unflatten(arrays, value) for value in skeleton]
    return skeleton


def rebuild(template: Any, tree: Any, path: str = "state") -> Any:
    """A tree of the template's types from one of plain dictionaries; shapes must agree, devices follow the template.

    A dictionary or a list has the items that were saved, whatever the template has gathered.
    """
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        if not isinstance(tree, Mapping):
            raise CheckpointError(f"{path} should be a {type(template).__name__}, got {type(tree).__name__}")
        names = [field.name for field in dataclasses.fields(template)]
        missing = [name for name in names if name not in tree]
        if missing:
            raise CheckpointError(f"{path} lacks {', '.join(missing)}")
        values = {name: rebuild(getattr(template, name), tree[name], f"{path}.{name}") for name in names}
        return type(template)(**values)
    if isinstance(template, dict):
        if not isinstance(tree, Mapping):
            raise CheckpointError(f"{path} should be a table, got {type(tree).__name__}")
        return {key: rebuild(template.get(key), value, f"{path}.{key}") for key, value in tree.items()}
    if isinstance(template, np.generic):
        return type(template)(tree)
    if _is_array(template):
        if tree is None or tuple(np.shape(tree)) != tuple(template.shape):
            raise CheckpointError(f"{path} has shape {tuple(np.shape(tree))}, expected {tuple(template.shape)}")
        if isinstance(template, np.ndarray):
            return np.array(tree, dtype=template.dtype)
        return template.new_tensor(np.asarray(tree))
    if isinstance(template, list | tuple):
        return _rebuild_items(template, tree, path)
    return tree


def _rebuild_items(template: list[Any] | tuple[Any, ...], tree: Any, path: str) -> Any:
    """As many items as were saved; those that the template has, in its types."""
    if not isinstance(tree, list | tuple):
        raise CheckpointError(f"{path} should be a list, got {type(tree).__name__}")
    patterns = [*template, *[None] * len(tree)]
    items = [rebuild(patterns[index], value, f"{path}.{index}") for index, value in enumerate(tree)]
    return type(template)(*items) if hasattr(template, "_fields") else type(template)(items)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim")


def _strip(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        tree = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    if isinstance(tree, Mapping):
        if not all(isinstance(key, str) and key != _ARRAY for key in tree):
            raise CheckpointError(f"the keys of {path or 'a tree'} should be text other than '@', got {[*tree]}")
        return {key: _strip(value, _join(path, key), arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_strip(value, _join(path, index), arrays) for index, value in enumerate(tree)]
    if isinstance(tree, np.generic):
        return tree.item()
    if _is_array(tree):
        while path in arrays:  # {"a/b": ...} beside {"a": {"b": ...}}
            path += "'"
        arrays[path] = tree if isinstance(tree, np.ndarray) else tree.detach().cpu().numpy()
        return {_ARRAY: path}
    if not isinstance(tree, str | int | float | bool | None):
        raise CheckpointError(f"{path or 'a tree'} is a {type(tree).__name__}; files hold arrays and plain values")
    return tree


def _join(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)
