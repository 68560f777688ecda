"""A table whose rollouts stand in a log. It is kept as their places there, and filled from the log again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from millstream.core.data import Array, Delivery, Rollout, Sample
from millstream.core.errors import CheckpointError
from millstream.replay.table import Table, priorities_of

Reread: TypeAlias = Callable[[Sequence[tuple[str, int]]], Iterator[Rollout]]
"""Gives the rollouts that stand at these places (source, position) of a log, in this order."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a rollout stands: in the log, and in the table."""

    source: str
    position: int
    identity: tuple[int, int, int]
    row: int
    rows: int


class Refilled:
    """A table of steps for updates that can be done again: what it gives depends on no moment.

    New priorities come into force with the next sample, whatever came in before: so it does not matter how inserts and
    the work on one update took turns.
    """

    def __init__(self, table: Table, reread: Reread):
        self.table, self.reread = table, reread
        self._places: deque[_Place] = deque()
        self._priorities: list[tuple[Array, Array]] = []

    @property
    def waiting(self) -> int:
        """Items that are there."""
        return self.table.waiting

    def insert(self, rollout: Rollout) -> bool:
        """Keep it; False: not now, ask again."""
        return self.table.insert(rollout)

    def placed(self, delivery: Delivery[Rollout]) -> None:
        """This one was inserted last; those that left the table are forgotten."""
        store, rows = self.table.store, delivery.message.rewards.size
        identity, end = delivery.message.stamp.identity, store.row + store.rows
        self._places.append(_Place(delivery.source, delivery.position, identity, end - rows, rows))
        while self._places[0].row + self._places[0].rows <= store.row:
            self._places.popleft()

    def sample(self, size: int) -> Sample | None:
        """Pick `size` items; None when that is not possible yet."""
        if not self.table.ready(size):
            return None
        for keys, priorities in self._priorities:
            self.table.reprioritise(keys, priorities)
        self._priorities.clear()
        return self.table.sample(size)

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Change how likely items are to be picked, from the next sample on."""
        self._priorities.append(priorities_of(keys, priorities))

    def snapshot(self) -> Mapping[str, Any]:
        """Where its rollouts stand, and all else that the next sample depends on."""
        sources = sorted({place.source for place in self._places})
        number = {source: index for index, source in enumerate(sources)}
        places = [
            (number[place.source], place.position, *place.identity, place.row, place.rows) for place in self._places
        ]
        return {
            "table": self.table.outline(),
            "sources": sources,
            "places": np.array(places, np.int64).reshape(-1, 7),
            "priorities": [list(each) for each in self._priorities],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there; CheckpointError when the log has not all of its rollouts any more."""
        sources = snapshot["sources"]
        self._places = deque(
            _Place(sources[source], position, (actor, epoch, sequence), row, rows)
            for source, position, actor, epoch, sequence, row, rows in snapshot["places"].tolist()
        )
        first = self._places[0].row if self._places else 0
        self.table.refill(snapshot["table"], first, self._found())
        self._priorities = [(keys, priorities) for keys, priorities in snapshot["priorities"]]

    def _found(self) -> Iterator[Rollout]:
        """Its rollouts out of the log, each checked to be the one that stood there."""
        found = iter(self.reread([(place.source, place.position) for place in self._places]))
        for place in self._places:
            rollout = next(found, None)
            got = None if rollout is None else (rollout.stamp.identity, rollout.rewards.size)
            if rollout is None or got != (place.identity, place.rows):
                actor, epoch, sequence = place.identity
                there = "nothing" if got is None else f"rollout {list(got[0])} of {got[1]} steps"
                raise CheckpointError(
                    f"the table needs rollout {sequence} of actor {actor} (epoch {epoch}) from {place.source} at "
                    f"{place.position}, and the log has {there} there; was it trimmed? Keep as much of it as the table "
                    "holds, or begin a new run"
                )
            yield rollout
