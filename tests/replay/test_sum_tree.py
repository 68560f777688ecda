"""The sum tree, in C and in NumPy, against a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core import native
from millstream.replay.tree import SumTree


@pytest.fixture(params=["c", "numpy"], autouse=True)
def way(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "LIBRARY", None)
    elif native.LIBRARY is None:
        pytest.skip("no compiler was there when Millstream was installed")


WEIGHTS = st.floats(0, 100).map(lambda weight: 0.0 if weight < 1e-3 else weight)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), leaves=st.integers(1, 40))
def test_it_is_a_list_with_running_sums(way, data, leaves):
    tree, plain = SumTree(leaves), np.zeros(leaves)
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            start = data.draw(st.integers(0, leaves))
            end = data.draw(st.integers(0, leaves))
            weight = data.draw(WEIGHTS)
            tree.fill(start, end, weight)
            plain[start:end] = weight
        else:
            at = np.array(data.draw(st.lists(st.integers(0, leaves - 1), min_size=1, max_size=8)))
            weights = np.array(data.draw(st.lists(WEIGHTS, min_size=len(at), max_size=len(at))))
            tree.put(at, weights)
            for leaf, weight in zip(at, weights, strict=True):
                plain[leaf] = weight
        np.testing.assert_array_equal(tree.leaves[:leaves], plain)
        assert tree.total == pytest.approx(plain.sum())
    if plain.sum() > 0:
        spots = np.concatenate([np.linspace(0, 1, 40, endpoint=False) * tree.total, [tree.total, tree.total * 1.01]])
        found, weights = tree.find(spots)
        np.testing.assert_array_equal(weights, plain[found])
        assert (weights > 0).all()
        sums = np.cumsum(plain)
        for spot, leaf in zip(spots[:40], found[:40], strict=True):
            assert sums[leaf] - plain[leaf] <= spot + 1e-9 * tree.total and spot < sums[leaf] + 1e-9 * tree.total


def test_all_leaves_at_once_is_the_same(way):
    weights = np.random.default_rng(0).random(16)
    one, other = SumTree(16), SumTree(16)
    one.leaves = weights
    other.put(np.arange(16), weights)
    np.testing.assert_allclose(one.nodes, other.nodes)
