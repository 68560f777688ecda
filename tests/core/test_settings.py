from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from millstream.agents.impala import ImpalaHyper
from millstream.agents.ppo import PPOHyper
from millstream.config import Experiment
from millstream.core.errors import ConfigError
from millstream.core.settings import describe, parse, plain, read_text, setting


@dataclass(frozen=True)
class Part:
    """A table inside."""

    width: int = setting(4, low=1, high=64)
    """How wide."""


@dataclass(frozen=True)
class Whole:
    """All kinds of settings."""

    count: int = setting(1, low=0, applies="learner")
    """How many,
    in words of two lines."""
    rate: float = setting(0.5, above=0, high=1)
    """How fast."""
    on: bool = False
    """Whether."""
    name: str = "x"
    """What it is called."""
    kind: str = setting("a", choices=("a", "b"))
    """Which."""
    mode: Literal["p", "q"] = "p"
    """How."""
    sizes: tuple[int, ...] = setting((8, 8), low=1)
    """How large each is."""
    names: tuple[str, ...] = ()
    """What they are called."""
    limit: float | None = None
    """Where it ends."""
    table: dict[str, Any] = setting({"k": 1})
    """Anything."""
    part: Part = field(default_factory=Part)


@dataclass(frozen=True)
class Demanding:
    """Has a field without default, and a check of its own."""

    wanted: int
    """Needed."""
    even: int = 0
    """Even."""

    def __post_init__(self) -> None:
        if self.even % 2:
            raise ValueError("even should be even")


def error(values: Any, kind: type = Whole) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(kind, values)
    return str(caught.value)


def problems(values: Any, kind: type = Whole) -> list[str]:
    return error(values, kind).split("; ")


