"""Runs on a real broker, for tests: topics of their own, and clients that are closed in the end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

SECONDS = 20.0
"""Within which what should arrive does, on a busy machine too."""


def until(check: Callable[[], Any], seconds: float = SECONDS, pause: float = 0.002) -> Any:
    """The answer of `check`, asked until it is true or the time is over."""
    ends = time.monotonic() + seconds
    while not (answer := check()) and time.monotonic() < ends:
        time.sleep(pause)
    return answer


class KafkaRun:
    """One run, and clients of it."""

    def __init__(self, address: str, later: ExitStack) -> None:
        from millstream.wires.kafka.cluster import Cluster
        from millstream.wires.kafka.topics import Names, create

        self.name, self._later = f"run-{uuid.uuid4().hex[:12]}", later
        self.cluster, self.names = Cluster(address), Names(f"{self.name}.")
        create(self.cluster, self.names)

    def policies(self) -> Any:
        """A policy store that nobody writes to yet."""
        from millstream.wires.kafka.policies import KafkaPolicies

        store = KafkaPolicies(self.cluster, self.names, self.name)
        self._later.callback(store.close)
        return store

    def learner(self) -> Any:
        """The policy store of a learner."""
        store = self.policies()
        store.take_over()
        return store

    def bus(self, window: int = 3, policies: Any = None, **more: Any) -> Any:
        """The bus of a worker; an actor's unless the policies of a learner come with it."""
        from millstream.wires.kafka.bus import KafkaBus

        bus = KafkaBus(self.cluster, self.names, self.name, policies or self.policies(), window, **more)
        self._later.callback(bus.close, 2.0)
        return bus


@contextmanager
def kafka_run(address: str) -> Iterator[KafkaRun]:
    """A run for as long as this lasts; its topics are taken away again."""
    with ExitStack() as later:
        run = KafkaRun(address, later)
        later.callback(_remove, run)
        yield run


def _remove(run: KafkaRun) -> None:
    own = [run.names.experiences, run.names.model_updates, run.names.dead]
    admin = run.cluster.admin()
    for future in admin.delete_topics(own).values():
        future.exception(SECONDS)
