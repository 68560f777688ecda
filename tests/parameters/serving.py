"""What the tests of the parameter server share."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.core.data import NONE, Version
from millstream.parameters.server import ParameterServer

START = Version(0, 0)


def flat(server: ParameterServer, name: str = "weights") -> list[float]:
    return [float(value) for value in server.get().params.tensors[name].reshape(-1)]


def at(number: int, epoch: int = 0) -> Version:
    return Version(epoch, number)


def together(count: int, work: Callable[[int], None]) -> None:
    """Every thread begins at the same moment; one that fails fails the test."""
    barrier, failures = threading.Barrier(count), []

    def run(index: int) -> None:
        try:
            barrier.wait(10)
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == [] and not any(thread.is_alive() for thread in threads)


GOOD: dict[str, Any] = {"worker": "a", "version": START, "gradients": np.ones(3), "samples": 1, "weight": None}


class Hostile:
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError("no")


BAD = [
    ({"gradients": np.ones(4)}, "shape"),
    ({"gradients": np.ones((3, 1))}, "shape"),
    ({"gradients": np.float32(1)}, "shape"),
    ({"gradients": np.broadcast_to(np.float32(1), (10**12,))}, "shape"),
    ({"gradients": {"weights": np.ones(2)}}, "shape"),
    ({"gradients": {}}, "names"),
    ({"gradients": {"weight": np.ones(3)}}, "names"),
    ({"gradients": {"weights": np.ones(3), "more": np.ones(1)}}, "names"),
    ({"gradients": np.array([1, math.nan, 1])}, "not finite"),
    ({"gradients": np.array([1, math.inf, -math.inf])}, "not finite"),
    ({"gradients": np.array([1, 1e39, 1])}, "not finite"),
    ({"gradients": None}, "type"),
    ({"gradients": "gradients"}, "type"),
    ({"gradients": np.ones(3, complex)}, "type"),
    ({"gradients": np.ones(3, bool)}, "type"),
    ({"gradients": [[1, 2], [3]]}, "type"),
    ({"gradients": Hostile()}, "type"),
    ({"version": at(1)}, "version"),
    ({"version": at(0, epoch=1)}, "version"),
    ({"version": at(-1)}, "version"),
    ({"version": at(5, epoch=-1)}, "epoch"),
    ({"version": NONE}, "version"),
    ({"version": None}, "version"),
    ({"version": (0, 0)}, "version"),
    ({"version": Version(0, 0.0)}, "version"),  # type: ignore[arg-type]
    ({"samples": 0}, "samples"),
    ({"samples": -5}, "samples"),
    ({"samples": math.nan}, "samples"),
    ({"samples": math.inf}, "samples"),
    ({"samples": 10**400}, "samples"),
    ({"samples": None}, "samples"),
    ({"samples": "3"}, "samples"),
    ({"weight": math.nan}, "weight"),
    ({"weight": 0.0}, "weight"),
    ({"weight": -1.0}, "weight"),
    ({"weight": math.inf}, "weight"),
    ({"worker": ""}, "worker"),
    ({"worker": None}, "worker"),
    ({"worker": b"a"}, "worker"),
]