def test_nothing_given_is_all_defaults() -> None:
    assert parse(Whole, {}) == Whole()


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("count", 3, 3), ("count", "3", 3), ("count", 1e3, 1000), ("count", "1_000", 1000), ("count", "2e3", 2000),
        ("count", np.int64(3), 3), ("count", "9007199254740993", 9007199254740993),
        ("rate", 1, 1.0), ("rate", "1e-3", 1e-3), ("rate", np.float32(0.5), 0.5),
        ("on", True, True), ("on", np.bool_(True), True), ("name", "text", "text"), ("name", Path("a/b"), "a/b"),
        ("kind", "b", "b"), ("mode", "q", "q"),
        ("sizes", [1, 2], (1, 2)), ("sizes", "64,32", (64, 32)), ("sizes", "64, 32", (64, 32)), ("sizes", 7, (7,)),
        ("sizes", [], ()), ("names", "a, b", ("a", "b")), ("names", ["a,b"], ("a,b",)),
        ("limit", None, None), ("limit", "none", None), ("limit", 3, 3.0), ("limit", "3", 3.0),
        ("limit", math.inf, math.inf),
        ("table", {"deep": {"er": [1, None]}}, {"deep": {"er": [1, None]}}), ("part", {"width": 9}, Part(9)),
    ],
)  # fmt: skip
def test_a_value_is_read_as_its_type(name: str, given: Any, read: Any) -> None:
    value = getattr(parse(Whole, {name: given}), name)
    assert value == read and type(value) is type(read)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("count", "many", "count should be a whole number, got 'many'"),
        ("count", 1.5, "count should be a whole number, got 1.5"),
        ("count", True, "count should be a whole number, got True"),
        ("count", None, "count should be a whole number, got None"),
        ("count", math.inf, "count should be a whole number, got inf"),
        ("count", "inf", "count should be a whole number, got 'inf'"),
        ("count", math.nan, "count should be a whole number, got nan"),
        ("count", -1, "count should be at least 0, got -1"),
        ("rate", 0, "rate should be above 0 and at most 1, got 0.0"),
        ("rate", 1.1, "rate should be above 0 and at most 1, got 1.1"),
        ("rate", math.nan, "rate should be a number, got nan"),
        ("rate", False, "rate should be a number, got False"),
        ("rate", 10**400, f"rate should be a number, got {10**400}"),
        ("rate", [1], "rate should be a number, got [1]"),
        ("on", 1, "on should be true or false, got 1"),
        ("on", "yes", "on should be true or false, got 'yes'"),
        ("name", 5, "name should be text, got 5"),
        ("name", None, "name should be text, got None"),
        ("kind", "c", "kind should be one of a, b, got 'c'"),
        ("mode", "r", "mode should be one of p, q, got 'r'"),
        ("sizes", [4, 0], "sizes should be at least 1, got (4, 0)"),
        ("sizes", "a,b", "sizes should be a list, each a whole number, got 'a,b'"),
        ("sizes", None, "sizes should be a list, each a whole number, got None"),
        ("names", None, "names should be a list, each text, got None"),
        ("names", {"a": 1}, "names should be a list, each text, got {'a': 1}"),
        ("names", True, "names should be a list, each text, got True"),
        ("limit", "far", "limit should be a number or none, got 'far'"),
        ("table", 4, "table should be a table of plain values, got 4"),
        ("part", 4, "part should be a table of settings, got 4"),
        ("part", None, "part should be a table of settings, got None"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_said_with_what_was_got(name: str, given: Any, said: str) -> None:
    assert problems({name: given}) == [said]


def test_arguments_that_cannot_be_written_down_are_refused() -> None:
    assert problems({"table": {"f": print}})[0].startswith("table should be a table of plain values")


def test_an_unknown_name_is_said_with_the_nearest() -> None:
    said = error({"cuont": 1})
    assert said.startswith("unknown setting 'cuont'") and "did you mean count" in said
    assert "part.width" in error({"part": {"widht": 1}})


@pytest.mark.parametrize("key", [1, None, True])
def test_a_name_that_is_no_text_is_unknown_too(key: Any) -> None:
    assert f"unknown setting '{key}'" in error({key: 1})


def test_all_that_is_wrong_is_said_in_one_error() -> None:
    said = error({"count": "x", "rate": 2, "part": {"width": 0, "w": 1}, "z": 1})
    assert all(name in said for name in ("count should", "rate should", "part.width should", "'part.w'", "'z'"))
    assert "\n" not in said


@pytest.mark.parametrize("values", [None, 5, "text", [1]])
def test_an_experiment_that_is_no_table_is_refused(values: Any) -> None:
    assert problems(values) == [f"the experiment should be a table of settings, got {values!r}"]
    assert problems(values, Demanding) == [f"the experiment should be a table of settings, got {values!r}"]


def test_a_field_without_default_must_be_given() -> None:
    assert problems({}, Demanding) == ["wanted must be given"]
    assert parse(Demanding, {"wanted": 3}) == Demanding(3)


def test_a_check_of_the_class_is_a_line_too_and_never_hides_the_others() -> None:
    assert problems({"wanted": 1, "even": 3}, Demanding) == ["even should be even"]
    assert problems({"wanted": 1, "even": "x"}, Demanding) == ["even should be a whole number, got 'x'"]


def test_what_was_parsed_is_frozen_and_shares_no_default() -> None:
    one, two = parse(Whole, {}), parse(Whole, {})
    with pytest.raises(FrozenInstanceError):
        one.count = 5  # type: ignore[misc]
    assert one.table == two.table and one.table is not two.table


@pytest.mark.parametrize("kind", [Whole, Experiment, PPOHyper, ImpalaHyper])
def test_plain_values_make_the_same_settings_again(kind: type) -> None:
    text = json.dumps(plain(kind()))
    assert parse(kind, json.loads(text)) == kind()


def test_numbers_of_numpy_become_plain() -> None:
    assert json.dumps(plain(parse(Whole, {"table": {"n": np.int64(3)}}))["table"]) == '{"n": 3}'


@pytest.mark.parametrize("kind", [Whole, Experiment, PPOHyper, ImpalaHyper])
def test_every_setting_has_a_meaning_a_type_and_a_default(kind: type) -> None:
    described = describe(kind)
    assert described and len({each.name for each in described}) == len(described)
    for each in described:
        assert each.meaning.endswith("."), f"{each.name} does not say what it means"
        assert each.type and "<class" not in each.type
        assert each.applies in ("learner", "actor", "restart")


def test_a_description_says_all_that_the_declaration_says() -> None:
    found = {each.name: each for each in describe(Whole)}
    assert (found["count"].meaning, found["count"].bounds, found["count"].applies) == (
        "How many, in words of two lines.", "at least 0", "learner",
    )  # fmt: skip
    assert (found["rate"].bounds, found["rate"].default) == ("above 0 and at most 1", 0.5)
    assert found["kind"].bounds == "one of a, b" and found["limit"].type == "a number or none"
    assert found["part.width"].bounds == "at least 1 and at most 64" and found["table"].default == {"k": 1}


def test_a_meaning_is_inherited_and_can_be_said_anew() -> None:
    found = {each.name: each for each in describe(PPOHyper)}
    assert found["learning_rate"].meaning == "Step size of Adam." and found["epochs"].default == 4
    assert found["clip"].bounds == "above 0 and at most 10"


@pytest.mark.parametrize(
    ("text", "read"),
    [("3", 3), ("1e-3", 1e-3), ("true", True), ("True", True), ("False", False), ("None", None), ("null", None),
     ("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}), ("CartPole-v1", "CartPole-v1"), ("", ""), ("64,64", "64,64"),
     ("[" * 100_000, "[" * 100_000)],
)  # fmt: skip
def test_what_a_person_types_is_json_where_it_can_be(text: str, read: Any) -> None:
    assert read_text(text) == read
