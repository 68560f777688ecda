"""A run from its folder to its result: the root of its process tree, whatever its topology."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from millstream import assembly
from millstream import config as configuration
from millstream.config import Experiment
from millstream.control import journal
from millstream.control.desk import SOCKET, Desk
from millstream.control.lock import RunLock
from millstream.control.state import Desired, Intent
from millstream.core.clock import SystemClock
from millstream.core.ports import Clock, MetricSink, Role
from millstream.core.topics import METRICS_ACTORS, METRICS_TRAINING, Report
from millstream.crew import crew_of
from millstream.hosts import shell
from millstream.hosts.life import signals
from millstream.learner.checkpoint import Checkpoints
from millstream.telemetry.episodes import EPISODES, EpisodesCsv
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder
from millstream.telemetry.store import STORE, SqliteStore
from millstream.telemetry.tensorboard import TensorBoard

SUPERVISING = (5e-3, 20e-3)
"""How long the root rests: the processors belong to those who work, and nobody waits for it."""


class Watcher(MetricSink, Role, Protocol):
    """Shows a run while it happens."""


Watch = Callable[[Progress, Clock], Watcher]


@dataclass(frozen=True)
class Callbacks:
    """A user's functions. One that answers False stops the run."""

    on_update: Callable[[Report], Any] | None = None
    on_episode: Callable[[Report], Any] | None = None
    on_evaluation: Callable[[Report], Any] | None = None


@dataclass
class _Caller:
    """The sink that calls them. One that has answered False is not called again."""

    callbacks: Callbacks
    intent: Intent
    _done: list[Callable[[Report], Any]] = field(default_factory=list)

    def write(self, report: Report) -> None:
        """Call what this report is for."""
        kind = report["kind"]
        if kind == "update":
            self._call(self.callbacks.on_update, report)
        elif kind == "evaluation":
            self._call(self.callbacks.on_evaluation, report)
        elif kind == "actor" and self.callbacks.on_episode:
            for slot, total, length in report["episodes"]:
                about = {"actor": report["actor"], "slot": slot, "return": total, "length": length, "at": report["at"]}
                self._call(self.callbacks.on_episode, about)

    def close(self) -> None:
        """Nothing is held."""

    def _call(self, function: Callable[[Report], Any] | None, report: Report) -> None:
        if function is None or function in self._done or function(report) is not False:
            return
        self._done.append(function)
        if not self.intent.desired.stopping:
            self.intent.desired = self.intent.desired.change(stopping=True, stopped_by="callback")


@dataclass
class _Herald:
    """The role that tells when the run is paused and when it goes on, for its own terminal as for its files."""

    intent: Intent
    recorder: Recorder
    clock: Clock

    def step(self) -> int:
        """Compare what should be with what was told last."""
        paused = self.intent.desired.paused and not self.intent.desired.stopping
        if paused == self.recorder.progress.paused:
            return 0
        over = "the pause ends with the run" if self.intent.desired.stopping else "goes on after a pause"
        text = "paused; mill resume lets it go on" if paused else over
        self.recorder.write({"kind": "event", "level": "info", "text": text, "paused": paused, "at": self.clock.now()})
        return 1


@dataclass(frozen=True)
class Outcome:
    """How training went, before anything is judged."""

    progress: Progress
    stopped_by: str
    """target, steps, stopped, interrupted or callback."""
    reason: str | None = None
    """Why, in the words of whoever stopped it."""


