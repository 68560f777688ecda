"""The loop that holds environment, replay buffer, agent and parameter server together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from millstream.core.clock import SystemClock
from millstream.core.data import Policy, Version
from millstream.core.errors import ConfigError, RunError
from millstream.core.ports import Clock
from millstream.core.topics import Report
from millstream.hosts import shell
from millstream.learner.checkpoint import Checkpoints
from millstream.loops.worker import Worker
from millstream.parameters.server import ParameterServer
from millstream.running import signals
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder

Mode = Literal["sync", "async"]
Watch = Callable[[Mapping[str, Any]], Any]
"""Is given the progress now and then; training stops when it answers False."""


class MainLoop:
    """Trains one agent in one environment.

    environment, replay_buffer, agent: a `DistributedEnvironment`, a `ReplayBufferPool` and a `DistributedAgent`, or
    objects of your own with the same methods. parameter_server: where policies are published and found; without one the
    loop has its own. folder: where checkpoints go when no other place is named.
    """

    def __init__(
        self,
        environment: Any,
        replay_buffer: Any,
        agent: Any,
        parameter_server: Any = None,
        *,
        folder: str | Path = "checkpoints",
        clock: Clock | None = None,
    ):
        self.environment, self.replay_buffer, self.agent = environment, replay_buffer, agent
        self.parameter_server = self._server() if parameter_server is None else parameter_server
        self.folder, self.clock = Path(folder), clock or SystemClock()
        self.stopped_by: str | None = None
        self._stop, self._paused = threading.Event(), threading.Event()
        self._workers: list[Worker] = []
        self._closed, self._looking = False, threading.Lock()
        self._totals: dict[int, Mapping[str, int]] = {}
        self._progress = Progress(started_at=self.clock.now())
        self._recorder = Recorder(lambda limit: self._reports(), [], self._progress)

    # --- what people do ----------------------------------------------------------------------------------------------

    def run_training(
        self,
        total_steps: int,
        mode: Mode = "sync",
        *,
        target: float | None = None,
        checkpoint_every: int = 0,
        on_progress: Watch | None = None,
    ) -> Mapping[str, Any]:
        """Train until so many steps were made in all, the last 100 episodes have a mean of `target`, or it is stopped.

        "sync" plays and learns in turn: no policy is ever behind, and what is inline repeats bit for bit. "async" plays
        on in the background while the agent learns. SIGINT and SIGTERM stop it after the step that is under way.
        """
        if mode not in get_args(Mode):
            raise ConfigError(f"training is {' or '.join(get_args(Mode))}, got {mode!r}")
        if total_steps < 1 or checkpoint_every < 0:
            raise ConfigError(
                f"training takes at least 1 step, and checkpoints come every 0 or more; "
                f"got total_steps={total_steps} and checkpoint_every={checkpoint_every}"
            )
        self._stop.clear()
        self.stopped_by = self._progress.target_reached = None
        self._progress.total_steps, self._progress.target = total_steps, target
        with signals(self._interrupted):
            self._open()
            self._share(total_steps)
            self._keep_every(checkpoint_every)
            self._run(mode, _Watching(self, on_progress))
        self._stopped("steps")
        return self.get_training_progress()

    def evaluate_policy(self, episodes: int = 10, *, seed: int = 10_000, stochastic: bool = False) -> Mapping[str, Any]:
        """Mean, IQM and 95 % interval over episodes apart from training."""
        self._open()
        agent = self._judged()
        policy = Policy(Version(0, 0), agent.parameters())
        return self.environment.evaluate(agent, policy, episodes, seed, stochastic)

    def save_checkpoint(self, folder: str | Path | None = None) -> Path:
        """Write all that is needed to go on, whole or not at all; between two updates only."""
        self._open()
        self._finish_updates()
        number = self._made()
        kept = {"workers": [worker.snapshot() for worker in self._workers], "progress": self._progress.snapshot()}
        path = Checkpoints(Path(folder or self.folder)).save(number, kept, {"loop": type(self).__name__})
        self._reopen(number)
        return path

    def load_checkpoint(self, folder: str | Path | None = None) -> int:
        """Go on from the newest whole checkpoint in a folder; how many steps had been made by then."""
        if self._made():  # whatever was learnt here is given up
            self._workers = []
        self._open()
        number, kept, about, _ = Checkpoints(Path(folder or self.folder)).load()
        if len(kept["workers"]) != len(self._workers) or about["loop"] != type(self).__name__:
            raise ConfigError(
                f"the checkpoint is of a {about['loop']} with {len(kept['workers'])} workers, "
                f"this is a {type(self).__name__} with {len(self._workers)}"
            )
        for worker, saved in zip(self._workers, kept["workers"], strict=True):
            worker.restore(saved)
        self._progress.restore(kept["progress"])
        self._reopen(number)
        return number

    def get_training_progress(self) -> Mapping[str, Any]:
        """How far it is, how well it does, and what each part counts."""
        parts = {"environment": self.environment, "replay_buffer": self.replay_buffer}
        found = {name: _statistics(part) for name, part in parts.items()}
        with self._looking:
            self._recorder.step()
            view = self._progress.view(self.clock.now())
        return {
            **view,
            "made": self._made(),
            "paused": self._paused.is_set(),
            "stopped_by": self.stopped_by,
            "workers": [_statistics(worker.agent) for worker in self._workers],
            **found,
            "parameter_server": _statistics(self.parameter_server),
        }

    def stop_training(self) -> None:
        """End `run_training` after the step that is under way. From any thread."""
        self._stopped("stopped")
        self._stop.set()

    def pause_training(self) -> None:
        """Let everything rest. From any thread."""
        self._paused.set()

    def resume_training(self) -> None:
        """Let it go on."""
        self._paused.clear()

    def close(self) -> None:
        """Finish the update that is under way, end the workers and let go of everything."""
        self._close(finish=True)

    def __enter__(self) -> MainLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(finish=error is None)  # what failed would fail again, and hide why

    # --- inside ------------------------------------------------------------------------------------------------------

    def _close(self, finish: bool) -> None:
        with ExitStack() as stack:  # the last goes first, and all of them go
            for worker in self._workers:
                for part in (worker.environment, *([worker.agent] if finish else [])):
                    if hasattr(part, "close"):
                        stack.callback(part.close)
            self._workers, self._closed = [], True

    def _server(self) -> Any:
        """The server of a loop that was given none: a store of policies."""
        return ParameterServer()

    def _check_open(self) -> None:
        if self._closed:
            raise RunError("this loop was closed; make a new one, and load its checkpoint")

    def _keep_every(self, steps: int) -> None:
        """Write checkpoints while training."""
        keeping = Keeping(self, steps)
        for worker in self._workers:
            worker.at_rest = keeping.step

    def _judged(self) -> Any:
        """The agent with all that was learnt by now."""
        return self.agent

    def _open(self) -> None:
        """Connect the parts, once."""
        self._check_open()
        if self._workers:
            return
        latest = self.parameter_server.latest()
        if latest is not None and hasattr(self.agent, "set_parameters"):
            self.agent.set_parameters(latest.params)
        self._workers = [Worker(self.environment, self.replay_buffer, self.agent, self.parameter_server, self.clock)]

    def _run(self, mode: Mode, *always: Any) -> None:
        with self._workers[0].apart() if mode == "async" else nullcontext():
            shell.run([*self._workers, *always], self.clock, self._over, self._may_step, rotate=False)
            self._finish_updates()

    def _made(self) -> int:
        """Steps that came into the buffers."""
        return sum(worker.made for worker in self._workers)

    def _share(self, total_steps: int) -> None:
        """Tell workers how far to go."""
        for worker in self._workers:
            worker.limit = total_steps
            if hasattr(worker.agent, "learn_for"):
                worker.agent.learn_for(total_steps)

    def _over(self) -> bool:
        if self._progress.target_reached:
            self._stopped("target")
            return True
        return self._stop.is_set() or self._all_made()

    def _all_made(self) -> bool:
        return all(worker.done for worker in self._workers)

    def _may_step(self, role: Any) -> bool:
        return not (isinstance(role, Worker) and self._paused.is_set())

    def _finish_updates(self) -> None:
        """Bring what was begun to its end: nothing is kept or left half done."""
        for worker in self._workers:
            self._finish(worker)

    def _finish(self, worker: Worker) -> None:
        while not getattr(worker.agent, "between_updates", True) and worker.agent.step():
            continue

    def _reopen(self, number: int) -> None:
        for worker in self._workers:
            worker.reopen(number)

    def _reports(self) -> list[Report]:
        return [
            self._summed(index, report) if report["kind"] == "update" else report
            for index, worker in enumerate(self._workers)
            for report in worker.reports()
        ]

    def _summed(self, index: int, report: Report) -> Report:
        """Counts of all workers together in the place of one worker's own."""
        names = ("update", "steps", "stale", "samples")
        self._totals[index] = {name: report[name] for name in names}
        return {**report, **{name: sum(each[name] for each in self._totals.values()) for name in names}}

    def _interrupted(self, name: str) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt  # the second time means it
        self._stopped("interrupted")
        self._stop.set()

    def _stopped(self, by: str) -> None:
        self.stopped_by = self.stopped_by or by


class _Watching:
    """The role that takes reports, and shows progress to whoever asked."""

    def __init__(self, loop: MainLoop, watch: Watch | None):
        self.loop, self.watch, self._updates = loop, watch, -1

    def step(self) -> int:
        """Once an update."""
        with self.loop._looking:
            self.loop._recorder.step()
        if self.watch is not None and self.loop._progress.updates != self._updates:
            self._updates = self.loop._progress.updates
            if self.watch(self.loop.get_training_progress()) is False:
                self.loop._stopped("callback")
                self.loop._stop.set()
        return 0


class Keeping:
    """Writes a checkpoint every so many steps, when nothing is half done."""

    def __init__(self, loop: MainLoop, every: int):
        self.loop, self.every = loop, every
        self._due = loop._made() + every

    def step(self) -> int:
        """Look whether it is time."""
        if not self.every or self.loop._made() < self._due:
            return 0
        self._due = self.loop._made() + self.every
        self.loop.save_checkpoint()
        return 1


def _statistics(part: Any) -> Any:
    """What a part counts, as plain values; None where it does not say."""
    if not hasattr(part, "statistics"):
        return None
    found = part.statistics()
    return asdict(found) if is_dataclass(found) and not isinstance(found, type) else dict(found)
