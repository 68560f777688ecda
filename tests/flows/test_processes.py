"""Actors and learner as processes of one tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from millstream import training
from millstream.control.desk import ask
from millstream.core.errors import RunError

LONG = ("--total-steps", "500000000", "--target", "1e9", "--eval-episodes", "0", "--set", "checkpoint.seconds=0.2")


def until(true: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen in {seconds} s")


@contextmanager
def mill_train(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "millstream.doors.cli", "train", "CartPole-v1", "--folder", str(folder)]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def the_run(folder: Path) -> Path:
    return until(lambda: folder.is_dir() and next(folder.glob("*/run.sock"), None), "a socket").parent


def status(run: Path) -> dict[str, Any]:
    return ask(run / "run.sock", {"view": "status"})


def trained(run: Path) -> int:
    return int(status(run)["steps"])


def workers(run: Path) -> dict[str, int]:
    return {each["name"]: each["pid"] for each in status(run)["workers"] if each["alive"]}


def in_flight(run: Path) -> int:
    """Steps that the reports leave over."""
    return int(status(run)["ledger"]["in_flight"])


def under_way(run: Path) -> int:
    """Steps in rollouts that the actors have published and the learner has not given back, as the rings know them."""
    actor = json.loads((run / "config.json").read_text())["actor"]
    return int(status(run)["rollouts_under_way"]) * int(actor["envs"]) * int(actor["unroll"])


def training_run(folder: Path) -> Path:
    run = the_run(folder)
    until(lambda: trained(run), "a first update")
    return run


def test_a_default_run_reaches_its_target_and_says_how_in_one_object(tmp_path: Path) -> None:
    with mill_train(tmp_path, "--json") as process:
        out, _ = process.communicate(timeout=100)
    result = json.loads(out)
    assert process.returncode == 0
    assert result["topology"] == "processes" and result["target_reached"]["steps"] > 0
    assert result["train_return"] >= 475 and result["evaluation"]["mean"] >= 475
    ledger = result["ledger"]
    assert ledger["made"] == sum(count for name, count in ledger.items() if name != "made")
    assert ledger["in_flight"] >= 0 and result["target_reached"]["steps"] <= result["steps"] == ledger["trained"]
    assert not list(Path(result["folder"]).glob("*.sock"))


def test_a_paused_run_trains_nothing_and_goes_on_when_told(tmp_path: Path) -> None:
    with mill_train(tmp_path, *LONG):
        run = training_run(tmp_path)
        ask(run / "run.sock", {"command": "pause"})
        still = until(lambda: standing(run), "standing still")
        assert status(run)["state"] == "paused"
        assert in_flight(run) == under_way(run)
        ask(run / "run.sock", {"command": "resume"})
        until(lambda: trained(run) > still, "training again")


def standing(run: Path) -> int | None:
    """The steps, once they are the same in several looks."""
    looks = []
    for _ in range(5):
        looks.append(trained(run))
        time.sleep(0.1)
    return looks[0] if len(set(looks)) == 1 else None


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "the stop command"])
def test_a_run_that_is_told_to_end_drains_saves_and_leaves_nothing(tmp_path: Path, how: str) -> None:
    with mill_train(tmp_path, *LONG, "--json") as process:
        run = training_run(tmp_path)
        children = psutil.Process(process.pid).children(recursive=True)
        if how == "the stop command":
            ask(run / "run.sock", {"command": "stop"})
        else:
            process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == (0 if how == "the stop command" else 130), err
    result = json.loads(out)
    assert result["steps"] > 0 and (run / "checkpoints").is_dir()
    assert not any(child.is_running() for child in children)
    assert not (run / "run.sock").exists()
    resumed = training.resume(run, {"total_steps": result["steps"] + 4096, "target": None})
    assert resumed.result["steps"] >= result["steps"] + 4096


def test_a_dead_run_says_that_it_is_not_running(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not running"):
        ask(tmp_path / "run.sock", {"view": "status"})


def test_several_actors_feed_one_learner(tmp_path: Path) -> None:
    with mill_train(tmp_path, *LONG, "--actors", "3", "--envs-per-actor", "8"):
        run = training_run(tmp_path)
        assert set(workers(run)) == {"learner-0", "actor-0", "actor-1", "actor-2"}
        journal = run / "journal.jsonl"
        used = until(lambda: journal.exists() and json.loads(journal.read_text().splitlines()[0]), "a journal")["used"]
        assert len(used) == 3


@pytest.mark.parametrize("rollouts", ["0", "4"], ids=["one from each", "four an update"])
def test_a_scaled_run_goes_on_with_fewer_and_with_more_actors(tmp_path: Path, rollouts: str) -> None:
    four = ("--actors", "4", "--envs-per-actor", "8", "--set", f"learner.rollouts={rollouts}")
    with mill_train(tmp_path, *LONG, *four):
        run = training_run(tmp_path)
        for count in (1, 3):
            ask(run / "run.sock", {"command": "scale", "actors": count})
            until(lambda count=count: len(workers(run)) == count + 1, f"{count} actors")
            before = trained(run)
            until(lambda before=before: trained(run) > before + 10_000, "training on")


def test_a_second_root_of_one_run_is_refused(tmp_path: Path) -> None:
    with mill_train(tmp_path, *LONG):
        run = training_run(tmp_path)
        second = subprocess.run(
            [sys.executable, "-c", f"from millstream import training; training.resume({str(run)!r})"],
            capture_output=True,
            text=True,
            env=os.environ,
            check=False,
        )
        assert second.returncode != 0 and "is at work" in second.stderr
        assert trained(run) > 0
