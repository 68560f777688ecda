"""Convolutions, memory and devices: one flat vector, a pass that is a function of its arguments alone."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from millstream.agents.networks.mlp import Mlp
from millstream.agents.networks.pictures import BOARD, NATURE, SMALL, Picture
from millstream.agents.networks.torch import TorchNetwork
from millstream.core.errors import ConfigError
from millstream.core.spec import Box, Discrete, EnvSpec
from tests.agents.rollouts import SPECS

torch.set_num_threads(1)
NUMBERS = SPECS["discrete"]


def moved(network, seed=0):
    """Fresh weights, moved so that biases and the policy's head matter."""
    rng = np.random.default_rng(seed)
    return network.init(rng) + torch.tensor(rng.normal(0, 0.05, network.size), dtype=torch.float32)


def of_shape(shape, stack=1, **settings):
    spec = EnvSpec("x", {"obs": Box(shape, "uint8")}, Discrete(4), stack=stack)
    return TorchNetwork(spec, 4, **settings)


def pixels(shape, seed=0):
    return np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_perceptron_in_torch_is_the_one_in_numpy(activation, shared):
    ours = Mlp(3, 2, 2, (8, 7), activation, shared)
    theirs = TorchNetwork(SPECS["continuous"], 2, 2, (8, 7), activation, shared)
    weights = ours.init(np.random.default_rng(1))
    assert np.array_equal(weights, theirs.init(np.random.default_rng(1)).numpy())
    assert ours.shapes == theirs.shapes
    x = {"vector": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)}
    one, _ = ours.act(weights, x, {}, np.zeros(5, bool))
    other, _ = theirs.act(weights, x, {}, np.zeros(5, bool))
    for name in one:
        assert np.allclose(one[name], other[name], atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "stack", "dimensions", "layers"),
    [
        ((84, 84), 4, (4, 84, 84), NATURE),
        ((84, 84, 3), 1, (3, 84, 84), NATURE),
        ((84, 84, 3), 4, (12, 84, 84), NATURE),
        ((4, 84, 84), 1, (4, 84, 84), NATURE),
        ((36, 40, 1), 1, (1, 36, 40), NATURE),
        ((35, 40, 1), 1, (1, 35, 40), SMALL),
        ((10, 10), 1, (1, 10, 10), BOARD),
        ((1, 1, 2), 1, (2, 1, 1), BOARD),
        ((8, 8, 111), 1, (111, 8, 8), BOARD),
    ],
)
def test_the_convolutions_suit_the_size_of_the_image(shape, stack, dimensions, layers):
    picture = Picture(shape, stack)
    assert picture.dimensions == dimensions
    assert picture.layers is layers
    network = of_shape(shape, stack, hidden=(8,))
    raw = pixels((2, *((stack,) if stack > 1 else ()), *shape))
    outputs, _ = network.act(network.init(np.random.default_rng(0)), {"image/obs": raw}, {}, np.zeros(2, bool))
    assert outputs["policy"].shape == (2, 4)


def test_pixels_are_arranged_channels_first_and_frames_become_channels():
    raw = pixels((5, 3, 6, 7, 2))
    found = Picture((6, 7, 2), 3).arrange(torch.as_tensor(raw)).numpy()
    assert found.shape == (5, 6, 6, 7)
    for frame in range(3):
        for channel in range(2):
            assert np.array_equal(found[:, frame * 2 + channel], raw[:, frame, :, :, channel])
    assert np.array_equal(Picture((6, 7), 3).arrange(torch.as_tensor(raw[..., 0])).numpy(), raw[..., 0])
    assert np.array_equal(Picture((3, 40, 41)).arrange(torch.zeros(2, 3, 40, 41)).shape, (2, 3, 40, 41))


def test_the_network_for_atari_is_that_of_the_nature_paper():
    network = of_shape((84, 84), 4, hidden=(), shared=True, activation="relu")
    weights, raw = moved(network), pixels((2, 4, 84, 84))
    named = {name.removeprefix("image/obs."): view for name, view in network.names(weights).items()}
    reference = torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 8, 4), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 4, 2), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, 1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(3136, 512),
        torch.nn.ReLU(), torch.nn.Linear(512, 4),
    )  # fmt: skip
    with torch.no_grad():
        for layer, name in zip((0, 2, 4, 7, 9), ("conv.0", "conv.1", "conv.2", "dense", "policy"), strict=True):
            weight = named[f"{name}.weight"]
            reference[layer].weight.copy_(weight if weight.ndim == 4 else weight.T)
            reference[layer].bias.copy_(named[f"{name}.bias"])
        expected = reference(torch.as_tensor(raw).float() / 255).numpy()
    outputs, _ = network.act(weights, {"image/obs": raw}, {}, np.zeros(2, bool))
    assert np.allclose(outputs["policy"], expected, atol=1e-4)


