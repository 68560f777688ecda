"""The perceptron, in C and in NumPy: its way back against finite differences and autograd."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from millstream.agents.networks.mlp import Mlp, orthogonal
from millstream.core import native
from millstream.core.errors import ConfigError
from tests.agents.written_out import mlp_outputs

shapes = pytest.mark.parametrize(
    ("activation", "shared", "spread", "hidden"),
    [
        ("tanh", False, 0, (8, 7)),
        ("tanh", True, 2, (8, 7)),
        ("relu", False, 2, (8, 7)),
        ("relu", True, 0, (8, 7)),
        ("tanh", False, 2, (6,)),
        ("relu", False, 0, (5, 6, 7)),
    ],
)


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def passes(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "LIBRARY", None)
    elif native.LIBRARY is None:
        pytest.skip("no compiler was there when Millstream was installed")


def case(activation, shared, spread, hidden, rows=9, seed=0):
    network = Mlp(4, 2, spread, hidden, activation, shared)
    rng = np.random.default_rng(seed)
    weights = network.init(rng) + rng.normal(0, 0.1, network.size).astype(np.float32)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    gradients = {"policy": rng.normal(size=(rows, 2)).astype(np.float32), "value": rng.normal(size=rows).astype(np.float32)}  # fmt: skip # noqa: E501
    if spread:
        gradients["log_std"] = rng.normal(size=spread).astype(np.float32)
    return network, weights, x, gradients


def by_autograd(network, weights, x, gradients):
    flat = torch.tensor(weights, requires_grad=True)
    outputs = mlp_outputs(network, flat, torch.tensor(x))
    loss = sum((outputs[name] * torch.tensor(gradient)).sum() for name, gradient in gradients.items())
    return torch.autograd.grad(loss, flat)[0].numpy()


@shapes
def test_outputs_and_gradients_equal_those_of_autograd(activation, shared, spread, hidden):
    network, weights, x, gradients = case(activation, shared, spread, hidden)
    outputs, tape = network.forward(weights, {"vector": x})
    expected = mlp_outputs(network, torch.tensor(weights), torch.tensor(x))
    for name, array in expected.items():
        assert np.allclose(outputs[name], array, atol=1e-5), name
    assert np.allclose(network.backward(tape, gradients), by_autograd(network, weights, x, gradients), atol=1e-4)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients_equal_finite_differences(shared):
    network, weights, x, gradients = case("tanh", shared, 2, (5, 4), rows=3)

    def loss(flat):
        outputs, _ = network.forward(flat, {"vector": x})
        return sum(float(np.sum(outputs[name].astype(np.float64) * gradients[name])) for name in gradients)

    _, tape = network.forward(weights, {"vector": x})
    found = network.backward(tape, gradients)
    for index in range(network.size):
        up, down = weights.copy(), weights.copy()
        up[index] += 1e-2
        down[index] -= 1e-2
        assert (loss(up) - loss(down)) / 2e-2 == pytest.approx(found[index], abs=5e-3)


def test_threads_at_once_get_what_they_would_get_alone():
    network, weights, _, _ = case("tanh", False, 0, (32, 32))
    rng = np.random.default_rng(1)
    work = [(rng.normal(size=(rows, 4)).astype(np.float32), rows) for rows in (64, 64, 33, 64) * 25]

    def gradient(item):
        x, rows = item
        outputs, tape = network.forward(weights, {"vector": x})
        back = {"policy": outputs["policy"].copy(), "value": np.ones(rows, np.float32)}
        return network.backward(tape, back)

    alone = [gradient(item) for item in work]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(gradient, work))
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


def test_towers_apart_do_not_touch_each_other_and_shared_ones_do():
    for shared, touched in ((False, False), (True, True)):
        network, weights, x, gradients = case("tanh", shared, 0, (8, 7))
        _, tape = network.forward(weights, {"vector": x})
        only_value = {"policy": np.zeros_like(gradients["policy"]), "value": gradients["value"]}
        hidden = network.names(network.backward(tape, only_value))["hidden.0.weight"]
        assert np.abs(hidden[-1]).max() > 0
        assert bool(np.abs(hidden[0]).max() > 0) is touched


def test_names_are_views_that_cover_the_flat_vector_once():
    network, weights, _, _ = case("tanh", False, 2, (8, 7))
    flat = np.zeros(network.size)
    for view in network.names(flat).values():
        view += 1
    assert (flat == 1).all()
    assert sum(view.size for view in network.names(weights).values()) == network.size == len(weights)


def test_weights_changed_in_place_are_seen():
    network, weights, x, _ = case("tanh", False, 0, (8, 7))
    before = network.forward(weights, {"vector": x})[0]["policy"].copy()
    weights *= 2
    assert not np.allclose(before, network.forward(weights, {"vector": x})[0]["policy"])


def test_fresh_weights_are_orthogonal_repeatable_and_have_no_opinion():
    network = Mlp(4, 3, 0, (64, 64))
    weights = network.init(np.random.default_rng(5))
    named = network.names(weights)
    tower = named["hidden.1.weight"][0]
    assert np.allclose(tower.T @ tower, 2 * np.eye(64), atol=1e-4)
    assert not np.array_equal(tower, named["hidden.1.weight"][1])
    assert np.linalg.norm(named["policy.weight"], axis=0) == pytest.approx(0.01)
    assert np.linalg.norm(named["value.weight"]) == pytest.approx(1)
    assert not any(np.any(view) for name, view in named.items() if name.endswith("bias"))
    assert np.array_equal(weights, network.init(np.random.default_rng(5)))
    assert weights.dtype == np.float32


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (5, 5)])
def test_orthogonal_matrices_stand_at_right_angles(shape):
    matrix = orthogonal(shape, 1.5, np.random.default_rng(0))
    product = matrix @ matrix.T if shape[0] <= shape[1] else matrix.T @ matrix
    assert np.allclose(product, 2.25 * np.eye(min(shape)), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"activation": "gelu"}, "tanh or relu"),
        ({"hidden": ()}, "one layer"),
        ({"hidden": (8, 0)}, "at least 1"),
    ],
)
def test_a_shape_that_cannot_be_built_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Mlp(4, 2, **settings)
