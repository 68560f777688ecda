"""tanh in C and in NumPy: one function, two ways."""

import numpy as np
import pytest

from millstream.agents.networks import activations
from millstream.agents.networks.mlp import Mlp

compiled = pytest.mark.skipif(
    activations.COMPILED_TANH is None, reason="no compiler was there when Millstream was installed"
)


def layer(towers, rows, width, seed=0):
    return np.random.default_rng(seed).normal(0, 3, (towers, rows, width)).astype(np.float32)


@compiled
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 7, 16), (2, 64, 64), (2, 9, 67)])
def test_the_compiled_tanh_is_tanh(shape):
    found, bias = layer(*shape), layer(shape[0], 1, shape[2], seed=1)
    true = np.tanh(found.astype(np.float64) + bias)
    activations.COMPILED_TANH.bend(found, bias)
    np.testing.assert_allclose(found, true, atol=5e-7)


@compiled
def test_it_holds_over_the_whole_line():
    line = np.concatenate([np.linspace(-20, 20, 40_000), np.geomspace(1e-30, 1e30, 1_000), [np.inf, -np.inf, 0.0]])
    found = line.astype(np.float32).reshape(1, 1, -1)
    true = np.tanh(found.astype(np.float64))
    activations.COMPILED_TANH.bend(found, np.zeros((1, 1, line.size), np.float32))
    np.testing.assert_allclose(found, true, atol=5e-7, rtol=5e-7)
    assert np.abs(found).max() <= 1


@compiled
def test_what_is_not_a_number_stays_so():
    found = np.array([[[np.nan, 1.0]]], np.float32)
    activations.COMPILED_TANH.bend(found, np.zeros((1, 1, 2), np.float32))
    assert np.isnan(found[0, 0, 0]) and found[0, 0, 1] == pytest.approx(np.tanh(1.0))


@compiled
def test_the_way_back_is_that_of_numpy():
    given, delta = np.tanh(layer(2, 33, 19)), layer(2, 33, 19, seed=1)
    plain, mine = delta.copy(), delta.copy()
    activations.COMPILED_TANH.back(mine, given.copy())
    activations.TANH.back(plain, given.copy())
    np.testing.assert_allclose(mine, plain, atol=1e-6)


@compiled
def test_a_network_without_a_compiler_gives_the_same(monkeypatch):
    with_c = Mlp(4, 2)
    monkeypatch.setattr(activations, "COMPILED_TANH", None)
    without = Mlp(4, 2)
    weights = with_c.init(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    gradients = {"policy": np.ones((50, 2), np.float32), "value": np.ones(50, np.float32)}
    found = []
    for network in (with_c, without):
        outputs, tape = network.forward(weights, {"vector": x})
        found.append((outputs["value"].copy(), network.backward(tape, gradients)))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=2e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=2e-4)


def test_where_nothing_was_compiled_there_is_none(tmp_path):
    assert activations.compiled(tmp_path / "libactivations.so") is None