@pytest.mark.parametrize("memory", [0, 5])
def test_images_and_numbers_both_reach_the_outputs_and_gradients_reach_every_weight(memory):
    network = TorchNetwork(SPECS["image"], 4, 0, (8,), memory=memory)
    weights, rng = moved(network), np.random.default_rng(1)
    lead = (3, 2) if memory else (6,)
    inputs = {"vector": rng.normal(size=(*lead, 4)).astype(np.float32), "image/board": pixels((*lead, 2, 5, 4, 2))}
    placed = {name: network.place(array) for name, array in inputs.items()}
    outputs, tape = network.forward(weights, placed, None, torch.zeros(lead, dtype=torch.bool) if memory else None)
    ones = {name: torch.ones_like(output) for name, output in outputs.items()}
    for name, gradient in network.names(network.backward(tape, ones)).items():
        assert gradient.abs().max() > 0, name
    for name, array in inputs.items():
        other = {**placed, name: network.place(np.roll(array, 1, axis=0))}
        changed, _ = network.forward(weights, other)
        assert not torch.allclose(outputs["policy"], changed["policy"])


def test_gradients_equal_finite_differences():
    network = TorchNetwork(SPECS["image"], 4, 0, (4,), memory=3)
    weights, rng = moved(network), np.random.default_rng(2)
    inputs = {
        "vector": torch.as_tensor(rng.normal(size=(2, 3, 4)).astype(np.float32)),
        "image/board": torch.as_tensor(pixels((2, 3, 2, 5, 4, 2))),
    }
    first = torch.tensor([[True, False, False], [False, False, True]])
    carry = {name: torch.as_tensor(rng.normal(size=(2, 3)).astype(np.float32)) for name in ("lstm_h", "lstm_c")}
    _, tape = network.forward(weights, inputs, carry, first)
    back = {"policy": torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), "value": torch.ones(6)}
    found = network.backward(tape, back)

    def loss(flat):
        outputs, _ = network.forward(flat, inputs, carry, first)
        return sum(float((outputs[name].double() * back[name]).sum()) for name in back)

    for index in rng.choice(network.size, 25, replace=False):
        step = torch.zeros(network.size)
        step[index] = 1e-2
        assert (loss(weights + step) - loss(weights - step)) / 2e-2 == pytest.approx(float(found[index]), abs=2e-2)


def lstm_case():
    network = TorchNetwork(NUMBERS, 4, 0, (8,), memory=5)
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 6, 3)).astype(np.float32)
    first = rng.random((3, 6)) < 0.3
    carry = {name: rng.normal(size=(3, 5)).astype(np.float32) for name in ("lstm_h", "lstm_c")}
    assert first.any()
    return network, moved(network), x, first, carry


@pytest.mark.parametrize("resets", ["some", "none", "all", "at the start", "at the end"])
def test_a_sequence_gives_what_its_steps_give_one_by_one_and_forgets_where_an_episode_opens(resets):
    network, weights, x, first, carry = lstm_case()
    if resets != "some":
        first[...] = resets == "all"
        first[:, 0] |= resets == "at the start"
        first[1:, -1] |= resets == "at the end"
    inputs = {"vector": torch.as_tensor(x)}
    before = {name: torch.as_tensor(array) for name, array in carry.items()}
    outputs, _ = network.forward(weights, inputs, before, torch.as_tensor(first))
    for t in range(x.shape[1]):
        step, carry = network.act(weights, {"vector": x[:, t]}, carry, first[:, t])
        for name in ("policy", "value"):
            rows = outputs[name].reshape(3, 6, *outputs[name].shape[1:])[:, t]
            assert np.allclose(rows, step[name], atol=1e-6), (name, t)


