"""What every network promises, in NumPy or torch, with images, memory or neither."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.agents.networks.registry import _ATTRIBUTES
from millstream.core.codec import decode_tensors, encode_tensors
from tests.agents.rollouts import SPECS, agent_for, observe

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
ROWS = 4


@pytest.fixture(params=["mlp", "torch", "lstm"])
def kind(request):
    return request.param


@pytest.fixture(params=["discrete", "continuous", "image", "dictionary", "stacked"])
def agent(request, kind):
    return agent_for("ppo", request.param, kind)


@pytest.fixture
def network(agent):
    return agent.network


@pytest.fixture
def weights(network):
    rng = np.random.default_rng(0)
    return network.init(rng) + network.place(rng.normal(0, 0.05, network.size).astype(np.float32))


def inputs_of(agent, seed=0):
    """One step of inputs, NumPy."""
    rng = np.random.default_rng(seed)
    features = agent.features
    inputs, _ = features.observe(observe(agent.spec, ROWS, rng), features.carry(ROWS), np.ones(ROWS, bool), {})
    return inputs


def forward(network, weights, inputs):
    """The learner's way: rows, or sequences of one step."""
    placed = {name: network.place(array) for name, array in inputs.items()}
    if not network.recurrent:
        return network.forward(weights, placed)
    carry = {name: network.place(array) for name, array in network.carry(ROWS).items()}
    first = network.place(np.zeros((ROWS, 1), bool))
    return network.forward(weights, {name: array[:, None] for name, array in placed.items()}, carry, first)


def some_gradients(outputs, scale=1.0):
    rng = np.random.default_rng(9)
    found = {}
    for name, output in outputs.items():
        noise = (scale * rng.normal(size=tuple(output.shape))).astype(np.float32)
        found[name] = noise if isinstance(output, np.ndarray) else torch.as_tensor(noise)
    return found


def test_it_has_everything_that_an_algorithm_asks_for(network):
    assert all(hasattr(network, attribute) for attribute in _ATTRIBUTES)


def test_weights_are_one_flat_vector_that_the_generator_decides(network):
    weights = network.init(np.random.default_rng(1))
    assert tuple(weights.shape) == (network.size,)
    assert "float32" in str(weights.dtype)
    assert np.array_equal(np.asarray(weights), np.asarray(network.init(np.random.default_rng(1))))
    assert not np.array_equal(np.asarray(weights), np.asarray(network.init(np.random.default_rng(2))))


def test_named_weights_put_together_are_the_flat_vector(network, weights):
    flat = np.concatenate([np.asarray(view).reshape(-1) for view in network.names(weights).values()])
    assert np.array_equal(flat, np.asarray(weights))


def test_named_weights_survive_a_file(network, weights):
    named = {name: np.asarray(view) for name, view in network.names(weights).items()}
    back, _ = decode_tensors(encode_tensors(named))
    assert list(back) == list(named)
    assert all(np.array_equal(back[name], array) for name, array in named.items())


def test_acting_is_numpy_in_and_numpy_out(agent, network, weights):
    plain = np.asarray(weights).copy()
    outputs, carry = network.act(plain, inputs_of(agent), network.carry(ROWS), np.ones(ROWS, bool))
    wanted = {"policy": (ROWS, agent.distribution.width), "value": (ROWS,)}
    if agent.distribution.spread:
        wanted["log_std"] = (agent.distribution.spread,)
    assert {name: array.shape for name, array in outputs.items()} == wanted
    for array in (*outputs.values(), *carry.values()):
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float32
    assert {name: array.shape for name, array in carry.items()} == {
        name: array.shape for name, array in network.carry(ROWS).items()
    }
    assert np.array_equal(plain, np.asarray(weights)), "weights are only read"


def test_the_learner_sees_what_the_actor_saw(agent, network, weights):
    inputs = inputs_of(agent)
    acted, _ = network.act(np.asarray(weights).copy(), inputs, network.carry(ROWS), np.zeros(ROWS, bool))
    acted = {name: array.copy() for name, array in acted.items()}
    outputs, _ = forward(network, weights, inputs)
    assert set(outputs) == set(acted)
    for name, array in acted.items():
        assert np.allclose(outputs[name], array, atol=1e-6), name


def test_slots_do_not_see_each_other(agent, network, weights):
    inputs, carry, first = inputs_of(agent), network.carry(ROWS), np.zeros(ROWS, bool)
    all_at_once = network.act(weights, inputs, carry, first)[0]["policy"].copy()
    for row in range(ROWS):
        one = {name: array[row : row + 1] for name, array in inputs.items()}
        alone, _ = network.act(weights, one, network.carry(1), first[:1])
        assert np.allclose(alone["policy"][0], all_at_once[row], atol=1e-6)


def test_gradients_are_the_slope_along_any_direction(agent, network, weights):
    inputs = inputs_of(agent)
    outputs, tape = forward(network, weights, inputs)
    back = some_gradients(outputs)
    gradient = network.backward(tape, back)
    assert tuple(gradient.shape) == (network.size,)
    assert type(gradient) is type(weights)
    direction = np.random.default_rng(3).normal(size=network.size)
    direction = network.place((direction / np.linalg.norm(direction)).astype(np.float32))

    def loss(flat):
        found, _ = forward(network, flat, inputs)
        return sum(float(np.sum(np.asarray(found[name], np.float64) * np.asarray(back[name]))) for name in back)

    slope = (loss(weights + 0.03 * direction) - loss(weights - 0.03 * direction)) / 0.06
    assert slope == pytest.approx(float(gradient @ direction), rel=0.03, abs=0.02)


def test_gradients_are_linear_in_what_comes_back(agent, network, weights):
    inputs = inputs_of(agent)
    found = []
    for scale in (1.0, -2.0):
        outputs, tape = forward(network, weights, inputs)
        found.append(np.array(network.backward(tape, some_gradients(outputs, scale)).tolist()))
    assert np.abs(found[0]).max() > 0
    assert np.allclose(-2 * found[0], found[1], atol=1e-4)


def test_images_are_wanted_only_where_there_are_some(agent, network, kind):
    assert network.images == (agent.spec is SPECS["image"] and kind != "mlp")
    assert network.recurrent == (kind == "lstm")
    assert bool(network.carry(2)) == network.recurrent
