"""kill -9 of each kind of process: what dies is replaced, what is left is nothing."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from millstream.control.desk import ask
from millstream.telemetry import store
from tests.flows.test_processes import (
    LONG,
    in_flight,
    mill_train,
    standing,
    status,
    trained,
    training_run,
    under_way,
    until,
    workers,
)


def kill(run: Path, name: str) -> int:
    pid = workers(run)[name]
    psutil.Process(pid).kill()
    return pid


def replaced(run: Path, name: str, dead: int) -> bool:
    return workers(run).get(name, dead) != dead


def test_a_killed_actor_is_replaced_and_training_goes_on(tmp_path: Path) -> None:
    with mill_train(tmp_path, *LONG):
        run = training_run(tmp_path)
        dead = kill(run, "actor-0")
        until(lambda: replaced(run, "actor-0", dead), "a replacement", 5)
        before = trained(run)
        until(lambda: trained(run) > before + 10_000, "training with the new actor")


def test_a_killed_learner_comes_back_from_its_checkpoint(tmp_path: Path) -> None:
    with mill_train(tmp_path, *LONG):
        run = training_run(tmp_path)
        until(lambda: list((run / "checkpoints").glob("*/MANIFEST.json")), "a checkpoint")
        before = trained(run)
        dead = kill(run, "learner-0")
        until(lambda: replaced(run, "learner-0", dead), "a replacement", 10)
        until(lambda: status(run)["version"][0] == 1, "an update of the new learner")
        until(lambda: trained(run) > before, "training beyond where it died")


def test_what_was_trained_after_the_checkpoint_is_rolled_back_and_the_ledger_says_so(tmp_path: Path) -> None:
    never = ("--set", "checkpoint.seconds=3600", "--set", "checkpoint.steps=0")
    with mill_train(tmp_path, *LONG, *never):
        run = training_run(tmp_path)
        ask(run / "run.sock", {"command": "checkpoint"})
        until(lambda: list((run / "checkpoints").glob("*/MANIFEST.json")), "a checkpoint")
        saved = trained(run)
        until(lambda: trained(run) > saved + 20_000, "training beyond the checkpoint")
        dead = kill(run, "learner-0")
        until(lambda: replaced(run, "learner-0", dead), "a replacement", 10)
        until(lambda: status(run)["version"][0] == 1, "an update of the new learner")
        assert status(run)["ledger"]["rolled_back"] >= 20_000 - BATCH
        assert_drained(run, learners_killed=1)


BATCH = 2 * 64 * 32
"""More steps than one update takes in these runs."""


def assert_drained(run: Path, learners_killed: int = 0, actors_killed: int = 0) -> None:
    """Paused, what the reports leave over is what the rings hold: nothing was counted twice and nothing forgotten.

    Only kill -9 between doing a thing and telling it may leave one update, or one rollout, untold.
    """
    ask(run / "run.sock", {"command": "pause"})
    until(lambda: standing(run), "standing still")
    left_over = in_flight(run) - under_way(run)
    assert -BATCH * actors_killed <= left_over <= BATCH * learners_killed
    ask(run / "run.sock", {"command": "resume"})


def test_a_killed_root_takes_everything_with_it(tmp_path: Path) -> None:
    with mill_train(tmp_path, *LONG) as process:
        run = training_run(tmp_path)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.kill()
        until(lambda: not any(child.is_running() for child in children), "the end of all workers", 10)
        until(lambda: not (run / "run.sock").exists(), "the end of the socket", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["actor-0", "learner-0"])
def test_ten_kills_at_random_moments_are_survived(tmp_path: Path, kind: str) -> None:
    moments = random.Random(kind)
    with mill_train(tmp_path, *LONG, "--actors", "2", "--envs-per-actor", "16") as process:
        run = training_run(tmp_path)
        took = []
        for _ in range(10):
            time.sleep(moments.uniform(0, 3))
            dead, start = kill(run, kind), time.monotonic()
            until(lambda dead=dead: replaced(run, kind, dead), "a replacement", 20)
            took.append(time.monotonic() - start)
            before = trained(run)
            until(lambda before=before: trained(run) > before, "training on")
        print(f"{kind}: replaced after {max(took):.2f} s at most, {sum(took) / len(took):.2f} s on average")
        if kind.startswith("actor"):
            assert max(took) < 5
        learner = kind.startswith("learner")
        assert_drained(run, learners_killed=10 * learner, actors_killed=10 * (not learner))
        assert bool(status(run)["ledger"]["rolled_back"]) == learner
        children = psutil.Process(process.pid).children(recursive=True)
    assert not any(child.is_running() for child in psutil.wait_procs(children, 10)[1])


@pytest.mark.slow
def test_ten_roots_killed_at_random_moments_leave_nothing(tmp_path: Path) -> None:
    moments = random.Random(7)
    for turn in range(10):
        with mill_train(tmp_path / str(turn), *LONG) as process:
            time.sleep(moments.uniform(0.05, 3))
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            assert not psutil.wait_procs(children, 10)[1]
        assert not list((tmp_path / str(turn)).glob("*/run.sock"))


JUDGED = (*LONG, "--eval-episodes", "4", "--eval-every", "4096")


@pytest.mark.slow
def test_ten_evaluators_killed_at_random_moments_are_replaced_and_go_on_judging(tmp_path: Path) -> None:
    moments = random.Random(11)
    with mill_train(tmp_path, *JUDGED):
        run = training_run(tmp_path)
        for _ in range(10):
            time.sleep(moments.uniform(0, 1))
            until(lambda: "evaluator-0" in workers(run), "an evaluator", 20)
            dead, before, judged = kill(run, "evaluator-0"), trained(run), judgements(run)
            until(lambda dead=dead: replaced(run, "evaluator-0", dead), "a replacement", 20)
            until(lambda before=before: trained(run) > before, "training on")
            until(lambda judged=judged: judgements(run) > judged, "another evaluation")
        assert status(run)["version"][0] == 0  # the learner was never replaced


def judgements(run: Path) -> int:
    return len(store.evaluations(run / store.STORE))


@pytest.mark.slow
def test_ten_environment_processes_killed_at_random_moments_cost_their_actor_only(tmp_path: Path) -> None:
    moments = random.Random(13)
    words = ("--envs-per-actor", "4", "--set", "env.vector=process")
    with mill_train(tmp_path, *LONG, *words) as process:
        run = training_run(tmp_path)
        for _ in range(10):
            time.sleep(moments.uniform(0, 2))
            actor = until(lambda: workers(run).get("actor-0"), "an actor", 20)
            slots = until(lambda actor=actor: environments(actor), "its environments", 20)
            moments.choice(slots).kill()
            until(lambda actor=actor: replaced(run, "actor-0", actor), "a replacement", 20)
            until(lambda slots=slots: not any(slot.is_running() for slot in slots), "the end of the others", 10)
            before = trained(run)
            until(lambda before=before: trained(run) > before, "training on")
        assert status(run)["version"][0] == 0
        everything = psutil.Process(process.pid).children(recursive=True)
    assert not psutil.wait_procs(everything, 10)[1]


def environments(actor: int) -> list[psutil.Process]:
    try:
        return psutil.Process(actor).children()
    except psutil.NoSuchProcess:
        return []
