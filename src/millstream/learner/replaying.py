"""A journal done again from a log: whether the same rollouts lead to the same weights."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.core.errors import ConfigError
from millstream.core.ports import Role
from millstream.learner.course import Difference
from millstream.learner.learner import Learner


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it."""

    updates: int
    """How many were redone."""
    compared: int
    """How many of them had a hash in the journal."""
    agreed: int
    """How many of those hashes were found again."""
    difference: Difference | None
    """The first that was not."""
    reason: str | None
    """Why the journal could not be followed to its end, if so."""

    @property
    def same(self) -> bool:
        """Whether all was redone and no weights were others."""
        return self.difference is None and self.reason is None


class Nobody:
    """Saves nothing, for learners that only look back."""

    def save_when_due(self, learner: Learner) -> None:
        """Never."""

    def save(self, learner: Learner) -> None:
        """Nothing."""


class Replaying:
    """The role that brings a learner along its course and stops there. What it publishes should reach nobody."""

    def __init__(self, ingest: Role, learner: Learner):
        if learner.course is None:
            raise ConfigError("a learner without a course has nothing to redo; give it one of the run's journal")
        self.ingest, self.learner, self.course = ingest, learner, learner.course

    @property
    def finished(self) -> bool:
        """Whether the course has ended, and the last update of it."""
        return not self.course.redoing and self.learner.between_updates

    def step(self) -> int:
        """Move rollouts, learn from them; 0 while the log gives nothing, and when all is done."""
        if self.finished:
            return 0
        moved = self.ingest.step()
        # a course may be given up while rollouts are moved: what comes then is not of the journal
        return moved if self.finished else moved + self.learner.step()

    def answer(self) -> Replayed:
        """What came of it so far."""
        course = self.course
        return Replayed(course.redone, course.compared, course.agreed, course.difference, course.reason)
