from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import CheckpointError
from millstream.core.tree import flatten, rebuild, unflatten

arrays = st.builds(
    lambda shape, dtype: np.arange(int(np.prod(shape))).astype(dtype).reshape(shape),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(["float32", "int64", "bool", "uint8"]),
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.recursive(
    arrays | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/.'", max_size=3), inner, max_size=3),
    max_leaves=12,
)


def through_a_file(tree: Any) -> Any:
    flat, skeleton = flatten(tree)
    return unflatten(flat, json.loads(json.dumps(skeleton)))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(trees)
def test_any_tree_comes_back_from_arrays_and_json(tree: Any) -> None:
    assert same(through_a_file(tree), tree)


def test_names_with_slashes_do_not_cover_one_another() -> None:
    tree = {"a": {"b": np.array([1])}, "a/b": np.array([2]), "a/b'": np.array([3])}
    back = through_a_file(tree)
    assert (back["a"]["b"], back["a/b"], back["a/b'"]) == (1, 2, 3)


@pytest.mark.parametrize("tree", [{"x": object()}, {"x": {1, 2}}, {"x": b"bytes"}, {3: 1}, {"@": 1}, {"x": {None: 1}}])
def test_what_a_file_cannot_hold_is_refused_when_saving_and_not_when_it_is_needed(tree: Any) -> None:
    with pytest.raises(CheckpointError):
        flatten(tree)


def test_an_array_that_is_missing_is_named() -> None:
    with pytest.raises(CheckpointError, match="state/w"):
        unflatten({}, {"w": {"@": "state/w"}})


Pair = namedtuple("Pair", "left right")


@dataclass
class Inner:
    mean: np.ndarray
    count: float = 0.0


@dataclass
class State:
    weights: np.ndarray
    inner: Inner
    scalar: np.float32
    named: dict[str, Inner] = field(default_factory=dict)
    layers: list[Inner] = field(default_factory=list)
    shape: tuple[int, ...] = (0, 0)
    pair: Any = None
    nothing: Any = None


def state(size: int, value: float) -> State:
    inner = Inner(np.array(value, np.float64), value)
    return State(
        np.full(size, value, np.float32), inner, np.float32(value), {"a": inner}, [inner], (3, 4), Pair(1, np.ones(2))
    )


def test_a_state_is_rebuilt_in_its_own_types() -> None:
    built = rebuild(state(3, 0), through_a_file(state(3, 2.5)))
    assert isinstance(built, State) and isinstance(built.named["a"], Inner) and isinstance(built.layers[0], Inner)
    assert built.weights.tolist() == [2.5] * 3 and built.weights.dtype == np.float32
    assert type(built.scalar) is np.float32 and built.scalar == 2.5
    assert built.inner.mean.shape == () and built.inner.mean == 2.5
    assert built.shape == (3, 4) and isinstance(built.pair, Pair) and built.pair.right.tolist() == [1, 1]


def test_a_rebuilt_state_shares_nothing_with_what_was_read() -> None:
    read = through_a_file(state(3, 1))
    built = rebuild(state(3, 0), read)
    built.weights += 1
    assert read["weights"].tolist() == [1, 1, 1]


def test_what_came_up_while_learning_comes_back_too() -> None:
    learnt = state(3, 1)
    learnt.named["b"] = Inner(np.zeros(2))
    built = rebuild(state(3, 0), through_a_file(learnt))
    assert built.named["b"]["mean"].tolist() == [0, 0]


def broken(**changes: Any) -> dict[str, Any]:
    return {**through_a_file(state(3, 1)), **changes}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (broken(weights=np.zeros(4)), r"state.weights has shape \(4,\), expected \(3,\)"),
        (broken(weights=None), "state.weights"),
        (broken(inner={"mean": None, "count": 1}), "state.inner.mean"),
        (broken(inner={"count": 1}), "state.inner lacks mean"),
        (broken(inner=5), "state.inner should be a Inner"),
        (broken(named=[1]), "state.named should be a table"),
        (broken(layers={"a": 1}), "state.layers should be a list"),
        ([], "state should be a State"),
    ],
)  # fmt: skip
def test_a_tree_of_another_kind_is_refused_by_name(tree: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        rebuild(state(3, 0), tree)


def test_tensors_come_back_where_the_template_has_them() -> None:
    torch = pytest.importorskip("torch")
    template = {"w": torch.zeros(2, dtype=torch.float64)}
    built = rebuild(template, through_a_file({"w": torch.ones(2, requires_grad=True)}))
    assert built["w"].dtype == torch.float64 and built["w"].tolist() == [1, 1]
