"""kill -9 of each kind of process: what dies is replaced, what is left is nothing."""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from tests.flows.test_processes import LONG, mill_train, status, trained, training_run, until, workers


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
        until(lambda: trained(run) > before, "training beyond where it died")
        assert status(run)["version"][0] == 1
        assert status(run)["ledger"]["rolled_back"] >= 0


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
        ledger = status(run)["ledger"]
        assert ledger["in_flight"] >= 0
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
