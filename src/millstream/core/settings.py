"""Settings are declared once: type, default, bounds and meaning together. This reads, checks and describes them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
import os
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, cast

import numpy as np

from millstream.core.errors import ConfigError, UnknownName

T = TypeVar("T")
Applies = Literal["learner", "actor", "restart"]
"""Who takes a new value while a run is live; `restart` fields can only change in a fork."""


def setting(
    default: Any = dataclasses.MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[Any, ...] | None = None,
    applies: Applies = "restart",
) -> Any:
    """A field with bounds. `low` and `high` are allowed values, `above` is not."""
    metadata = {"low": low, "high": high, "above": above, "choices": choices, "applies": applies}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Setting:
    """One field as people see it."""

    name: str
    type: str
    default: Any
    meaning: str
    bounds: str
    applies: str


def describe(kind: type) -> list[Setting]:
    """Every field of a settings class, nested ones by their dotted names."""
    found = []
    meanings, hints = _meanings(kind), typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            found += [dataclasses.replace(inner, name=f"{field.name}.{inner.name}") for inner in describe(hint)]  # type: ignore[arg-type]
            continue
        default = field.default if field.default is not dataclasses.MISSING else None
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        applies = field.metadata.get("applies", "restart")
        found.append(
            Setting(field.name, _type_name(hint), default, meanings.get(field.name, ""), _bounds(field), applies)
        )
    return found


def parse(kind: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """Build a settings object; all that is wrong is said in one error."""
    problems: list[str] = []
    built = _build(kind, values, path, problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return built


def plain(value: Any) -> Any:
    """A settings object as plain values, fit for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value


def read_text(text: str) -> Any:
    """What a person typed after `key=`: JSON where it is JSON, otherwise the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "None": None}.get(text, text)


def _build(kind: type[T], values: Mapping[str, Any], path: str, problems: list[str]) -> T:
    if not isinstance(values, Mapping):
        problems.append(f"{path or 'the experiment'} should be a table of settings, got {values!r}")
        return cast(T, None)  # never seen: there are problems
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    built: dict[str, Any] = {}
    for name, value in values.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in fields:
            problems.append(str(UnknownName.of("setting", where, [f"{path}.{key}" if path else key for key in fields])))
        elif dataclasses.is_dataclass(hints[name]):
            built[name] = _build(hints[name], value, where, problems)
        else:
            built[name] = _check(fields[name], hints[name], value, where, problems)
    problems += [
        f"{path}.{name} must be given" if path else f"{name} must be given"
        for name, field in fields.items()
        if name not in values and field.default is field.default_factory is dataclasses.MISSING
    ]
    if problems:
        return cast(T, None)
    try:
        return kind(**built)
    except ValueError as error:  # a check of the class's own
        problems.append(str(error))
        return cast(T, None)


def _check(field: dataclasses.Field[Any], hint: Any, value: Any, where: str, problems: list[str]) -> Any:
    try:
        value = _coerce(hint, value.item() if isinstance(value, np.generic) else value)
    except _MISFIT:
        problems.append(f"{where} should be {_type_name(hint)}, got {value!r}")
        return value
    bounds = _bounds(field)
    if bounds and value is not None and not _within(field, value):
        problems.append(f"{where} should be {bounds}, got {value!r}")
    return value


def _within(field: dataclasses.Field[Any], value: Any) -> bool:
    low, high, above, choices = (field.metadata.get(key) for key in ("low", "high", "above", "choices"))
    values = value if isinstance(value, tuple) else (value,)
    if choices is not None:
        return all(item in choices for item in values)
    return all(
        (low is None or item >= low) and (high is None or item <= high) and (above is None or item > above)
        for item in values
    )


def _bounds(field: dataclasses.Field[Any]) -> str:
    low, high, above, choices = (field.metadata.get(key) for key in ("low", "high", "above", "choices"))
    if choices is not None:
        return "one of " + ", ".join(map(str, choices))
    parts = [f"at least {low:g}"] if low is not None else []
    parts += [f"above {above:g}"] if above is not None else []
    parts += [f"at most {high:g}"] if high is not None else []
    return " and ".join(parts)


_MISFIT = (TypeError, ValueError, OverflowError)


def _coerce(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments and (value is None or value == "none"):
            return None
        return _first_that_fits([inner for inner in arguments if inner is not type(None)], value)
    if origin is tuple:
        return tuple(_coerce(arguments[0], item) for item in _items(value))
    if origin is dict or hint is dict:
        if not isinstance(value, Mapping):
            raise TypeError(value)
        json.dumps(plain(value))  # what cannot be written down cannot be repeated
        return dict(value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(value)
        return value
    if hint is bool:
        return _boolean(value)
    if hint is int:
        return _whole(value)
    if hint is float:
        return _real(value)
    if hint is str and not isinstance(value, str):
        return os.fspath(value)
    return value


def _items(value: Any) -> list[Any]:
    """What a person wrote for a list: a list, `64,64`, or its only item."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",")]
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return [value]


def _first_that_fits(hints: list[Any], value: Any) -> Any:
    for hint in hints:
        try:
            return _coerce(hint, value)
        except _MISFIT:
            continue
    raise TypeError(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(value)
    number = value
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").replace("_", "").isdecimal()
        number = int(value) if digits else float(value)
    if not isinstance(number, int | float) or number != int(number):
        raise ValueError(value)
    return int(number)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(value)
    number = float(value)
    if math.isnan(number):
        raise ValueError(value)
    return number


def _type_name(hint: Any) -> str:
    if hint in (int, float, str, bool):
        return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if inner is type(None) else _type_name(inner) for inner in arguments)
    if origin is tuple:
        return f"a list, each {_type_name(arguments[0])}"
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    return "a table of plain values" if origin is dict or hint is dict else str(hint)


@cache
def _meanings(kind: type) -> dict[str, str]:
    """The text under each field, read from the source."""
    meanings: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(ancestor))).body[0]
        except (OSError, TypeError):
            continue  # a class without a source file has no texts to show
        assert isinstance(body, ast.ClassDef)
        for declared, text in zip(body.body, body.body[1:], strict=False):
            match declared, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                    meanings[name] = " ".join(meaning.split())
    return meanings
