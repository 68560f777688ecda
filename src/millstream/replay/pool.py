"""Several tables over one memory: rollouts are spread over them, samples come from all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator, default_rng

from millstream.core import native
from millstream.core.data import Array, Rollout, Sample
from millstream.core.errors import ConfigError
from millstream.replay.archive import Archive
from millstream.replay.cut import Sequences, Windows
from millstream.replay.limit import Limit
from millstream.replay.memory import Memory
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.steps import Steps
from millstream.replay.table import FREE, REDRAWS, priorities_of

Balance = Literal["round_robin", "least_loaded", "by_actor"]
BALANCES = ("round_robin", "least_loaded", "by_actor")
_BITS = 40
"""Of a key that number the item; the others name its shard."""
_NUMBER = (1 << _BITS) - 1
_CHUNK = 1_024


class Pool:
    """`shards` tables of `capacity` items each. An item is as likely wherever it stands.

    With a `folder`, steps live in files there, for more than memory holds.
    """

    def __init__(
        self,
        cut: Windows | Sequences,
        select: Uniform | Prioritised | None = None,
        limit: Limit = FREE,
        capacity: int = 250_000,
        shards: int = 4,
        balance: Balance = "round_robin",
        rng: Generator | None = None,
        folder: Path | str | None = None,
    ):
        select = Uniform() if select is None else select
        if not isinstance(cut, Windows | Sequences) or not isinstance(select, Uniform | Prioritised):
            raise ConfigError("a pool holds steps and picks them uniformly or by priority; for the rest there is Table")
        if balance not in BALANCES:
            raise ConfigError(f"a pool balances by {', '.join(BALANCES)}, got {balance!r}")
        if capacity < 1 or shards < 1:
            raise ConfigError(f"a pool has at least 1 shard of 1 item, got {shards} of {capacity}")
        self.cut, self.limit, self.capacity, self.balance = cut, limit, capacity, balance
        self.rng = default_rng() if rng is None else rng
        self.memory = Memory(cut, capacity, shards, None if folder is None else Path(folder))
        self._begins: dict[
            str, int
        ] = {}  # part -> where a new shard begins: keys of one that was closed name none of its
        self.shards = [self._opened(part) for part in range(shards)]
        self.select: Any = select.fresh(shards * capacity)
        self._measure()
        self._archive = Archive()
        self.inserted = self.sampled = self.dropped = self._turn = 0
        """Items that ever came in, that were picked, and that found no room when their shard was closed."""

    @property
    def waiting(self) -> int:
        """Items that are there."""
        return int(self._ends[-1])

    def insert(self, rollout: Rollout) -> bool:
        """Keep it in one of the shards; False: not now, ask again."""
        shard = self.shards[self._choose(rollout)]
        if not self.limit.may_insert(self.inserted, self.sampled, shard.items_of(rollout)):
            return False
        self.inserted += self._write(shard, rollout)
        return True

    def sample(self, size: int) -> Sample | None:
        """Pick from all shards, in proportion to what they hold; None when that is not possible yet."""
        if size < 1 or not self.waiting or not self.limit.may_sample(self.inserted, self.sampled, size):
            return None
        parts, numbers, keys, importance = self._pick(size)
        self.sampled += size
        return Sample([self.memory.read(self._rows(parts, numbers), parts)], keys, importance)

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Change how likely items are to be picked; those that left in the meantime are passed over."""
        keys, priorities = priorities_of(keys, priorities)
        if not isinstance(self.select, Prioritised):
            return
        parts, numbers = keys >> _BITS, keys & _NUMBER
        known = (parts >= 0) & (parts < len(self.shards))
        if not known.all():
            parts, numbers, priorities = parts[known], numbers[known], priorities[known]
        ages = numbers - self._firsts[parts]
        there = (ages >= 0) & (ages < self._counts[parts])
        leaves = parts * self.capacity + numbers % self.capacity
        if not there.all():
            leaves, priorities = leaves[there], priorities[there]
        self.select.reprioritise(leaves, priorities)

    def resize(self, shards: int) -> None:
        """More shards, or fewer: what a closed one held moves to the others as far as they have room."""
        if shards < 1:
            raise ConfigError(f"a pool has at least 1 shard, got {shards}")
        if shards > self.memory.parts:
            self.memory.resize(shards)
            self.select.resize(shards * self.capacity)
        closed, self.shards = self.shards[shards:], self.shards[:shards]
        self._begins |= {str(shard.part): shard.next_begin for shard in closed}
        self.shards += [self._opened(part) for part in range(len(self.shards), shards)]
        self._measure()
        for shard in closed:
            self._move(shard)
        if shards < self.memory.parts:
            self.memory.resize(shards)
            self.select.resize(shards * self.capacity)

    def snapshot(self) -> Mapping[str, Any]:
        """All that the next sample depends on."""
        return {**self._counters(), "shards": [shard.snapshot() for shard in self.shards]}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        for shard, kept in zip(self._emptied(len(snapshot["shards"])), snapshot["shards"], strict=True):
            shard.restore(kept)
        self._count(snapshot)

    def save(self, folder: Path | str) -> None:
        """Into a folder, whole or not at all; what it holds already is not written again."""
        self._archive.save(Path(folder), self._about(), self._counters(), self.shards)

    def load(self, folder: Path | str) -> None:
        """Continue exactly where it was saved; CheckpointError, and no change, unless every byte is as it was."""
        self._archive.load(Path(folder), self._about(), self._emptied, self._count)

    def statistics(self) -> Mapping[str, Any]:
        """How full it is, and how much went through it."""
        counts = [shard.count for shard in self.shards]
        return {
            "shards": len(counts), "items": sum(counts), "capacity": len(counts) * self.capacity, "by_shard": counts,
            "inserted": self.inserted, "sampled": self.sampled, "dropped": self.dropped,
            "bytes": self.memory.size,
        }  # fmt: skip

    def _about(self) -> Mapping[str, Any]:
        """What a save must agree in; the number of shards is the save's."""
        about = {"holds": "a pool", "cut": repr(self.cut), "capacity": self.capacity, "balance": self.balance}
        return about | self.select.about()

    def _counters(self) -> Mapping[str, Any]:
        return {
            "inserted": self.inserted, "sampled": self.sampled, "dropped": self.dropped, "turn": self._turn,
            "rng": self.rng.bit_generator.state, "select": self.select.snapshot(), "begins": self._begins,
        }  # fmt: skip

    def _count(self, counters: Mapping[str, Any]) -> None:
        self.inserted, self.sampled = counters["inserted"], counters["sampled"]
        self.dropped, self._turn, self._begins = counters["dropped"], counters["turn"], dict(counters["begins"])
        self.rng.bit_generator.state = counters["rng"]
        self.select.restore(counters["select"])
        self._measure()

    def _emptied(self, shards: int) -> list[Steps]:
        """So many shards, with nothing in them."""
        self.memory.resize(shards)
        self.select.resize(shards * self.capacity)
        self.shards = [self._opened(part) for part in range(shards)]
        self._measure()
        return self.shards

    def _opened(self, part: int) -> Steps:
        return Steps(self.cut, self.capacity, self.memory, part, self._begins.get(str(part), 0))

    def _choose(self, rollout: Rollout) -> int:
        if self.balance == "by_actor":
            return rollout.stamp.actor % len(self.shards)
        if self.balance == "least_loaded":
            return min(range(len(self.shards)), key=lambda index: self.shards[index].count)
        self._turn += 1
        return (self._turn - 1) % len(self.shards)

    def _write(self, shard: Steps, rollout: Rollout) -> int:
        first, count = shard.first, shard.count
        added = shard.write(rollout)
        base = shard.part * self.capacity
        self.select.removed(base, self.capacity, first, shard.first - first)
        self.select.added(base, self.capacity, first + count, added)
        blank = shard.blank(rollout)
        if blank is not None:  # nothing happened in these steps
            self.select.reprioritise(base + (first + count + blank) % self.capacity, np.zeros(len(blank)))
        self._firsts[shard.part] = shard.first
        self._counts[shard.part] = shard.count
        self._ends[shard.part :] += shard.count - count
        self._spotless &= shard.spotless
        return added

    def _pick(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Shards, numbers and keys of items, and their importance."""
        if isinstance(self.select, Prioritised) and self.select.tree.total > 0:
            leaves, importance = self.select.pick_leaves(size, self.waiting, self.rng)
            found = self._locate(leaves)
            return found[0], found[1], found[2], importance
        drawn = self._draw(size)
        if not self._spotless:
            for _ in range(REDRAWS):
                wrong = self._blanks(*drawn[:2])
                if not len(wrong):
                    break
                drawn[:, wrong] = self._draw(len(wrong))
        return drawn[0], drawn[1], drawn[2], None

    def _locate(self, leaves: np.ndarray) -> np.ndarray:
        """Shards, numbers and keys of the items that stand at these leaves."""
        found = np.empty((3, len(leaves)), np.int64)
        if native.LIBRARY is not None:
            given = native.place(leaves), _BITS, native.place(found)
            native.LIBRARY.mill_rows_locate(self.capacity, self._places[0], len(leaves), *given)
            return found
        parts, places = np.divmod(leaves, self.capacity)
        firsts = self._firsts[parts]
        found[0], found[1] = parts, firsts + (places - firsts) % self.capacity
        found[2] = (parts << _BITS) | found[1]
        return found

    def _draw(self, size: int) -> np.ndarray:
        """Shards, numbers and keys of items, each as likely as any other."""
        firsts, ends, chances = self._firsts, self._ends, self.rng.random(size)
        drawn = np.empty((3, size), np.int64)
        if native.LIBRARY is not None:
            places = native.place(chances), _BITS, native.place(drawn)
            native.LIBRARY.mill_rows_spread(len(ends), *self._places, size, *places)
            return drawn
        spots = (chances * ends[-1]).astype(np.int64)
        parts = drawn[0] = np.searchsorted(ends, spots, side="right")
        numbers = drawn[1] = spots - (ends - self._counts)[parts] + firsts[parts]
        drawn[2] = (parts << _BITS) | numbers
        return drawn

    def _blanks(self, parts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return np.flatnonzero(~self.memory.records["valid"][parts, numbers % self.capacity])

    def _rows(self, parts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        if isinstance(self.cut, Windows):
            return numbers
        rows = np.empty(len(numbers), np.int64)
        for shard in self.shards:
            mine = parts == shard.part
            rows[mine] = shard.rows_at(numbers[mine])
        return rows

    def _measure(self) -> None:
        """The first item of each shard, and how many there are up to its end."""
        self._firsts = np.array([shard.first for shard in self.shards])
        self._counts = np.array([shard.count for shard in self.shards])
        self._ends = np.cumsum(self._counts)
        self._places = native.place(self._firsts), native.place(self._ends)
        self._spotless = all(shard.spotless for shard in self.shards)

    def _move(self, closed: Steps) -> None:
        """Newest first, as far as nothing else must leave."""
        steps = self.cut.steps if isinstance(self.cut, Sequences) else 1
        left = closed.count
        while left:
            shard = max(self.shards, key=lambda each: each.room(steps))
            fits = min(left, shard.room(steps), _CHUNK)
            if not fits:
                break
            keys = closed.first + np.arange(left - fits, left)
            self._write(shard, self.memory.read(closed.rows_at(keys), closed.part, steps))
            left -= fits
        self.dropped += left
