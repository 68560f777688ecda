"""The passes in C against those in NumPy: one perceptron, two ways."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import numpy as np
import pytest

from millstream.agents.networks.mlp import Mlp, NumPyPasses
from millstream.core import native
from tests.agents.conftest import FOLDER, runnable

pytestmark = pytest.mark.skipif(native.LIBRARY is None, reason="no compiler was there when Millstream was installed")


def pair(monkeypatch, *shape, **settings):
    """The same network twice: with C and without."""
    with_c = Mlp(*shape, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(native, "LIBRARY", None)
        without = Mlp(*shape, **settings)
    assert isinstance(without._passes, NumPyPasses) and not isinstance(with_c._passes, NumPyPasses)
    return with_c, without


def arrays(network, rows, width, outputs, seed=0):
    rng = np.random.default_rng(seed)
    weights = network.init(rng) + rng.normal(0, 0.2, network.size).astype(np.float32)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    back = {"policy": rng.normal(size=(rows, outputs)), "value": rng.normal(size=rows)}
    return weights, x, {name: array.astype(np.float32) for name, array in back.items()}


def both_ways(network, weights, x, back):
    outputs, tape = network.forward(weights, {"vector": x})
    found = {name: array.copy() for name, array in outputs.items()}
    found["gradient"] = network.backward(tape, back)
    _, tape = network.forward(weights, {"vector": x})  # a way back uses the tape up
    return found | {"slopes": network.slopes(tape, back)}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        scale = 1 + np.abs(other[name]).max(initial=0)
        np.testing.assert_allclose(one[name] / scale, other[name] / scale, atol=3e-6, err_msg=name)


@pytest.mark.parametrize("hidden", [(64, 64), (1,), (5,), (67, 5), (16, 1, 33), (128, 256), (6, 6, 6, 6)], ids=str)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("shared", [False, True])
def test_both_ways_equal_those_of_numpy(library, monkeypatch, hidden, activation, shared):
    for width, outputs, rows in ((4, 2, 70), (1, 1, 1), (13, 7, 3)):
        with_c, without = pair(monkeypatch, width, outputs, 0, hidden, activation, shared)
        given = arrays(with_c, rows, width, outputs)
        assert_equal(both_ways(with_c, *given), both_ways(without, *given))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 6, 7, 63, 64, 65, 128, 131, 300])
def test_any_number_of_rows_will_do(library, monkeypatch, rows):
    with_c, without = pair(monkeypatch, 3, 2, 0, (20, 9))
    given = arrays(with_c, rows, 3, 2)
    assert_equal(both_ways(with_c, *given), both_ways(without, *given))


def test_arrays_may_lie_in_any_way(library):
    network = Mlp(4, 3, 0, (8, 8))
    weights, x, back = arrays(network, 30, 4, 3)
    expected = both_ways(network, weights, x, back)
    strided = np.zeros((60, 8), np.float32)
    strided[::2, 1::2] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    apart = np.zeros((network.size, 2), np.float32)
    apart[:, 0] = weights
    for other in (x.astype(np.float64), np.asfortranarray(x), strided[::2, 1::2], x[::-1].copy()[::-1], fixed):
        assert_equal(both_ways(network, weights, other, back), expected)
    for other in (weights.astype(np.float64), apart[:, 0]):
        assert_equal(both_ways(network, other, x, back), expected)
    for policy in (np.asfortranarray(back["policy"]), back["policy"].astype(np.float64), back["policy"][::-1, ::-1].copy()[::-1, ::-1]):  # fmt: skip # noqa: E501
        value = np.repeat(back["value"], 2)[::2]
        assert_equal(both_ways(network, weights, x, {"policy": policy, "value": value}), expected)


def test_weights_that_have_to_be_copied_are_copied_each_time(library):
    network = Mlp(4, 2, 0, (8,))
    weights, x, _ = arrays(network, 5, 4, 2)
    doubles = weights.astype(np.float64)
    before = network.forward(doubles, {"vector": x})[0]["policy"].copy()
    doubles *= 2
    assert not np.allclose(before, network.forward(doubles, {"vector": x})[0]["policy"])


def test_an_array_of_another_shape_is_refused_before_it_is_read(library):
    network = Mlp(4, 2, 0, (8,))
    weights, x, back = arrays(network, 5, 4, 2)
    _, tape = network.forward(weights, {"vector": x})
    for wrong in (x[:, :3], x[:, :1], x[0]):
        with pytest.raises(ValueError, match="expected an array"):
            network.forward(weights, {"vector": wrong})
    with pytest.raises(ValueError, match="expected an array"):
        network.forward(weights[:-1], {"vector": x})
    for name in back:
        with pytest.raises(ValueError, match="expected an array"):
            network.backward(tape, back | {name: back[name][:-1]})
        with pytest.raises(ValueError, match="expected an array"):
            network.slopes(tape, back | {name: back[name][:-1]})


@pytest.mark.parametrize("hidden", [(64, 64), (5, 67), (1,), (16, 128, 3)], ids=str)
def test_nothing_is_touched_outside_the_given_arrays_and_no_leftovers_are_read(library, hidden):
    for towers, rows, outputs in itertools.product((1, 2), (1, 64, 70), (1, 3)):
        widths = (7, *hidden)
        network = Mlp(7, outputs, 0, hidden, shared=towers == 1)
        weights, x, back = arrays(network, rows, 7, outputs)
        expected = both_ways(network, weights, x, back)
        net = (ctypes.c_long * (4 + len(widths)))(towers, outputs, 0, len(hidden), *widths)
        room = library.mill_mlp_room(ctypes.addressof(net), rows)
        guarded = [
            np.full(size + 200, np.nan, np.float32) for size in (room, outputs * rows, rows, network.size, 7 * rows)
        ]
        area, policy, value, gradient, slopes = (array.ctypes.data + 400 for array in guarded)
        d_policy, d_value = np.ascontiguousarray(back["policy"].T), back["value"]
        about = (ctypes.addressof(net), rows, weights.ctypes.data, x.ctypes.data, area)
        library.mill_mlp_forward(*about, policy, value)
        library.mill_mlp_backward(*about, d_policy.ctypes.data, d_value.ctypes.data, gradient)
        library.mill_mlp_slopes(*about, d_policy.ctypes.data, d_value.ctypes.data, slopes)
        assert all(np.isnan(array[:100]).all() and np.isnan(array[-100:]).all() for array in guarded)
        assert np.array_equal(guarded[1][100:-100].reshape(outputs, rows).T, expected["policy"])
        assert np.array_equal(guarded[3][100:-100], expected["gradient"])
        assert np.array_equal(guarded[4][100:-100].reshape(rows, 7), expected["slopes"])


def test_a_tower_that_does_not_matter_is_left_out_on_the_way_to_the_inputs(library, monkeypatch):
    with_c, without = pair(monkeypatch, 5, 2, 0, (20, 9))
    weights, x, back = arrays(with_c, 70, 5, 2)
    for name in back:
        given = weights, x, back | {name: np.zeros_like(back[name])}
        found = both_ways(with_c, *given)
        assert_equal(found, both_ways(without, *given))
        assert found["slopes"].any()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows", [6, 64, 200])
def test_rows_that_do_not_matter_are_left_out_on_the_way_to_the_inputs(library, monkeypatch, shared, rows):
    """As where of two critics the lesser counts, and which that is differs from row to row."""
    with_c, without = pair(monkeypatch, 5, 1, 0, (20, 9), shared=shared)
    weights, x, back = arrays(with_c, rows, 5, 1)
    lesser = np.random.default_rng(1).random(rows) < 0.4
    back["policy"][~lesser] = 0
    back["value"][lesser] = 0
    back["value"][rows // 2 :] = 0
    found = both_ways(with_c, weights, x, back)
    assert_equal(found, both_ways(without, weights, x, back))
    silent = (back["policy"][:, 0] == 0) & (back["value"] == 0)
    assert silent.any() and not found["slopes"][silent].any() and found["slopes"][~silent].any(axis=1).all()


def test_what_a_row_gives_does_not_depend_on_the_others(library):
    network = Mlp(4, 2)
    weights, x, _ = arrays(network, 150, 4, 2)
    together = {name: array.copy() for name, array in network.forward(weights, {"vector": x})[0].items()}
    for first, last in ((0, 1), (3, 10), (60, 70), (149, 150)):
        alone, _ = network.forward(weights, {"vector": x[first:last]})
        assert all(np.array_equal(alone[name], together[name][first:last]) for name in alone)


def bent(line):
    """tanh as the network computes it: one input, one unit, and an output that repeats it."""
    network = Mlp(1, 1, 0, (1,), shared=True)
    named = network.names(weights := np.zeros(network.size, np.float32))
    named["hidden.0.weight"][...] = named["policy.weight"][...] = 1
    return network.forward(weights, {"vector": line.astype(np.float32)[:, None]})[0]["policy"][:, 0]


def test_tanh_holds_over_the_whole_line(library):
    line = np.concatenate([np.linspace(-20, 20, 40_000), np.geomspace(1e-30, 1e30, 1_000), [np.inf, -np.inf, 0.0]])
    found = bent(line)
    np.testing.assert_allclose(found, np.tanh(line), atol=5e-7, rtol=5e-7)
    assert np.abs(found).max() <= 1


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_what_is_not_a_number_stays_so_and_spoils_only_its_row(library, activation):
    network = Mlp(4, 2, 0, (10, 10), activation)
    weights, x, back = arrays(network, 20, 4, 2)
    x[3, 1] = np.nan
    found = both_ways(network, weights, x, back)
    for name in ("policy", "value"):
        assert np.isnan(found[name][3]).all() and np.isfinite(np.delete(found[name], 3, axis=0)).all()
    assert np.isnan(network.names(found["gradient"])["policy.weight"]).all()
    x[3, 1], back["value"][5] = 0, np.nan
    named = network.names(both_ways(network, weights, x, back)["gradient"])
    assert np.isnan(named["hidden.0.weight"][1]).all() and np.isfinite(named["hidden.0.weight"][0]).all()


def test_very_wide_layers_are_left_to_numpy(library):
    assert isinstance(Mlp(4, 2, 0, (64, 513))._passes, NumPyPasses)


def test_a_folder_gives_the_best_that_it_holds_and_the_processor_can_run(tmp_path):
    assert native.library(tmp_path) is None
    for name in runnable():
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
        assert Path(native.library(tmp_path)._name).name == name
