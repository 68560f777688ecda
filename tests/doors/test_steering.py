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
    assert "paused" in mill("runs").stdout and "learner-0" in mill("status").stdout
    assert "mill stop" in mill("resume", "latest", "--total-steps", "5").stderr
    assert "goes on" in mill("resume", "latest").stdout
    at = status(tmp_path)["steps"]
    wait_for(lambda: status(tmp_path)["steps"] > at)
    assert mill("checkpoint", "latest").returncode == 0
    wait_for(lambda: list(tmp_path.glob("runs/*/checkpoints/0*/MANIFEST.json")))
    assert "saves, then ends" in mill("stop", "latest", "--reason", "lunch").stdout
    out, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (0, "") and json.loads(out)["stopped_by"] == "lunch"
    gone = mill("status")
    assert gone.returncode == 2 and "is not running" in gone.stderr


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


def test_a_command_with_a_wrong_argument_is_refused_by_the_run(
    running: subprocess.Popen[str], mill: Mill, tmp_path: Path
) -> None:
    wait_for(lambda: status(tmp_path).get("steps"))
    done = mill("scale", "latest", "many")
    assert done.returncode == 2 and "actors of the command scale is of type int, got 'many'" in done.stderr
    assert mill("scale", "latest", "99").returncode == 2
    assert mill("scale", "latest", "2").returncode == 0
    wait_for(lambda: "actor-1" in {worker["name"] for worker in status(tmp_path)["workers"]})
