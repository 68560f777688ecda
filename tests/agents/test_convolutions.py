"""Convolutions in C against those of torch, for every kind of picture and every library that this processor can run."""

from ctypes import addressof

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from millstream.agents.networks.convolutions import _described, by_library, by_torch  # noqa: E402
from millstream.agents.networks.pictures import Picture  # noqa: E402
from millstream.agents.networks.torch import TorchNetwork  # noqa: E402
from millstream.core import native  # noqa: E402
from millstream.core.spec import Box, Discrete, EnvSpec  # noqa: E402

pytestmark = pytest.mark.skipif(native.LIBRARY is None, reason="no compiler was there when Millstream was installed")
FENCE = 64
PICTURES = {
    "atari": Picture((84, 84), 4),
    "board": Picture((10, 12, 3)),
    "small": Picture((1, 30, 20)),
    "wide": Picture((3, 40, 61), 2),
}


@pytest.fixture
def no_luck():
    """Memory that nothing was written to is not a number."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def weights_for(picture, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for name, shape in picture.shapes().items():
        if name.startswith("conv."):
            spread = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
            found.append(torch.from_numpy(rng.normal(0, spread, shape).astype(np.float32)).requires_grad_())
    return found


def pixels_for(picture, rows):
    shape = (rows, *picture.dimensions)
    return torch.from_numpy(np.random.default_rng(rows).integers(0, 256, shape, dtype=np.uint8))


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_both_passes_agree_with_autograd(library, no_luck, kind, rows):
    picture = PICTURES[kind]
    weights, pixels = weights_for(picture), pixels_for(picture, rows)
    mine, theirs = (way(picture, pixels, weights) for way in (by_library(library), by_torch))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    send = torch.from_numpy(np.random.default_rng(1).normal(size=theirs.shape).astype(np.float32))
    for one, other in zip(*(torch.autograd.grad(given, weights, send) for given in (mine, theirs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-6 * float(abs(other).max()) + 1e-6)


def test_pixels_that_lie_otherwise_are_read_in_their_order(library):
    picture = PICTURES["wide"]
    pixels, weights = pixels_for(picture, 3), weights_for(picture)
    turned = pixels.movedim(1, -1).contiguous().movedim(-1, 1)  # equal, but channels come last in memory
    every_other = pixels.repeat_interleave(2, 0)[::2]
    expected = by_library(library)(picture, pixels, weights)
    for same in (turned, every_other):
        assert not same.is_contiguous()
        torch.testing.assert_close(by_library(library)(picture, same, weights), expected, rtol=0, atol=0)


def test_pixels_that_are_no_bytes_go_to_torch(library):
    picture = PICTURES["board"]
    pixels, weights = pixels_for(picture, 2).float() / 3, weights_for(picture)
    mine = by_library(library)(picture, pixels, weights)
    torch.testing.assert_close(mine, by_torch(picture, pixels, weights), rtol=0, atol=0)


def test_nothing_is_nothing(library):
    picture = PICTURES["atari"]
    weights = weights_for(picture)
    given = by_library(library)(picture, pixels_for(picture, 0), weights)
    assert given.shape == (0, picture.flat)
    assert all((part == 0).all() for part in torch.autograd.grad(given, weights, torch.empty_like(given)))


def test_a_pass_keeps_to_its_memory(library):
    """Fences of numbers that are none stand round all that is written, and round what is read."""
    for kind, picture in PICTURES.items():
        about, rows = _described(picture), 5
        weights = torch.cat([weight.detach().reshape(-1) for weight in weights_for(picture)]).numpy()
        sizes = {"weights": weights.size, "area": library.mill_conv_room(addressof(about), rows)}
        sizes |= {"features": rows * picture.flat, "sent": rows * picture.flat, "gradient": weights.size}
        fenced = {name: np.full(size + 2 * FENCE, np.nan, np.float32) for name, size in sizes.items()}
        inside = {name: array[FENCE:-FENCE] for name, array in fenced.items()}
        inside["weights"][:], inside["sent"][:] = weights, 1
        pixels = pixels_for(picture, rows).numpy()
        place = {name: array.ctypes.data for name, array in inside.items()}
        given = (addressof(about), rows, place["weights"], 1 / 255, pixels.ctypes.data, place["area"])
        library.mill_conv_forward(*given, place["features"])
        library.mill_conv_backward(*given, place["sent"], place["gradient"])
        for name, array in fenced.items():
            assert np.isnan(array[:FENCE]).all() and np.isnan(array[-FENCE:]).all(), (kind, name)
        assert np.isfinite(inside["features"]).all() and np.isfinite(inside["gradient"]).all(), kind


def test_the_same_twice_whatever_ran_before(library):
    picture = PICTURES["atari"]
    weights, pixels = weights_for(picture), pixels_for(picture, 6)
    found = []
    for _ in range(2):
        given = by_library(library)(picture, pixels, weights)
        by_library(library)(picture, pixels[:2], weights)  # a pass in between does not touch what is kept
        found.append([given, *torch.autograd.grad(given, weights, torch.ones_like(given))])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_is_not_a_number_stays_so(library):
    """A policy that broke must be seen to be broken."""
    picture = PICTURES["board"]
    weights = [weight.detach().clone() for weight in weights_for(picture)]
    weights[0][0, 0, 0, 0] = float("nan")
    assert by_library(library)(picture, pixels_for(picture, 1), weights).isnan().any()


def test_a_network_uses_them_on_a_cpu_and_its_module_does_not():
    spec = EnvSpec("pixels", {"obs": Box((84, 84), "uint8", 0, 255)}, Discrete(3), stack=4)
    network = TorchNetwork(spec, 3, hidden=[])
    weights = network.init(np.random.default_rng(0))
    inputs = {"image/obs": pixels_for(PICTURES["atari"], 2)}
    outputs, (kept, *_) = network.forward(weights, inputs)
    names = set()
    walk = [kept["value"].grad_fn]
    while walk:
        step = walk.pop()
        if step is not None:
            names.add(step.name())
            walk += [below for below, _ in step.next_functions]
    assert "_PassesBackward" in names and "ConvolutionBackward0" not in names
    said, _ = network.module(weights)(inputs)
    torch.testing.assert_close(said["policy"].detach(), outputs["policy"], rtol=1e-4, atol=1e-5)
    exported = torch.export.export(network.module(weights), (inputs,))
    assert any("conv2d" in str(node.target) for node in exported.graph.nodes)
