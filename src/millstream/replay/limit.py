"""When a table may be written to and read from: arithmetic that answers yes or no."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.core.errors import ConfigError


@dataclass(frozen=True)
class Free:
    """Always, once there are at least `least` items."""

    least: int = 1

    def may_insert(self, inserted: int, sampled: int, count: int) -> bool:
        """Whether `count` items more may come in."""
        return True

    def may_sample(self, inserted: int, sampled: int, count: int) -> bool:
        """Whether `count` items more may be picked."""
        return inserted >= self.least


@dataclass(frozen=True)
class SamplesPerInsert:
    """Each item is picked `ratio` times on average. Whoever is more than `slack` inserts ahead of the other waits."""

    ratio: float
    least: int = 1
    """Items that must be there before the first is picked; they are not counted in the ratio."""
    slack: float = 1_000.0

    def __post_init__(self) -> None:
        if not self.ratio > 0 or self.least < 1 or not self.slack > 0:
            raise ConfigError(
                f"samples per insert need a ratio and a slack above 0 and at least 1 item, "
                f"got {self.ratio}, {self.slack} and {self.least}"
            )

    def may_insert(self, inserted: int, sampled: int, count: int) -> bool:
        """While readers are not too far behind; what they must wait for always comes in."""
        owed = inserted + count - self.least - sampled / self.ratio
        return inserted < self.least or owed <= max(self.slack, count)

    def may_sample(self, inserted: int, sampled: int, count: int) -> bool:
        """While readers are not too far ahead."""
        if inserted < self.least:
            return False
        ahead = (sampled + count) / self.ratio - (inserted - self.least)
        return ahead <= max(self.slack, count / self.ratio)


@dataclass(frozen=True)
class Lifted:
    """Another limit, which holds nobody back as long as `lifted` says so: what is done again was allowed before."""

    limit: Free | SamplesPerInsert
    lifted: Callable[[], bool]

    def may_insert(self, inserted: int, sampled: int, count: int) -> bool:
        """As the other says, unless it is lifted."""
        return self.lifted() or self.limit.may_insert(inserted, sampled, count)

    def may_sample(self, inserted: int, sampled: int, count: int) -> bool:
        """As the other says, unless it is lifted."""
        return self.lifted() or self.limit.may_sample(inserted, sampled, count)


Limit = Free | SamplesPerInsert | Lifted
