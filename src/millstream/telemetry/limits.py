"""What limits the speed now, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.telemetry.progress import Progress

_STALL = 10.0
_DOING = {
    "env": "step environments",
    "act": "choose actions",
    "record": "record experience",
    "read": "read recorded data",
    "prepare": "prepares batches",
    "gradients": "computes gradients",
    "apply": "applies gradients",
    "publish": "publishes policies",
    "checkpoint": "writes checkpoints",
}
_ADVICE = {
    "env": "try more actors or a faster environment",
    "act": "try more environments an actor or a smaller network",
    "record": "try longer rollouts or smaller observations",
    "read": "try a dataset of fewer, longer episodes",
    "prepare": "try fewer or larger rollouts an update",
    "gradients": "try a larger minibatch or more learner threads",
    "apply": "try larger, fewer minibatches",
    "publish": "try more steps an update",
    "checkpoint": "try fewer checkpoints",
}


def limits(progress: Progress, now: float | None = None) -> str:
    """One sentence that says what limits the speed, and what to try. The same reports give the same sentence."""
    if progress.paused:
        return "Paused: nothing is done until it is told to go on; mill resume does that."
    silent = now - progress.last_at if now is not None and progress.last_at is not None else 0.0
    if silent > _STALL:
        return f"Nothing has been reported for {silent:.0f} s; see the events."
    actors, learner = progress.shares["actors"], progress.shares["learner"]
    if not actors:
        return "Starting: no rollout has arrived yet."
    if not learner:
        return "Collecting the first batch: no update has been made yet."
    if progress.one_process:
        return _in_turns(actors, learner)
    return _in_parallel(actors, learner)


def _in_turns(actors: Mapping[str, float], learner: Mapping[str, float]) -> str:
    stage, share = _top({**actors, **learner})
    who, verb = ("The actors", "they") if stage in actors else ("The learner", "it")
    return (
        f"{who} limit{'' if stage in actors else 's'}: {verb} {_doing(stage)} {_percent(share)} of the time "
        f"that acting and learning take in this one process; {_advice(stage)}, or the topology `processes`."
    )


def _in_parallel(actors: Mapping[str, float], learner: Mapping[str, float]) -> str:
    actors_wait, learner_waits = actors.get("wait", 0.0), learner.get("wait", 0.0)
    if min(actors_wait, learner_waits) > 0.3:
        return (
            f"Handing over limits: actors wait {_percent(actors_wait)} and the learner {_percent(learner_waits)} "
            "of the time, for each other; try more environments an actor or more policy lag."
        )
    if max(actors_wait, learner_waits) < 0.1:
        return (
            f"Nothing waits: actors are busy {_percent(1 - actors_wait)} and the learner "
            f"{_percent(1 - learner_waits)} of the time; only more or faster processors would help."
        )
    if actors_wait >= learner_waits:
        stage, share = _top(learner)
        return (
            f"The learner limits: it {_doing(stage)} {_percent(share)} of the time while actors wait "
            f"{_percent(actors_wait)}; {_advice(stage)}."
        )
    stage, share = _top(actors)
    return (
        f"The actors limit: they {_doing(stage)} {_percent(share)} of the time while the learner waits "
        f"{_percent(learner_waits)}; {_advice(stage)}."
    )


def _top(shares: Mapping[str, float]) -> tuple[str, float]:
    busy = {stage: share for stage, share in shares.items() if stage != "wait"} or dict(shares)
    stage = max(busy, key=busy.__getitem__)
    return stage, busy[stage]


def _doing(stage: str) -> str:
    return _DOING.get(stage, f"spends in {stage}")


def _advice(stage: str) -> str:
    return _ADVICE.get(stage, f"look at {stage}")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
