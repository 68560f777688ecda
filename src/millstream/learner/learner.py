"""The learner: one minibatch a step, one policy an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from millstream.core import tree
from millstream.core.data import Array, Batch, Gradients, Lesson, Policy, Version
from millstream.core.errors import Diverged
from millstream.core.ports import Agent, Clock, Corrects, PolicyStore, Snapshots
from millstream.learner import batches
from millstream.learner.course import Course, Refused
from millstream.learner.ledger import HASHED, Counters, fingerprint, is_hashed, line
from millstream.learner.refusals import Refusals
from millstream.learner.sources import Source, Taken

STAGES = ("wait", "prepare", "gradients", "apply", "publish", "checkpoint")


@dataclass
class Update:
    """An update under way."""

    taken: Taken
    batch: Batch
    plan: Iterator[np.ndarray]
    hyper: Any
    corrected: int = 0
    """Steps that were too old and are corrected."""
    lessons: list[Lesson] = field(default_factory=list)


class Keeping(Protocol):
    """Who saves a learner."""

    def save_when_due(self, learner: Learner) -> None:
        """Called between two updates."""

    def save(self, learner: Learner) -> None:
        """Save now."""


class Learner:
    """Takes rollouts from the replay, gives policies to the store.

    With a course it first redoes what the journal has, and tells nobody of what they know already.
    """

    def __init__(
        self,
        *,
        agent: Agent[Any],
        state: Any,
        hyper: Any,
        source: Source,
        policies: PolicyStore,
        rng: Generator,
        clock: Clock,
        epoch: int,
        report: Callable[[dict[str, Any]], object],
        journal: Callable[[dict[str, Any]], None],
        saver: Keeping,
        let_go: Callable[[], object] = lambda: None,
        refused: Callable[[], Sequence[Refused]] = tuple,
        course: Course | None = None,
        total_steps: int,
        schedule: int | None = None,
        shards: int = 2,
        threads: int = 1,
        hashed: int = HASHED,
    ):
        self.agent, self.state, self.hyper, self.source, self.policies = agent, state, hyper, source, policies
        self.rng, self.clock, self.epoch = rng, clock, epoch
        self.report, self.journal, self.saver, self.let_go = report, journal, saver, let_go
        self.total_steps, self.shards, self.hashed = total_steps, shards, hashed
        self.schedule = total_steps if schedule is None else schedule
        """Steps over which hyper-parameters go from their first values to their last."""
        self.counters, self.revision = Counters(), 0
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, "shard") if threads > 1 else None
        self._update: Update | None = None
        self._idle_since: float | None = None
        self._published = False
        self._refusals, self.course = Refusals(refused), course
        if course is not None:
            course.tell = self._event

    @property
    def version(self) -> Version:
        """Of the newest policy."""
        return Version(self.epoch, self.counters.updates)

    @property
    def finished(self) -> bool:
        """Whether the run's steps are all trained."""
        return self._update is None and self.counters.trained >= self.total_steps and not self.redoing

    @property
    def between_updates(self) -> bool:
        """Whether nothing is half done: the moment for checkpoints."""
        return self._update is None

    @property
    def redoing(self) -> bool:
        """Whether updates of an earlier learner are left to redo: until then policies of it are the newest."""
        return self.course is not None and self.course.redoing

    def step(self) -> int:
        """Publish the first policy, begin an update, or learn from one minibatch."""
        if self._update is not None:
            return self._learn(self._update)
        if not self._published and not self.redoing:
            self._publish()
            return 1
        return 0 if self.finished else self._begin()

    def snapshot(self) -> Mapping[str, Any]:
        """All that the next update depends on."""
        return {
            "state": self.state,
            "counters": self.counters,
            "rng": self.rng.bit_generator.state,
            "revision": self.revision,
            "refused": self._refusals.snapshot(),
            **({"source": self.source.snapshot()} if isinstance(self.source, Snapshots) else {}),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot that was read from a file."""
        self.state = tree.rebuild(self.state, snapshot["state"])
        self.counters = Counters(**snapshot["counters"])
        self.rng.bit_generator.state = snapshot["rng"]
        self.revision = snapshot["revision"]
        if "refused" in snapshot:
            self._refusals.restore(snapshot["refused"])
        if self.course is not None:
            self.course.begin(self.counters.updates)
        if isinstance(self.source, Snapshots) and "source" in snapshot:
            self.source.restore(snapshot["source"])

    def close(self) -> None:
        """Bring an update that was begun to its end and save; whatever happens, let threads and lock go."""
        try:
            while self._update is not None:
                self._learn(self._update)
            self.saver.save(self)
        finally:
            if self._pool is not None:
                self._pool.shutdown()
            self.let_go()

    def _begin(self) -> int:
        """Start an update as soon as there is enough for one."""
        hyper = self._hyper_now()
        taken = self.source.take(self.epoch, self.counters.updates, hyper)
        if taken is None:
            if self._idle_since is None:
                self._idle_since = self.clock.monotonic()
            return 0
        started = self.clock.monotonic()
        if self._idle_since is not None:
            self.seconds["wait"] += started - self._idle_since
            self._idle_since = None
        batch, corrected = self._prepare(taken, hyper)
        size = batches.rows_of_a_minibatch(batch, hyper.minibatch, self.agent.sequences)
        plan = batches.minibatches(batch, size, hyper.epochs, self.rng)
        self._update = Update(taken, batch, plan, hyper, corrected)
        self.seconds["prepare"] += self.clock.monotonic() - started
        return len(taken.rollouts)

    def _prepare(self, taken: Taken, hyper: Any) -> tuple[Batch, int]:
        """The batch of an update, and how many of its steps were too old and are corrected."""
        if not taken.corrected:
            self.state, batch = self.agent.prepare(self.state, taken.rollouts, hyper)
            return batch, 0
        assert isinstance(self.agent, Corrects)
        stale = [rollout.stamp in taken.corrected for rollout in taken.rollouts]
        self.state, batch = self.agent.correct(self.state, taken.rollouts, stale, hyper)
        return batch, sum(rollout.count for rollout, old in zip(taken.rollouts, stale, strict=True) if old)

    def _learn(self, update: Update) -> int:
        rows = next(update.plan, None)
        if rows is None:
            return self._end(update)
        started = self.clock.monotonic()
        gradients, lesson = self._gradients(update, rows)
        computed = self.clock.monotonic()
        self.state = self.agent.apply(self.state, gradients, update.hyper)
        self.seconds["gradients"] += computed - started
        self.seconds["apply"] += self.clock.monotonic() - computed
        update.lessons.append(lesson)
        self.counters.samples += len(rows) * (update.taken.rollouts[0].steps if self.agent.sequences else 1)
        limit = getattr(update.hyper, "target_kl", None)
        if limit is not None and lesson.get("approx_kl", 0.0) > 1.5 * limit:
            return self._end(update)
        return len(rows)

    def _gradients(self, update: Update, rows: np.ndarray) -> tuple[Gradients, Lesson]:
        """Shards at once, added in a fixed order."""
        grain = 1 if self.agent.sequences else batches.grain_of(self.agent)
        parts = batches.cut(rows, self.shards, grain)

        def one(part: np.ndarray) -> tuple[Gradients, Lesson]:
            return self.agent.gradients(self.state, batches.take(update.batch, part), update.hyper)

        found = self._side_by_side(one, parts)
        if len(found) == 1:
            return found[0]
        weights = batches.shares(update.batch, parts)
        total: Array = found[0][0]
        total *= weights[0]
        for (gradients, _), weight in zip(found[1:], weights[1:], strict=True):
            gradients *= weight
            total += gradients
        return total, mean_lesson([lesson for _, lesson in found], weights)

    def _side_by_side(
        self, one: Callable[[np.ndarray], tuple[Gradients, Lesson]], parts: Sequence[np.ndarray]
    ) -> list[tuple[Gradients, Lesson]]:
        """Every thread takes the next shard that is left, so that one which an actor slows down holds up nobody."""
        found: list[Any] = [None] * len(parts)
        left = iter(range(len(parts)))

        def work() -> None:
            for index in left:
                found[index] = one(parts[index])

        helpers = [self._pool.submit(work) for _ in range(min(self.threads, len(parts)) - 1)] if self._pool else []
        work()
        for helper in helpers:
            helper.result()
        return found

    def _end(self, update: Update) -> int:
        """A new policy first, then credit goes back: an actor that may go on finds it."""
        self.counters.take(update.taken)
        self.counters.corrected += update.corrected
        lesson = dict(mean_lesson(update.lessons))
        if hasattr(self.agent, "digest"):
            lesson |= self.agent.digest(update.batch)
        self._check(lesson)
        started = self.clock.monotonic()
        if update.taken.keys is not None and hasattr(self.agent, "priorities"):
            priorities = self.agent.priorities(self.state, update.batch, update.hyper)
            self.source.reprioritise(update.taken.keys, priorities)
        if not self.redoing:
            self._publish()
        self._update = None
        self.source.give_back(update.taken)
        self.seconds["publish"] += self.clock.monotonic() - started
        self._account(update, lesson)
        started = self.clock.monotonic()
        self.saver.save_when_due(self)
        self.seconds["checkpoint"] += self.clock.monotonic() - started
        return max(1, update.taken.steps)

    def _check(self, lesson: Lesson) -> None:
        wrong = [name for name, value in lesson.items() if not np.isfinite(value)]
        if wrong:
            raise Diverged(
                f"{', '.join(wrong)} became non-finite at update {self.counters.updates}; "
                "resume from the last checkpoint with a smaller learning_rate"
            )

    def _publish(self) -> None:
        params = self.agent.policy(self.state, self._hyper_now())
        self.policies.publish(Policy(self.version, params, self.counters.trained))
        self._published = True

    def _hyper_now(self) -> Any:
        """Hyper-parameters as their schedules have them by now."""
        return self.hyper.at(self.counters.trained / self.schedule) if hasattr(self.hyper, "at") else self.hyper

    def _account(self, update: Update, lesson: Lesson) -> None:
        """Write down and tell what was done, or compare it with what was written down before."""
        entry = update.taken.entry
        self._refusals.collect()
        refused = self._refusals.counted(None if entry is None else entry.refused)
        self.counters.refuse(refused)
        if entry is None:
            self._write_down(update, refused)
            self._tell(update, lesson)
        elif self.course is not None:
            self.course.done(entry, self._fingerprint)
            self.seconds = dict.fromkeys(STAGES, 0.0)

    def _write_down(self, update: Update, refused: Sequence[Refused]) -> None:
        """The journal: which rollouts were used or dropped, in order."""
        hashed = self._fingerprint() if is_hashed(self.counters.updates, self.hashed) else None
        self.journal(line(self.counters, self.version, self.revision, update.taken, refused, hashed))

    def _fingerprint(self) -> str:
        return fingerprint(self.agent.policy(self.state, self.hyper).tensors)

    def _event(self, level: str, text: str) -> None:
        self.report({"kind": "event", "level": level, "text": text, "at": self.clock.now()})

    def _tell(self, update: Update, lesson: Lesson) -> None:
        self.report(
            {
                "kind": "update",
                "update": self.counters.updates,
                "version": [self.epoch, self.counters.updates],
                "steps": self.counters.trained,
                "stale": self.counters.stale,
                "refused": dict(self.counters.refused),
                "corrected": self.counters.corrected,
                "samples": self.counters.samples,
                "lag": update.taken.lag,
                "lag_max": update.taken.lag_max,
                "queue": self.source.waiting,
                "lesson": lesson,
                "hyper": {name: getattr(update.hyper, name, None) for name in ("learning_rate", "entropy")},
                "seconds": self.seconds,
                "at": self.clock.now(),
            }
        )
        self.seconds = dict.fromkeys(STAGES, 0.0)


def mean_lesson(lessons: Sequence[Lesson], weights: Sequence[float] | None = None) -> Lesson:
    """Lessons of one kind, averaged."""
    if not lessons:
        return {}
    weights = weights or [1 / len(lessons)] * len(lessons)
    return {
        name: sum(lesson[name] * weight for lesson, weight in zip(lessons, weights, strict=True)) for name in lessons[0]
    }
