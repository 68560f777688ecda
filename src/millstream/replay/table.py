"""Experience at rest as a table of small policies: what an item is, which are picked, which leave, when is not now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from millstream.core.data import Array, Rollout, Sample
from millstream.core.errors import ConfigError
from millstream.replay.archive import Archive
from millstream.replay.cut import Cut, Whole
from millstream.replay.limit import Free, Limit
from millstream.replay.memory import Memory
from millstream.replay.rollouts import Rollouts
from millstream.replay.select import Fifo, Select, Uniform, Unmoved
from millstream.replay.steps import Steps


@dataclass(frozen=True)
class Oldest:
    """Who came first leaves first, when the place is needed."""


@dataclass(frozen=True)
class Used:
    """Each leaves when it was picked; a full table says no."""


Evict = Oldest | Used
OLDEST, FREE = Oldest(), Free()
REDRAWS = 100
"""After so many draws a table that holds hardly a real step gives what it has; such steps are not `valid`."""


class Table:
    """Rollouts go in, items come out. With a `folder`, steps live in files there, for more than memory holds."""

    def __init__(
        self,
        cut: Cut,
        select: Select | None = None,
        evict: Evict = OLDEST,
        limit: Limit = FREE,
        capacity: int = 1_000_000,
        rng: Generator | None = None,
        folder: Path | str | None = None,
    ):
        if capacity < 1:
            raise ConfigError(f"a table holds at least 1 item, got a capacity of {capacity}")
        select = Uniform() if select is None else select
        if isinstance(evict, Used) and not (isinstance(cut, Whole) and isinstance(select, Fifo)):
            raise ConfigError("items that leave once they were used must be whole rollouts, picked first in, first out")
        self.cut, self.evict, self.limit, self.capacity = cut, evict, limit, capacity
        self.select = select.fresh(capacity)
        self._used_up, self._moved = isinstance(evict, Used), not isinstance(select, Unmoved)
        self.rng = default_rng() if rng is None else rng
        if isinstance(cut, Whole):
            self.store: Any = Rollouts(capacity)
        else:
            self.store = Steps(cut, capacity, Memory(cut, capacity, folder=None if folder is None else Path(folder)))
        self._archive = Archive()
        self.inserted = self.sampled = 0
        """Items that ever came in, and that ever were picked."""

    @property
    def waiting(self) -> int:
        """Items that are there."""
        return int(self.store.count)

    def insert(self, rollout: Rollout) -> bool:
        """Keep it; False: not now, ask again."""
        store, items = self.store, self.store.items_of(rollout)
        if self._used_up and store.count + items > self.capacity:
            return False
        if not self.limit.may_insert(self.inserted, self.sampled, items):
            return False
        first, fresh = store.first, store.first + store.count
        added = store.write(rollout)
        self.inserted += added
        if not self._moved:
            return True
        self.select.removed(0, self.capacity, first, store.first - first)
        self.select.added(0, self.capacity, fresh, added)
        blank = store.blank(rollout)
        if blank is not None:  # nothing happened in these steps
            self.select.reprioritise(fresh + blank, np.zeros(len(blank)))
        return True

    def ready(self, size: int) -> bool:
        """Whether `size` items can be picked now."""
        enough = size if self._used_up else 1
        return size > 0 and self.store.count >= enough and self.limit.may_sample(self.inserted, self.sampled, size)

    def sample(self, size: int) -> Sample | None:
        """Pick `size` items; None when that is not possible yet."""
        if not self.ready(size):
            return None
        store = self.store
        keys, weights = self.select.pick(size, store.first, store.count, self.rng)
        if isinstance(self.select, Uniform):
            self._avoid_blanks(keys)
        rollouts = store.read(keys)
        if self._used_up:
            store.drop(size)
        self.sampled += size
        return Sample(rollouts, keys, weights)

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Change how likely items are to be picked; those that left in the meantime are passed over."""
        keys, priorities = priorities_of(keys, priorities)
        there = (keys >= self.store.first) & (keys < self.store.first + self.store.count)
        if not there.all():
            keys, priorities = keys[there], priorities[there]
        self.select.reprioritise(keys, priorities)

    def snapshot(self) -> Mapping[str, Any]:
        """All that the next sample depends on."""
        return {**self._counters(), "store": self.store.snapshot()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        self._count(snapshot)
        self.store.restore(snapshot["store"])
        self._archive = Archive()  # what is on disk is of other rows

    def outline(self) -> Mapping[str, Any]:
        """The same without the steps themselves, for who can give the rollouts again that they came from."""
        return {**self._counters(), "store": self._kept()[0].outline()}

    def refill(self, outline: Mapping[str, Any], row: int, rollouts: Iterable[Rollout]) -> None:
        """Continue exactly there: of all rollouts that are still in it, even in part, the first began at that row."""
        self._kept()[0].refill(outline["store"], row, rollouts)
        self._count(outline)
        self._archive = Archive()

    def save(self, folder: Path | str) -> None:
        """Into a folder, whole or not at all; what it holds already is not written again."""
        self._archive.save(Path(folder), self.about(), self._counters(), self._kept())

    def load(self, folder: Path | str) -> None:
        """Continue exactly where it was saved; CheckpointError, and no change, unless every byte is as it was."""
        self._archive.load(Path(folder), self.about(), lambda shards: self._kept()[:shards], self._count)

    def _kept(self) -> list[Steps]:
        if isinstance(self.cut, Whole):
            raise ConfigError("whole rollouts stay in the memory that they came in: only tables of steps are saved")
        return [self.store]

    def about(self) -> Mapping[str, Any]:
        """What another must agree in to go on from where this one was saved."""
        return {"holds": "a table", "cut": repr(self.cut), "capacity": self.capacity, **self.select.about()}

    def _counters(self) -> Mapping[str, Any]:
        return {
            "inserted": self.inserted,
            "sampled": self.sampled,
            "rng": self.rng.bit_generator.state,
            "select": self.select.snapshot(),
        }

    def _count(self, counters: Mapping[str, Any]) -> None:
        self.inserted, self.sampled = counters["inserted"], counters["sampled"]
        self.rng.bit_generator.state = counters["rng"]
        self.select.restore(counters["select"])

    def _avoid_blanks(self, keys: np.ndarray) -> None:
        """Draw again where nothing happened."""
        for _ in range(REDRAWS):
            wrong = self.store.blanks(keys)
            if not len(wrong):
                return
            keys[wrong], _ = self.select.pick(len(wrong), self.store.first, self.store.count, self.rng)


def priorities_of(keys: Array, priorities: Array) -> tuple[np.ndarray, np.ndarray]:
    """Keys and the priorities for them, if all of these are usable."""
    keys, priorities = np.asarray(keys), np.asarray(priorities, np.float64)
    if keys.shape != priorities.shape:
        raise ConfigError(f"{len(keys)} keys need as many priorities, got {priorities.shape}")
    wrong = ~(np.isfinite(priorities) & (priorities >= 0))
    if wrong.any():
        raise ConfigError(f"a priority is a number from 0 on, got {priorities[wrong][0]} for item {keys[wrong][0]}")
    return keys, priorities


def queue(capacity: int) -> Table:
    """First in, first out, each rollout handed out once. Full, it says no."""
    return Table(Whole(), Fifo(), Used(), Free(), capacity)
