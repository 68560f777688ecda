"""Looking back at a run on Kafka: its ledger, its updates done again, its episodes. The log is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millstream import assembly
from millstream.actor import splicing
from millstream.assembly import Wiring
from millstream.config import Experiment
from millstream.control import journal
from millstream.control.ledger import Ledger, balance
from millstream.core.clock import SystemClock
from millstream.core.data import Episode, Rollout
from millstream.core.errors import CheckpointError, RunError
from millstream.core.ports import Clock
from millstream.core.topics import METRICS_ACTORS, Report
from millstream.hosts import shell
from millstream.learner.checkpoint import Checkpoints
from millstream.learner.course import Course
from millstream.learner.replaying import Nobody, Replayed, Replaying
from millstream.replay.admission import objection
from millstream.streaming import Known, cluster_of, find
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.history import reread, scan
from millstream.wires.kafka.reading import Experiences, source_of
from millstream.wires.kafka.reports import Reports
from millstream.wires.kafka.topics import LANES
from millstream.wires.memory import MemoryBus, MemoryPolicies

_SILENT = 5.0
"""Seconds without a sign of life after which an actor's life is over."""


def ledger(config: Experiment, folder: Path) -> Ledger:
    """Where every step of a run went, counted anew from the log and the journal."""
    clock = SystemClock()
    known = find(config, folder.name, clock)
    cluster = cluster_of(config)
    logged = scan(cluster, known.names, known.run)
    published = {each.identity: each.steps for each in logged}
    entries = journal.read(_journal(folder))
    return balance(entries, published, _ended_lives(cluster, known, clock), logged.bytes)


def _journal(folder: Path) -> Path:
    path = folder / "journal.jsonl"
    if not path.exists():
        raise RunError(f"{folder} has no journal of what was trained: look where the learner of {folder.name} runs")
    return path


def _ended_lives(cluster: Cluster, known: Known, clock: Clock) -> dict[tuple[int, int], int]:
    """Lives of actors that are over -> the steps that they told of."""
    told: dict[tuple[int, int], Report] = {}
    reports = Reports(cluster, METRICS_ACTORS.name, known.run, known.created_at)
    try:
        for delivery in reports.catch_up():
            if delivery.message.get("kind") == "heartbeat" and "made" in delivery.message:
                _, _, index = delivery.message["worker"].rpartition("-")
                told[int(index), delivery.message["epoch"]] = delivery.message
    finally:
        reports.close()
    last = {index: max(epoch for other, epoch in told if other == index) for index, _ in told}
    quiet = clock.now() - _SILENT
    return {
        (index, epoch): beat["made"]
        for (index, epoch), beat in told.items()
        if epoch < last[index] or beat["at"] < quiet
    }


# --- episodes --------------------------------------------------------------------------------------------------------


def episodes(config: Experiment, folder: Path) -> Iterator[Episode]:
    """Whole episodes of the log, in the order in which they ended for each actor."""
    known, cluster = find(config, folder.name, SystemClock()), cluster_of(config)
    return splicing.episodes(_rollouts(cluster, known))


def _rollouts(cluster: Cluster, known: Known) -> Iterator[Rollout]:
    places = [(each.source, each.offset) for each in scan(cluster, known.names, known.run)]
    return reread(cluster, known.names, places)


# --- updates done again ----------------------------------------------------------------------------------------------


class _OnlyReading(MemoryBus):
    """A bus whose experience is the log. Nothing that is said here reaches the run."""

    def __init__(self, reader: Experiences) -> None:
        super().__init__(1)
        self.reader = reader

    def subscribe(self, topic: Any, group: str) -> Any:
        """The log, whatever is asked for."""
        return self.reader


class _Unheard(MemoryPolicies):
    """Policies and credit that no actor sees."""

    def release(self, actor: int, epoch: int, sequence: int) -> None:
        """The run's own learner has told them."""

    def remember(self, actor: int, epoch: int, sequence: int) -> None:
        """The same."""


def replay(
    config: Experiment,
    folder: Path,
    start: int | None = None,
    told: Callable[[int, int], object] = lambda done, last: None,
) -> Replayed:
    """Train again from the log by the journal, from the beginning or a checkpoint, and compare the weights."""
    clock = SystemClock()
    known, cluster = find(config, folder.name, clock), cluster_of(config)
    spec, policies = assembly.spec_of(config), _Unheard()
    reader = Experiences(cluster, known.names, known.run, policies, None, lambda rollout: objection(rollout, spec))
    wiring = Wiring(_OnlyReading(reader), policies, folder, 0, clock)
    wiring.reread = lambda places: reread(cluster, known.names, places)
    course = Course(journal.read(_journal(folder)))
    ingest, learner = assembly.learning(config, wiring, spec, course, Nobody)
    try:
        if start is not None:
            _continue(wiring, learner, folder, start)
        _check_kept(reader, folder, start)
        replaying = Replaying(ingest, learner)
        if replaying.finished:
            raise RunError(f"{folder.name} has nothing to replay{f' after checkpoint {start}' if start else ''}")
        shell.run([replaying, _Teller(course, told)], clock, stopping=lambda: replaying.finished)
        return replaying.answer()
    finally:
        learner.close()
        reader.close()


class _Teller:
    """Says how far it is."""

    def __init__(self, course: Course, told: Callable[[int, int], object]) -> None:
        self.course, self.told = course, told

    def step(self) -> int:
        """Tell; that is no work."""
        self.told(self.course.redone, self.course.last)
        return 0


def _continue(wiring: Wiring, learner: Any, folder: Path, number: int) -> None:
    _, saved, _, _ = Checkpoints(folder / "checkpoints").load(number)
    learner.restore(saved["learner"])
    for name, companion in wiring.companions().items():
        companion.restore(saved["companions"][name])


def _check_kept(reader: Experiences, folder: Path, start: int | None) -> None:
    """A log that was trimmed says from which checkpoint it can still be read."""
    if start is None:
        reader.seek({source_of(index): 0 for index in range(LANES)})
    gone = reader.trimmed()
    if not gone:
        return
    source, (wanted, oldest) = next(iter(gone.items()))
    able = next((number for number in _numbers(folder) if _begins_later(folder, number, gone)), None)
    advice = "and no checkpoint that is there begins later"
    if able is not None:
        advice = f"but checkpoint {able} begins later: mill replay {folder.name} --from {able}"
    raise CheckpointError(
        f"the log was trimmed: what is kept of {source} begins at {oldest}, {wanted} is needed, {advice}"
    )


def _numbers(folder: Path) -> list[int]:
    return [saved.number for saved in Checkpoints(folder / "checkpoints").saved()]


def _begins_later(folder: Path, number: int, gone: dict[str, tuple[int, int]]) -> bool:
    _, saved, _, _ = Checkpoints(folder / "checkpoints").load(number)
    positions = saved["companions"]["experiences"]["wire"]["positions"]
    return all(positions.get(source, 0) >= oldest for source, (_, oldest) in gone.items())
