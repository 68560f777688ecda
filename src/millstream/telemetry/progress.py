"""How a run is doing: a running summary, fed by reports and by nothing else.

What decides anything (`target_reached`, `done`) depends on the order and content of the reports only;
time, which comes in as each report's `at`, moves nothing but speeds and shares.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from millstream.core.topics import Report
from millstream.telemetry.windows import Curve, Pauses, Rate, RecentMost, RecentSums

Shares: TypeAlias = dict[str, dict[str, float]]
"""Role ("actors", "learner") -> stage -> share of the time of the last seconds."""
WINDOW = 100
"""How many training episodes `train_return` is the mean of, as everywhere in the field."""


class Progress:
    """Counters, recent returns, speeds and time shares of one run."""

    def __init__(
        self,
        *,
        started_at: float,
        total_steps: int | None = None,
        target: float | None = None,
        one_process: bool = False,
    ) -> None:
        self.started_at = started_at  # seconds since 1970 at which the process began
        self.total_steps = total_steps
        self.target = target
        self.one_process = one_process  # actors and learner take turns, so neither ever waits for the other
        self.made = self.trained = self.stale = self.rolled_back = self.lost = 0
        self.corrected = 0  # of the trained ones, those whose policy was too old
        self.episodes = self.updates = self.samples = self.queue = 0
        self.lesson: Mapping[str, float] = {}
        self.hyper: Mapping[str, float] = {}
        self.version: tuple[int, int] | None = None
        self.best: float | None = None  # the best mean of 100, once there are 100
        self.best_episode: float | None = None
        self.evaluation: Report | None = None
        self.checkpoint: Report | None = None
        self.target_reached: dict[str, float] | None = None
        self.last_at: float | None = None
        self.paused = False
        self.heartbeats: dict[str, float] = {}
        self.curve = Curve()
        self._trained_before = 0  # by earlier processes of this run: no part of this one's speed
        self._pauses = Pauses()
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._before: deque[float] = deque(maxlen=WINDOW)  # the hundred that came before them, for the trend
        self._lengths: deque[int] = deque(maxlen=WINDOW)
        self._rate = Rate()
        self._lags, self._longest_lags = RecentSums(), RecentMost()
        self._stages = {"actors": RecentSums(), "learner": RecentSums()}

    def take(self, report: Report) -> None:
        """Count one report; kinds that mean nothing here are passed over."""
        take = getattr(self, f"_take_{report['kind']}", None)
        if take is None:
            return
        self.last_at = max(self.last_at or self.started_at, report["at"])
        take(report)

    def _take_actor(self, report: Report) -> None:
        self.made += report["steps"]
        self._spend("actors", f"actor-{report['actor']}", report)
        for _, episode_return, length in report["episodes"]:
            self._take_episode(float(episode_return), int(length), report["at"])
        if report["episodes"]:  # a point a report, not an episode: so the curve runs evenly over steps
            self.curve.add(math.fsum(episode[1] for episode in report["episodes"]) / len(report["episodes"]))
        if len(self._returns) >= WINDOW:
            mean = self._mean()
            self.best = mean if self.best is None else max(self.best, mean)

    def _take_episode(self, episode_return: float, length: int, at: float) -> None:
        self.episodes += 1
        if len(self._returns) == WINDOW:
            self._before.append(self._returns[0])
        self._returns.append(episode_return)
        self._lengths.append(length)
        self.best_episode = episode_return if self.best_episode is None else max(self.best_episode, episode_return)
        hoping = self.target is not None and self.target_reached is None and len(self._returns) >= WINDOW
        if hoping and self._mean() >= (self.target or 0.0):
            # trained, not made: the policy that did it had learnt from so many
            self.target_reached = {"steps": self.trained, "seconds": at - self.started_at}

    def _take_update(self, report: Report) -> None:
        # a learner that died came back from an older checkpoint: what it had used or dropped since is gone
        self.rolled_back += max(0, self.trained - report["steps"]) + max(0, self.stale - report["stale"])
        self.trained, self.stale, self.corrected = report["steps"], report["stale"], report["corrected"]
        if self.target_reached and self.target_reached["steps"] > self.trained:
            self.target_reached = {**self.target_reached, "steps": self.trained}
        self._rate.add(report["at"], self.trained + self.rolled_back)
        self.updates, self.samples, self.queue = report["update"], report["samples"], report["queue"]
        self.lesson, self.hyper = report["lesson"], report["hyper"]
        epoch, number = report["version"]
        self.version = (epoch, number)
        self._lags.add(report["at"], {"lag": report["lag"], "updates": 1})
        self._longest_lags.add(report["at"], report["lag_max"])
        self._spend("learner", "learner", report)

    def _spend(self, role: str, worker: str, report: Report) -> None:
        """Count where a worker's time went; nobody waits for another while the run is paused."""
        paused = self._pauses.since_last(worker, report["at"])
        seconds = dict(report["seconds"])
        if "wait" in seconds:
            seconds["wait"] = max(0.0, seconds["wait"] - paused)
        self._stages[role].add(report["at"], seconds)

    def _take_evaluation(self, report: Report) -> None:
        self.evaluation = report

    def _take_checkpoint(self, report: Report) -> None:
        self.checkpoint = report

    def _take_event(self, report: Report) -> None:
        self.lost += report.get("lost", 0)
        if report.get("paused", self.paused) != self.paused:
            self.paused = not self.paused
            self._pauses.turn(report["at"])
            self._rate = Rate()  # the speed from here on has nothing to do with the one before

    def _take_heartbeat(self, report: Report) -> None:
        self.heartbeats[report["worker"]] = report["at"]

    # --- returns -------------------------------------------------------------------------------------------------

    def _mean(self) -> float:
        return math.fsum(self._returns) / len(self._returns)

    @property
    def train_return(self) -> float | None:
        """The mean of the last 100 training episodes, of fewer while there are fewer; None before the first."""
        return self._mean() if self._returns else None

    @property
    def train_length(self) -> float | None:
        """The mean length of the same episodes."""
        return sum(self._lengths) / len(self._lengths) if self._lengths else None

    @property
    def settled(self) -> bool:
        """Whether `train_return` stands for 100 episodes."""
        return len(self._returns) >= WINDOW

    @property
    def trend(self) -> Literal["rising", "falling", "flat"] | None:
        """The last 100 episodes against the 100 before; flat when chance explains the difference."""
        newer, older = self._returns, self._before
        if len(older) < 10:
            return None
        difference = math.fsum(newer) / len(newer) - math.fsum(older) / len(older)
        noise = math.sqrt(_variance(newer) / len(newer) + _variance(older) / len(older))
        if abs(difference) <= 1.5 * noise:
            return "flat"
        return "rising" if difference > 0 else "falling"

    # --- speed ---------------------------------------------------------------------------------------------------

    def steps_per_second(self, now: float | None = None) -> float | None:
        """Environment steps trained a second over the last seconds; None before it is known, and while paused."""
        if self.paused:
            return None
        recent = self._rate.per_second(now)
        return self.overall_steps_per_second if recent is None else recent

    @property
    def seconds(self) -> float:
        """From the start of the process to the last report."""
        return (self.last_at or self.started_at) - self.started_at

    @property
    def overall_steps_per_second(self) -> float | None:
        """Environment steps trained a second since the start of the process, starting up included."""
        trained = self.trained - self._trained_before
        return trained / self.seconds if trained > 0 and self.seconds else None

    @property
    def fraction(self) -> float | None:
        """How much of the step budget is trained, 0 to 1; None without a budget."""
        return min(1.0, self.trained / self.total_steps) if self.total_steps else None

    def seconds_left(self, now: float | None = None) -> float | None:
        """Until the budget is trained at the present speed."""
        speed = self.steps_per_second(now)
        return max(0, self.total_steps - self.trained) / speed if self.total_steps and speed else None

    @property
    def policy_lag(self) -> float | None:
        """How many updates behind the learner the policies of recent batches were, on average."""
        totals = self._lags.totals()
        return totals["lag"] / totals["updates"] if totals else None

    @property
    def policy_lag_max(self) -> float | None:
        """The same for the rollout that was furthest behind."""
        return self._longest_lags.most()

    @property
    def shares(self) -> Shares:
        """Where the time goes. In one process the roles take turns: they share one total, and none of them waits."""
        totals = {role: sums.totals() for role, sums in self._stages.items()}
        if self.one_process:
            for stages in totals.values():
                stages.pop("wait", None)
        spent = {role: sum(stages.values()) for role, stages in totals.items()}
        if self.one_process:
            spent = dict.fromkeys(spent, sum(spent.values()))
        return {
            role: {stage: seconds / spent[role] for stage, seconds in stages.items()} if spent[role] else {}
            for role, stages in totals.items()
        }

    # --- the whole -----------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> dict[str, int]:
        """Environment steps by what became of them; made = trained + stale + rolled back + lost + in flight."""
        gone = self.trained + self.stale + self.rolled_back + self.lost
        return {
            "made": self.made,
            "trained": self.trained,
            "stale": self.stale,
            "rolled_back": self.rolled_back,
            "lost": self.lost,
            # what is left; reports of actors and learner race each other, so for a moment it may be below nothing
            "in_flight": self.made - gone,
        }

    def view(self, now: float | None = None) -> dict[str, Any]:
        """Everything as plain JSON values, for status answers and JSON lines."""
        return {
            "steps": self.trained,
            "paused": self.paused,
            "total_steps": self.total_steps,
            "seconds": self.seconds,
            "steps_per_second": self.steps_per_second(now),
            "seconds_left": self.seconds_left(now),
            "updates": self.updates,
            "version": list(self.version) if self.version else None,
            "episodes": self.episodes,
            "train_return": self.train_return,
            "settled": self.settled,
            "best": self.best,
            "trend": self.trend,
            "target": self.target,
            "target_reached": self.target_reached,
            "policy_lag": self.policy_lag,
            "policy_lag_max": self.policy_lag_max,
            "corrected": self.corrected,
            "queue": self.queue,
            "lesson": dict(self.lesson),
            "hyper": dict(self.hyper),
            "shares": self.shares,
            "ledger": self.ledger,
            "evaluation": _brief(self.evaluation),
        }

    def snapshot(self) -> dict[str, Any]:
        """What a resumed run needs in order to decide as if it had not been interrupted."""
        return {
            **{name: getattr(self, name) for name in _KEPT},
            "returns": list(self._returns),
            "before": list(self._before),
            "curve": self.curve.values(),
            "lengths": list(self._lengths),
        }

    def continue_from(self, steps: int, stale: int = 0, corrected: int = 0) -> None:
        """Count on from a checkpoint of which only the learner's counts are known; speeds begin anew."""
        self.made = steps + stale
        self.trained = self._trained_before = steps
        self.stale, self.corrected = stale, corrected

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot; speeds begin anew."""
        for name in _KEPT:
            setattr(self, name, snapshot.get(name, getattr(self, name)))  # one that is newer than the checkpoint stays
        # the snapshot was taken before the report of its own update had arrived
        self._trained_before = max(self._trained_before, self.trained)
        self._returns.extend(snapshot["returns"])
        self._before.extend(snapshot["before"])
        self._lengths.extend(snapshot["lengths"])
        for mean in snapshot["curve"]:
            self.curve.add(mean)
        if self.target is None or not (self.settled and self._mean() >= self.target):
            self.target_reached = None  # it was another target that had been reached


_KEPT = (
    "made", "trained", "stale", "corrected", "rolled_back", "lost", "episodes", "updates", "samples", "best",
    "best_episode", "target_reached",
)  # fmt: skip


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def _brief(evaluation: Report | None) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    return {name: evaluation[name] for name in ("steps", "episodes", "mean", "iqm", "low", "high")}
