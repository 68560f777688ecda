"""What the tests of the parameter server share."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.core.data import Version
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
