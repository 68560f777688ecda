"""One minibatch of Pong, forward and back, one thread: milliseconds by each way to convolve, measured in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch.nn import functional

from millstream.agents.networks import compiled
from millstream.agents.networks.convolutions import SCALE, by_library, by_torch
from millstream.agents.networks.pictures import Picture
from millstream.agents.networks.torch import TorchNetwork
from millstream.core.spec import Box, Discrete, EnvSpec

ROWS, TURNS = 256, 5
SPEC = EnvSpec("pixels", {"obs": Box((84, 84), "uint8", 0, 255)}, Discrete(6), stack=4)


def planes(picture: Picture, pixels: Any, weights: Sequence[Any], layout: Any = torch.contiguous_format) -> Any:
    """As it is usually written: pixels become floats and are scaled."""
    x = (pixels.to(torch.float32) * SCALE).contiguous(memory_format=layout)
    for index, layer in enumerate(picture.layers):
        x = torch.relu(functional.conv2d(x, *weights[2 * index : 2 * index + 2], layer.stride, layer.padding))
    return x.flatten(1)


def channels_last(picture: Picture, pixels: Any, weights: Sequence[Any]) -> Any:
    """The same with the channels of a pixel side by side."""
    return planes(picture, pixels, weights, torch.channels_last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = TorchNetwork(SPEC, 6, hidden=[])
    pixels = {"image/obs": torch.randint(0, 256, (ROWS, 4, 84, 84), dtype=torch.uint8)}
    leaves = network.names(network.init(np.random.default_rng(0)))
    leaves = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}

    def timed(compute: Callable[[], Any]) -> float:
        start = time.perf_counter()
        outputs = compute()
        torch.autograd.grad((outputs["policy"].sum() + outputs["value"].sum()), list(leaves.values()))
        return 1e3 * (time.perf_counter() - start)

    ways: dict[str, Callable[[], Any]] = {
        "planes": lambda: network.compute(leaves, pixels, planes),
        "channels_last": lambda: network.compute(leaves, pixels, channels_last),
        "scaled_weights": lambda: network.compute(leaves, pixels, by_torch),
    }
    start = time.perf_counter()
    inductor = torch.compile(lambda: network.compute(leaves, pixels, by_torch))
    ways["torch_compile"] = inductor
    timed(inductor)
    found = {"compile_seconds": time.perf_counter() - start}
    if compiled.LIBRARY is not None:
        by_c = by_library(compiled.LIBRARY)
        ways["c"] = lambda: network.compute(leaves, pixels, by_c)
    for way in ways.values():
        timed(way)
    turns = [{name: timed(way) for name, way in ways.items()} for _ in range(TURNS)]
    found |= {name: statistics.median(turn[name] for turn in turns) for name in ways}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