def test_what_came_before_an_episode_does_not_matter_to_it():
    network, weights, x, _, carry = lstm_case()
    yes, no = np.ones(3, bool), np.zeros(3, bool)
    fresh, _ = network.act(weights, {"vector": x[:, 0]}, network.carry(3), no)
    opened, _ = network.act(weights, {"vector": x[:, 0]}, carry, yes)
    remembered, _ = network.act(weights, {"vector": x[:, 0]}, carry, no)
    assert np.array_equal(fresh["policy"], opened["policy"])
    assert not np.allclose(fresh["policy"], remembered["policy"])


def test_gradients_flow_back_through_time_but_not_into_the_episode_before():
    network, weights, x, _, _ = lstm_case()
    for resets, flows in ((False, True), (True, False)):
        first = torch.zeros(3, 6, dtype=torch.bool)
        first[:, 3] = resets
        steps = torch.as_tensor(x).requires_grad_()
        outputs = network.reread(network.names(weights), {"vector": steps}, None, first)
        outputs["value"].reshape(3, 6)[:, 3:].sum().backward()
        assert bool(steps.grad[:, :3].abs().max() > 0) is flows
        assert steps.grad[:, 3:].abs().max() > 0


def test_the_lstm_is_the_one_of_torch():
    network, weights, x, _, carry = lstm_case()
    named = network.names(weights)
    reference = torch.nn.LSTM(3, 5, batch_first=True)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(named["lstm.input.weight"])
        reference.weight_hh_l0.copy_(named["lstm.memory.weight"])
        reference.bias_ih_l0.copy_(named["lstm.bias"])
        reference.bias_hh_l0.zero_()
        state = tuple(torch.as_tensor(carry[name])[None] for name in ("lstm_h", "lstm_c"))
        _, (h, c) = reference(torch.as_tensor(x), state)
    for t in range(x.shape[1]):
        _, carry = network.act(weights, {"vector": x[:, t]}, carry, np.zeros(3, bool))
    assert np.allclose(carry["lstm_h"], h[0], atol=1e-6)
    assert np.allclose(carry["lstm_c"], c[0], atol=1e-6)


@pytest.mark.parametrize("memory", [0, 5])
def test_fresh_weights_come_from_the_generator_alone(memory):
    network = TorchNetwork(SPECS["image"], 4, 0, (8,), memory=memory)
    torch.manual_seed(1)
    one = network.init(np.random.default_rng(7))
    torch.manual_seed(2)
    assert torch.equal(one, network.init(np.random.default_rng(7)))
    assert not torch.equal(one, network.init(np.random.default_rng(8)))
    named = network.names(one)
    conv = named["image/board.conv.1.weight"].flatten(1)
    assert torch.allclose(conv @ conv.T, 2 * torch.eye(len(conv)), atol=1e-4)
    assert torch.allclose(named["policy.weight"].norm(dim=0), torch.tensor(0.01))
    if memory:
        gate = named["lstm.memory.weight"][:5]
        assert torch.allclose(gate @ gate.T, torch.eye(5), atol=1e-5)
        assert named["lstm.bias"].tolist() == [0] * 5 + [1] * 5 + [0] * 10


def test_names_are_views_that_cover_the_flat_vector_once():
    network = TorchNetwork(SPECS["image"], 4, 0, (8,), memory=5)
    for flat in (np.zeros(network.size, np.float32), torch.zeros(network.size)):
        for view in network.names(flat).values():
            view += 1
        assert (flat == 1).all()
    weights = moved(network)
    assert torch.equal(torch.cat([view.reshape(-1) for view in network.names(weights).values()]), weights)


@pytest.mark.parametrize("memory", [0, 5])
def test_a_module_says_what_the_network_says_and_keeps_its_own_weights(memory):
    network = TorchNetwork(SPECS["image"], 4, 0, (8,), memory=memory)
    weights, rng = moved(network), np.random.default_rng(3)
    inputs = {"vector": rng.normal(size=(2, 4)).astype(np.float32), "image/board": pixels((2, 2, 5, 4, 2))}
    carry = {name: rng.normal(size=(2, 5)).astype(np.float32) for name in ("lstm_h", "lstm_c")} if memory else {}
    module = copy.deepcopy(network.module(weights))
    assert isinstance(module, torch.nn.Module)
    assert set(module.state_dict()) == set(network.names(weights))
    expected, after = network.act(weights, inputs, carry, np.zeros(2, bool))
    weights.zero_()
    placed, before = ({name: torch.as_tensor(a) for name, a in each.items()} for each in (inputs, carry))
    outputs, memory_after = module(placed, before) if memory else module(placed)
    for name, array in expected.items():
        assert np.allclose(outputs[name].detach(), array, atol=1e-6)
    for name, array in after.items():
        assert np.allclose(memory_after[name].detach(), array, atol=1e-6)


