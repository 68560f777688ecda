"""When a checkpoint is due, what belongs into it, and how a run continues from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.core.data import Policy
from millstream.core.errors import CheckpointError
from millstream.core.ports import Clock, Snapshots
from millstream.core.spec import EnvSpec
from millstream.learner.checkpoint import Checkpoints
from millstream.learner.learner import Learner


class Beside:
    """Several things that are kept as one, and restored in their order."""

    def __init__(self, parts: Mapping[str, Snapshots]):
        self.parts = parts

    def snapshot(self) -> Mapping[str, Any]:
        """Of each."""
        return {name: part.snapshot() for name, part in self.parts.items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Each to where it was."""
        for name, part in self.parts.items():
            part.restore(snapshot[name])


class Saver:
    """Saves a learner, and with it the companions of its process."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        about: Mapping[str, Any],
        keep: Callable[[Policy], object],
        report: Callable[[dict[str, Any]], object],
        clock: Clock,
        steps: int,
        seconds: float,
        companions: Callable[[], Mapping[str, Snapshots]] = dict,
        asked: Callable[[], int] = int,
    ):
        self.checkpoints, self.about, self.keep, self.report = checkpoints, dict(about), keep, report
        self.clock, self.steps, self.seconds, self.companions = clock, steps, seconds, companions
        self._saved_steps, self._saved_at = 0, clock.monotonic()
        self._saved_number: int | None = None
        self.asked, self._answered = asked, asked()

    def restore(self, learner: Learner) -> bool:
        """Continue from the newest checkpoint that is whole; False when there is none at all."""
        if not self.checkpoints.saved():
            return False
        number, saved, about, warnings = self.checkpoints.load()
        self._check(about)
        learner.restore(saved["learner"])
        for name, companion in self.companions().items():
            if name in saved["companions"]:
                companion.restore(saved["companions"][name])
        self._reopen(number)
        self._saved_steps, self._saved_number = learner.counters.trained, number
        for warning in warnings:
            self._tell("event", level="warning", text=warning)
        self._tell("event", level="info", text=f"continuing from checkpoint {number}")
        return True

    def save_when_due(self, learner: Learner) -> None:
        """Called between two updates."""
        by_steps = self.steps and learner.counters.trained - self._saved_steps >= self.steps
        by_time = self.seconds and self.clock.monotonic() - self._saved_at >= self.seconds
        by_hand = self.asked() > self._answered
        if by_steps or by_time or by_hand or learner.finished:
            self.save(learner)

    def save(self, learner: Learner) -> None:
        """Write a checkpoint and the policy that goes with it, unless this very update is saved already."""
        number, steps = learner.counters.updates, learner.counters.trained
        if number == self._saved_number:
            return
        companions = {name: companion.snapshot() for name, companion in self.companions().items()}
        kept = {"learner": learner.snapshot(), "companions": companions}
        path = self.checkpoints.save(number, kept, {**self.about, "epoch": learner.epoch, "steps": steps})
        self._reopen(number)
        self.keep(Policy(learner.version, learner.agent.policy(learner.state, learner.hyper), steps))
        self._saved_steps, self._saved_at, self._saved_number = steps, self.clock.monotonic(), number
        self._answered = self.asked()
        self._tell("checkpoint", update=number, steps=steps, path=str(path))

    def _reopen(self, number: int) -> None:
        """What cannot be kept starts anew, in the run that goes on just as in one that resumes."""
        for companion in self.companions().values():
            if hasattr(companion, "reopen"):
                companion.reopen(number)

    def _check(self, about: Mapping[str, Any]) -> None:
        difference = EnvSpec.from_json(about["spec"]).difference(EnvSpec.from_json(self.about["spec"]))
        if about["algo"] != self.about["algo"] or difference:
            raise CheckpointError(
                f"the checkpoint is of {about['algo']} on {about['env']}, this experiment is "
                f"{self.about['algo']} on {self.about['env']}{': ' + difference if difference else ''}; "
                "resume it with its own experiment, or start a new run"
            )

    def _tell(self, kind: str, **report: Any) -> None:
        self.report({"kind": kind, **report, "at": self.clock.now()})
