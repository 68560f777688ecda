"""Several tables over one memory: rollouts are spread over them, samples come from all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.random import Generator, default_rng

from millstream.core.data import Array, Rollout, Sample
from millstream.core.errors import ConfigError
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
_CHUNK = 1_024


class Pool:
    """`shards` tables of `capacity` items each. An item is as likely wherever it stands."""

    def __init__(
        self,
        cut: Windows | Sequences,
        select: Uniform | Prioritised | None = None,
        limit: Limit = FREE,
        capacity: int = 250_000,
        shards: int = 4,
        balance: Balance = "round_robin",
        rng: Generator | None = None,
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
        self.memory = Memory(cut, capacity, shards)
        self.shards = [Steps(cut, capacity, self.memory, index) for index in range(shards)]
        self.select: Any = select.fresh(shards * capacity)
        self.inserted = self.sampled = self.dropped = self._turn = 0
        """Items that ever came in, that were picked, and that found no room when their shard was closed."""

    @property
    def waiting(self) -> int:
        """Items that are there."""
        return sum(shard.count for shard in self.shards)

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
        parts, numbers, importance = self._pick(size)
        rows = self._rows(parts, numbers)
        self.sampled += size
        return Sample([self.memory.read(rows, parts)], (parts << _BITS) | numbers, importance)

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Change how likely items are to be picked; those that left in the meantime are passed over."""
        keys, priorities = priorities_of(keys, priorities)
        parts, numbers = keys >> _BITS, keys & (1 << _BITS) - 1
        known = parts < len(self.shards)
        firsts, counts = self._extent()
        there = known & (numbers >= firsts[parts * known]) & (numbers < (firsts + counts)[parts * known])
        if isinstance(self.select, Prioritised):
            leaves = parts * self.capacity + numbers % self.capacity
            self.select.reprioritise(leaves[there], priorities[there])

    def resize(self, shards: int) -> None:
        """More shards, or fewer: what a closed one held moves to the others as far as they have room."""
        if shards < 1:
            raise ConfigError(f"a pool has at least 1 shard, got {shards}")
        closed, self.shards = self.shards[shards:], self.shards[:shards]
        if shards > self.memory.parts:
            self.memory.resize(shards)
            self.select.resize(shards * self.capacity)
        self.shards += [Steps(self.cut, self.capacity, self.memory, part) for part in range(len(self.shards), shards)]
        for shard in closed:
            self._move(shard)
        if shards < self.memory.parts:
            self.memory.resize(shards)
            self.select.resize(shards * self.capacity)

    def statistics(self) -> Mapping[str, Any]:
        """How full it is, and how much went through it."""
        counts = [shard.count for shard in self.shards]
        return {
            "shards": len(counts), "items": sum(counts), "capacity": len(counts) * self.capacity, "by_shard": counts,
            "inserted": self.inserted, "sampled": self.sampled, "dropped": self.dropped,
            "bytes": self.memory.size,
        }  # fmt: skip

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
        return added

    def _pick(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Shards and numbers of items, and their importance."""
        firsts, counts = self._extent()
        if isinstance(self.select, Prioritised) and self.select.tree.total > 0:
            leaves, importance = self.select.pick_leaves(size, int(counts.sum()), self.rng)
            parts, places = np.divmod(leaves, self.capacity)
            numbers = firsts[parts] + (places - firsts[parts]) % self.capacity
            return parts, numbers, importance
        parts, numbers = self._draw(size, firsts, counts)
        for _ in range(REDRAWS):
            wrong = self._blanks(parts, numbers)
            if not len(wrong):
                break
            parts[wrong], numbers[wrong] = self._draw(len(wrong), firsts, counts)
        return parts, numbers, None

    def _draw(self, size: int, firsts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ends = np.cumsum(counts)
        spots = self.rng.integers(0, ends[-1], size)
        parts = np.searchsorted(ends, spots, side="right")
        return parts, spots - (ends - counts)[parts] + firsts[parts]

    def _blanks(self, parts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        if all(shard.spotless for shard in self.shards):
            return parts[:0]
        return np.flatnonzero(~self.memory.records["valid"][parts, numbers % self.capacity])

    def _rows(self, parts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        if isinstance(self.cut, Windows):
            return numbers
        rows = np.empty(len(numbers), np.int64)
        for shard in self.shards:
            mine = parts == shard.part
            rows[mine] = shard.rows_at(numbers[mine])
        return rows

    def _extent(self) -> tuple[np.ndarray, np.ndarray]:
        """The first item of each shard, and how many there are."""
        return np.array([shard.first for shard in self.shards]), np.array([shard.count for shard in self.shards])

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
