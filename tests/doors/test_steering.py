"""A run under way, told what to do from another terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from millstream.control.desk import ask
from millstream.core.errors import RunError

from .conftest import Mill, command

LONG = ("train", "--total-steps", "1e9", "--target", "none", "--eval-episodes", "4", "--json")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command(*LONG), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def wait_for(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come true in {seconds} s")


def status(folder: Path) -> dict[str, Any]:
    """What the run says of itself; nothing while it is starting."""
    try:
        return dict(ask(next(folder.glob("runs/*/run.sock")), {"view": "status"}))
    except (StopIteration, RunError):
        return {}


def test_a_run_is_paused_resumed_saved_and_stopped_by_others(
    running: subprocess.Popen[str], mill: Mill, tmp_path: Path
) -> None:
    wait_for(lambda: status(tmp_path).get("steps"))
    assert "waits" in mill("pause", "latest").stdout
    assert json.loads(mill("status", "--json").stdout)["state"] == "paused"
    assert "paused" in mill("runs").stdout
    told = mill("status").stdout
    assert "learner-0" in told and "left" not in told and "steps a second" not in told
    (listed,) = json.loads(mill("runs", "--json").stdout)["runs"]
    assert listed["steps"] > 0 and listed["train_return"] > 0 and listed["steps_per_second"] > 0
    assert "mill stop" in mill("resume", "latest", "--total-steps", "5").stderr
    assert "goes on" in mill("resume", "latest").stdout
    at = status(tmp_path)["steps"]
    wait_for(lambda: status(tmp_path)["steps"] > at)
    assert mill("checkpoint", "latest").returncode == 0
    wait_for(lambda: list(tmp_path.glob("runs/*/checkpoints/0*/MANIFEST.json")))
    assert "saves, then ends" in mill("stop", "latest", "--reason", "lunch").stdout
    out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, "") and [json.loads(out)[key] for key in ("stopped_by", "reason")] == [
        "stopped",
        "lunch",
    ]
    assert "stopped" in mill("runs").stdout and "stopped (lunch)" in mill("show").stdout
    gone = mill("status")
    assert gone.returncode == 2 and "is not running: it was stopped (lunch) after" in gone.stderr
    assert "mill resume CartPole" in gone.stderr and "mill show CartPole" in mill("pause", "latest").stderr


def test_the_socket_of_a_run_killed_in_one_process_is_removed_by_the_next_look(tmp_path: Path, mill: Mill) -> None:
    words = (*LONG, "--topology", "inline")
    with subprocess.Popen(command(*words), cwd=tmp_path, stdout=subprocess.DEVNULL) as run:
        wait_for(lambda: status(tmp_path).get("steps"))
        run.kill()
    assert list(tmp_path.glob("runs/*/run.sock"))
    assert "cut off" in mill("runs").stdout
    assert not list(tmp_path.glob("runs/*/run.sock"))
    assert "is not running: it was cut off before its end" in mill("status").stderr


def test_a_pause_is_seen_where_the_run_was_started(tmp_path: Path, mill: Mill) -> None:
    words = [word for word in LONG if word != "--json"]
    with subprocess.Popen(command(*words), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        wait_for(lambda: status(tmp_path).get("steps"))
        mill("pause", "latest")
        wait_for(lambda: status(tmp_path)["paused"])
        mill("resume", "latest")
        wait_for(lambda: not status(tmp_path)["paused"])
        mill("pause", "latest")
        wait_for(lambda: status(tmp_path)["paused"])
        mill("stop", "latest", "--reason", "lunch")
        out, _ = run.communicate(timeout=30)
    said = [line.split("info: ")[1] for line in out.splitlines() if "info: " in line and "checkpoint" not in line]
    once = ["paused; mill resume lets it go on"]
    assert said == [*once, "goes on after a pause", *once, "the pause ends with the run"]
    assert "Stopped (lunch), and saved: CartPole-v1 with ppo" in out


def test_ctrl_c_while_evaluating_keeps_what_is_known(tmp_path: Path, mill: Mill) -> None:
    short = ("train", "--topology", "inline", "--total-steps", "4096", "--target", "none", "--eval-episodes", "100000")
    with subprocess.Popen(command(*short), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        result = wait_for(lambda: next(tmp_path.glob("runs/*/result.json"), None))
        os.kill(run.pid, signal.SIGINT)
        out, _ = run.communicate(timeout=30)
    told = json.loads(result.read_text())
    assert (run.returncode, told["steps"], told["evaluation"], told["stopped_by"]) == (130, 4096, None, "steps")
    assert result.parent.name in out and f"mill resume {result.parent.name}" in out
    assert "cut off" not in mill("runs").stdout


def test_ctrl_c_twice_says_where_the_run_is(tmp_path: Path, mill: Mill) -> None:
    """The second one comes while the workers are ending."""
    with subprocess.Popen(
        command(*LONG, "--set", "checkpoint.seconds=0.2"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        wait_for(lambda: list(tmp_path.glob("runs/*/checkpoints/0*/MANIFEST.json")))
        workers = [worker["pid"] for worker in status(tmp_path)["workers"]]
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)  # so that ending takes as long as the second Ctrl-C needs
        os.kill(run.pid, signal.SIGINT)
        wait_for(lambda: status(tmp_path).get("state") != "running")
        time.sleep(0.3)
        os.kill(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=30)
    assert not any(psutil.pid_exists(pid) for pid in workers)
    (folder,) = tmp_path.glob("runs/*__*")
    assert run.returncode == 130 and f"mill resume runs/{folder.name}" in err
    assert json.loads(out)["error"] == "Interrupted"
    assert json.loads((folder / "result.json").read_text())["stopped_by"] == "interrupted"
    assert "interrupted" in mill("runs").stdout


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, mill: Mill) -> None:
    words = [word for word in LONG if word != "--json"]
    with subprocess.Popen(
        command(*words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        wait_for(lambda: status(tmp_path).get("steps"))
        os.kill(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=30)
    assert (run.returncode, err) == (130, "")
    assert "Interrupted, and saved" in out and "mill resume CartPole-v1__ppo__1__" in out
    assert list(tmp_path.glob("runs/*/policies/latest.safetensors"))
    assert "interrupted" in mill("runs").stdout


def test_help_says_what_a_field_means_and_gives_an_example_that_works(mill: Mill) -> None:
    told = mill("scale", "--help").stdout
    assert "example: mill scale latest 4" in told and "How many actors there should be." in told
    told = " ".join(mill("stop", "--help").stdout.split())
    assert "Why, for the journal and for people. (asked to stop)" in told and "of type" not in told


def test_a_command_with_a_wrong_argument_is_refused_by_the_run(
    running: subprocess.Popen[str], mill: Mill, tmp_path: Path
) -> None:
    wait_for(lambda: status(tmp_path).get("steps"))
    done = mill("scale", "latest", "many")
    assert done.returncode == 2 and "actors of the command scale is of type int, got 'many'" in done.stderr
    assert mill("scale", "latest", "99").returncode == 2
    assert mill("scale", "latest", "2").returncode == 0
    wait_for(lambda: "actor-1" in {worker["name"] for worker in status(tmp_path)["workers"]})