@pytest.mark.parametrize("memory", [0, 5])
def test_threads_at_once_get_what_they_would_get_alone(memory):
    network = TorchNetwork(NUMBERS, 4, 0, (16, 16), memory=memory)
    policies = [moved(network, seed) for seed in range(2)]
    rng = np.random.default_rng(0)
    work = [(policies[n % 2], rng.normal(size=(6, 4, 3)).astype(np.float32)) for n in range(40)]

    def both(item):
        weights, x = item
        inputs = {"vector": torch.as_tensor(x if memory else x.reshape(-1, 3))}
        outputs, tape = network.forward(weights, inputs)
        acted, _ = network.act(weights, {"vector": x[:, 0]}, network.carry(6), np.zeros(6, bool))
        return network.backward(tape, outputs).numpy(), acted["policy"]

    alone = [both(item) for item in work]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(both, work))
    for one, other in zip(alone, together, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_acting_takes_weights_of_both_kinds_and_sees_the_learner_change_its_own():
    network = TorchNetwork(NUMBERS, 4)
    weights, x = moved(network), {"vector": np.ones((2, 3), np.float32)}
    first = np.zeros(2, bool)
    one, _ = network.act(weights, x, {}, first)
    other, _ = network.act(weights.numpy().copy(), x, {}, first)
    assert np.array_equal(one["policy"], other["policy"])
    network.act(weights, x, {}, first)
    weights *= 2  # the optimiser steps in place
    assert not np.allclose(one["policy"], network.act(weights, x, {}, first)[0]["policy"])


def test_arrays_that_cannot_be_written_are_read_without_a_word():
    network = TorchNetwork(NUMBERS, 4)
    weights, x = moved(network).numpy().copy(), np.ones((2, 3), np.float32)
    weights.flags.writeable = x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.act(weights, {"vector": x}, {}, np.zeros(2, bool))
        network.place(np.ones(4)[::-1])


def test_arrays_are_placed_with_the_types_that_networks_read():
    network = TorchNetwork(NUMBERS, 4)
    for given, expected in (("uint8", torch.uint8), ("int64", torch.int64), ("bool", torch.bool), ("float64", torch.float32), ("float32", torch.float32)):  # fmt: skip # noqa: E501
        placed = network.place(np.ones((2, 2), given))
        assert placed.dtype == expected
        assert placed.device.type == "cpu"
    assert network.place(placed) is placed


def test_rows_are_picked_by_integer_arrays_of_numpy():
    placed = TorchNetwork(NUMBERS, 4).place(np.arange(10, dtype=np.float32))
    assert placed[np.array([3, 1, 3])].tolist() == [3, 1, 3]


def test_only_a_spec_with_images_makes_a_network_that_wants_them():
    assert TorchNetwork(SPECS["image"], 4).images is True
    assert TorchNetwork(NUMBERS, 4).images is False
    assert TorchNetwork(NUMBERS, 4).recurrent is False
    assert TorchNetwork(NUMBERS, 4, memory=3).recurrent is True


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"device": "abacus"}, "abacus"), ({"activation": "gelu"}, "tanh or relu"), ({"hidden": ()}, "one layer")],
)
def test_a_network_that_cannot_be_built_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        TorchNetwork(NUMBERS, 4, **settings)


@pytest.mark.parametrize("missing", ["torch", "array_api_compat"])
def test_without_torch_the_error_says_what_to_install(missing):
    program = f"""
import sys
sys.modules[{missing!r}] = None
from millstream.agents.registry import make
from millstream.core.errors import MissingPart
from millstream.core.spec import Box, Discrete, EnvSpec
spec = EnvSpec("x", {{"obs": Box((3,))}}, Discrete(2))
agent = make("ppo", spec)                       # the default needs none of it
agent.policy(agent.init(0), agent.Hyper())
try:
    make("ppo", spec, {{"kind": "torch"}})
except MissingPart as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("PyTorch is not installed; run: pip install 'millstream[torch]'")
