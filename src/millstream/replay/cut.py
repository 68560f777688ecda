"""What one item of a table is: a whole rollout, or so many steps of one slot."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.core.errors import ConfigError


@dataclass(frozen=True)
class Whole:
    """A rollout as it came, in the memory that it came in."""


@dataclass(frozen=True)
class Windows:
    """Up to `steps` steps from any step on; an episode's end cuts it short, and so does the newest step."""

    steps: int = 1

    def __post_init__(self) -> None:
        _check(self.steps)


@dataclass(frozen=True)
class Sequences:
    """`steps` steps in a row of one rollout, whatever ends inside; every step is in at least one."""

    steps: int

    def __post_init__(self) -> None:
        _check(self.steps)


def transitions() -> Windows:
    """One step."""
    return Windows(1)


def n_step(steps: int) -> Windows:
    """So many steps, for returns that look ahead."""
    return Windows(steps)


Cut = Whole | Windows | Sequences


def _check(steps: int) -> None:
    if steps < 1:
        raise ConfigError(f"an item has at least 1 step, got {steps}")
