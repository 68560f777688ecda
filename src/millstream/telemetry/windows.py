"""Small summaries of a stream of numbers that stay small however long a run gets."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping


class Rate:
    """How fast a counter grows, over the last seconds."""

    def __init__(self, seconds: float = 10.0, grain: float = 0.25) -> None:
        self.seconds = seconds
        self.grain = grain
        self._marks: deque[tuple[float, float]] = deque()
        self._last: tuple[float, float] | None = None

    def add(self, at: float, count: float) -> None:
        """The counter stood at `count`; clocks of several processes may disagree a little, so time never goes back."""
        at = max(at, self._last[0]) if self._last else at
        self._last = (at, count)
        if not self._marks or at - self._marks[-1][0] >= self.grain:
            self._marks.append(self._last)
        while len(self._marks) > 1 and self._marks[1][0] <= at - self.seconds:
            self._marks.popleft()

    def per_second(self, now: float | None = None) -> float | None:
        """None before two moments are known. With `now`, a counter that stands still slows down."""
        if self._last is None:
            return None
        (start, first), (end, last) = self._marks[0], self._last
        span = max(end, now or end) - start
        return (last - first) / span if end > start else None


class RecentSums:
    """Sums by name over the last seconds, kept in buckets of a second so that a report costs next to nothing."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._buckets: deque[tuple[int, dict[str, float]]] = deque()

    def add(self, at: float, amounts: Mapping[str, float]) -> None:
        """Count these amounts."""
        second = max(int(at), self._buckets[-1][0]) if self._buckets else int(at)
        if not self._buckets or self._buckets[-1][0] != second:
            self._buckets.append((second, {}))
            while self._buckets[0][0] <= second - self.seconds:
                self._buckets.popleft()
        sums = self._buckets[-1][1]
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0.0) + amount

    def totals(self) -> dict[str, float]:
        """The sums, in the order in which the names first appeared."""
        totals: dict[str, float] = {}
        for _, sums in self._buckets:
            for name, amount in sums.items():
                totals[name] = totals.get(name, 0.0) + amount
        return totals


class RecentMost:
    """The greatest number of the last seconds, kept in buckets of a second too."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._buckets: deque[tuple[int, float]] = deque()

    def add(self, at: float, number: float) -> None:
        """One more."""
        second = max(int(at), self._buckets[-1][0]) if self._buckets else int(at)
        if self._buckets and self._buckets[-1][0] == second:
            number = max(number, self._buckets.pop()[1])
        self._buckets.append((second, number))
        while self._buckets[0][0] <= second - self.seconds:
            self._buckets.popleft()

    def most(self) -> float | None:
        """None before there was any."""
        return max((number for _, number in self._buckets), default=None)


class Pauses:
    """How long a run has stood still, and how much of that fell between two reports of one worker."""

    def __init__(self) -> None:
        self._total = 0.0
        self._since: float | None = None
        self._seen: dict[str, float] = {}

    def turn(self, at: float) -> None:
        """A pause begins, or the one that began ends."""
        self._total, self._since = self._until(at), at if self._since is None else None

    def since_last(self, worker: str, at: float) -> float:
        """Seconds of pause since this worker last reported."""
        total = self._until(at)
        paused = total - self._seen.get(worker, 0.0)
        self._seen[worker] = total
        return max(0.0, paused)

    def _until(self, at: float) -> float:
        return self._total + (max(0.0, at - self._since) if self._since is not None else 0.0)


class Curve:
    """A whole history in at most `points` means of equally many numbers: when it is full, neighbours merge."""

    def __init__(self, points: int = 128) -> None:
        self.points = points
        self.stride = 1
        self._means: list[float] = []
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """The next number."""
        self._sum += value
        self._count += 1
        if self._count < self.stride:
            return
        self._means.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._means) == self.points:
            self._means = [(a + b) / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)]
            self.stride *= 2

    def values(self) -> list[float]:
        """The means, oldest first; the last may stand for fewer numbers than the others."""
        return [*self._means, self._sum / self._count] if self._count else list(self._means)