@dataclass
class Root:
    """Supervisor, recorder and desk of one run."""

    config: Experiment
    folder: Path
    started_at: float
    watch: Sequence[Watch] = ()
    callbacks: Callbacks = field(default_factory=Callbacks)
    clock: Clock = field(default_factory=SystemClock)
    elsewhere: Callable[[Intent], Any] | None = None
    """What connects this root to a run whose workers are nobody's children; such a root only records and answers."""

    def run(self) -> Outcome:
        """Train until the target, the steps, a stop, or Ctrl-C; then drain and save."""
        self.intent = Intent(
            Desired(
                actors=self.config.actor.count,
                evaluator=int(assembly.evaluates(self.config)),
                fixed=self.config.topology == "inline",
            )
        )
        self.progress = Progress(
            started_at=self.started_at,
            total_steps=self.config.total_steps,
            target=self.config.target,
            one_process=self.config.topology == "inline",
        )
        lock = RunLock(self.folder)
        try:
            saved_epoch, *counts = self._saved() if self.elsewhere is None else (-1, 0, 0, 0)
            self.resumed_at = counts[0]
            self.first_epoch = self._first_epoch(saved_epoch)
            self.progress.continue_from(*counts)
            with signals(self._interrupt):
                if self.elsewhere is not None:
                    return self._with(self.elsewhere(self.intent), None)
                return self._inline() if self.config.topology == "inline" else self._processes()
        finally:
            lock.close()

    # --- topologies --------------------------------------------------------------------------------------------------

    def _inline(self) -> Outcome:
        """All roles here, in turn. Nothing that is timed decides anything."""
        wiring = assembly.wire_inline(self.config, self.folder, self.first_epoch, self.clock)
        wiring.asked = lambda: self.intent.desired.checkpoints
        recorder = self._recorder(wiring.bus)
        companions: dict[str, Any] = {"recorder": recorder}
        wiring.companions = lambda: companions
        actors = [
            role
            for index in range(self.config.actor.count)
            for role in assembly.build("actor", index, self.config, wiring)
        ]
        companions |= {f"actor-{index}": actor for index, actor in enumerate(actors)}
        work = [*actors, *assembly.build("learner", 0, self.config, wiring)]
        learner: Any = work[-1]
        if assembly.evaluates(self.config):
            work += assembly.build("evaluator", 0, self.config, wiring)
        with self._open(recorder, wiring.bus, lambda: []) as always:
            try:
                shell.run(
                    [*work, *always],
                    self.clock,
                    stopping=lambda: self._ended() or learner.finished,
                    may_step=lambda role: role in always or not self.intent.desired.paused,
                    rotate=False,
                )
            except Exception:
                with suppress(Exception):  # the first error is the one to tell
                    learner.close() if learner.counters.updates else learner.let_go()
                raise
            self._settle("steps" if learner.finished else None)
            assembly.close(work)
        return self.outcome()

    def _processes(self) -> Outcome:
        """A process for the learner and each actor; this one only supervises and records."""
        crew = crew_of(self.config, self.folder, self.first_epoch, self.intent, self.clock)
        return self._with(crew, crew.host)

    def _with(self, crew: Any, host: Any | None) -> Outcome:
        """Record and answer until the run should end; then its workers end, as far as they are ours."""
        recorder = self._recorder(crew.bus)
        workers = host.workers if host is not None else list
        try:
            with self._open(recorder, crew.bus, workers, crew.under_way) as always:
                roles = [*crew.roles(recorder.write), *always]
                shell.run(roles, self.clock, stopping=self._ended, rests=SUPERVISING)
                self._settle(None)
                if host is not None:
                    host.close()
        finally:
            crew.close()
        return self.outcome()

    @contextmanager
    def _open(
        self,
        recorder: Recorder,
        bus: Any,
        workers: Callable[[], Sequence[Any]],
        under_way: Callable[[], int | None] = lambda: None,
    ) -> Iterator[list[Role]]:
        """Recorder, desk and watchers; whatever happens they are closed."""
        views = {"status": lambda request: {**self._status(workers()), "rollouts_under_way": under_way()}}
        desk = Desk(self.folder / SOCKET, self.intent, bus, views, self.clock)
        herald = _Herald(self.intent, recorder, self.clock)
        try:
            yield [recorder, desk, herald, *self.watchers]
            herald.step()
        finally:
            desk.close()
            recorder.close()

    def _recorder(self, bus: Any) -> Recorder:
        self.watchers = [watch(self.progress, self.clock) for watch in self.watch]
        sources = [bus.subscribe(topic, "recorder") for topic in (METRICS_ACTORS, METRICS_TRAINING)]
        caller = _Caller(self.callbacks, self.intent)
        return Recorder(sources, [*self._sinks(), *self.watchers, caller], self.progress)

    def _sinks(self) -> list[MetricSink]:
        store = SqliteStore(self.folder / STORE)
        store.rewind(self.resumed_at)
        anew = self.elsewhere is not None  # all reports are read again from the run's beginning
        rewind = self.resumed_at if self.resumed_at or anew else None
        sinks: list[MetricSink] = [store, EpisodesCsv(self.folder / EPISODES, self.started_at, rewind)]
        settings, tracking = configuration.to_plain(self.config), self.config.tracking
        if tracking.tensorboard:
            sinks.append(TensorBoard(self.folder / "tensorboard", settings))
        if tracking.wandb:
            from millstream.telemetry.tracking import WandbSink

            sinks.append(WandbSink("millstream", self.folder.name, self.folder, settings))
        if tracking.mlflow:
            from millstream.telemetry.tracking import MlflowSink

            sinks.append(MlflowSink("millstream", self.folder.name, settings=settings))
        return sinks

    # --- ending ------------------------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        desired = self.intent.desired
        if not desired.stopping and self.progress.target_reached:
            self._settle("target")
        elif not desired.stopping and self.progress.trained >= self.config.total_steps:
            self._settle("steps")
        return self.intent.desired.stopping

    def _settle(self, stopped_by: str | None, reason: str | None = None) -> None:
        if not self.intent.desired.stopping:
            self.intent.desired = self.intent.desired.change(stopping=True, stopped_by=stopped_by, reason=reason)

    def outcome(self) -> Outcome:
        """How it went so far."""
        return Outcome(self.progress, self.intent.desired.stopped_by or "steps", self.intent.desired.reason)

    def _interrupt(self, name: str) -> None:
        if self.intent.desired.stopping:
            raise KeyboardInterrupt  # the second time means it
        self._settle("interrupted", name)

    # --- what was before ---------------------------------------------------------------------------------------------

    def _saved(self) -> tuple[int, int, int, int]:
        """Epoch, trained, stale and corrected steps of the newest checkpoint."""
        checkpoints = Checkpoints(self.folder / "checkpoints")
        if not checkpoints.saved():
            return -1, 0, 0, 0
        _, state, about, _ = checkpoints.load()
        counters = state["learner"]["counters"]
        return about["epoch"], counters["trained"], counters["stale"], counters.get("corrected", 0)

    def _first_epoch(self, saved: int) -> int:
        """Later than every epoch that this run has seen, or the one that it is a fork of."""
        seen = [saved]
        for entry in journal.read(self.folder / "journal.jsonl"):
            seen += [entry["epoch"], *(epoch for _, epoch, *_ in entry["used"])]
        return max(seen) + 1

    def _status(self, workers: Sequence[Any]) -> dict[str, Any]:
        now = self.clock.now()
        return {
            "run": self.folder.name,
            "pid": os.getpid(),
            "state": _state(self.intent.desired),
            **self.progress.view(now),
            "workers": [{**asdict(worker), "name": worker.name, "alive": worker.alive} for worker in workers],
        }


def _state(desired: Desired) -> str:
    if desired.stopping:
        return "stopping"
    return "paused" if desired.paused else "running"
