"""`mill fork` on the real command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Mill, command
from .test_bad_input import litter, refused
from .test_steering import status, wait_for


@pytest.fixture
def parent(trained: dict[str, Any], tmp_path: Path) -> Path:
    """A copy of the run that was trained: 4,096 steps, whose only checkpoint is its last."""
    folder = tmp_path / "runs" / trained["run"]
    shutil.copytree(trained["folder"], folder)
    return folder


def test_a_fork_is_a_run_of_its_own_and_shows_where_it_comes_from(parent: Path, mill: Mill) -> None:
    (number,) = (int(path.name) for path in (parent / "checkpoints").iterdir())
    words = ("fork", parent.name, "--at", str(number), "--set", "learning_rate=1e-5", "--total-steps", "8192")
    done = mill(*words, "--eval-episodes", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    changes = {"learning_rate": 1e-5, "total_steps": 8192, "evaluation.episodes": 2}
    assert result["lineage"] == {"run": parent.name, "checkpoint": number, "steps": 4096, "set": changes}
    assert result["steps"] == 8192 and result["run"] != parent.name and result["evaluation"]["episodes"] == 2
    origin = f"from {parent.name} at {number}"
    assert origin in mill("runs", COLUMNS="200").stdout
    assert (
        f"{origin} (4,096 steps), total_steps 8192, evaluation.episodes 2, learning_rate 1e-05"
        in mill("show", COLUMNS="200").stdout
    )
    listed = {run["run"]: run["lineage"] for run in json.loads(mill("runs", "--json").stdout)["runs"]}
    assert listed == {parent.name: None, result["run"]: result["lineage"]}
    assert f"checkpoints  {number}" in mill("show", parent.name).stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing"], "unknown run 'nothing'"),
        (["latest", "--at", "999"], "no checkpoint 999 in "),
        (["latest", "--at", "newest"], "argument --at: invalid int value: 'newest'; see mill fork --help"),
        (["latest"], "has trained 4,096 of 4,096 steps; add --total-steps 8192"),
        (["latest", "--total-steps", "9000", "--set", "algo=dqn"], "a fork keeps its algorithm"),
        (["latest", "--total-steps", "9000", "--set", "network.shared=true"], "a fork keeps its network"),
        (["latest", "--total-steps", "9000", "--set", "learner.stale=keep"], "should be one of drop, correct"),
        (["latest", "--total-steps", "9000", "--sed", "2"], "unknown option '--sed'; did you mean --seed"),
    ],
)
def test_what_cannot_be_forked_is_one_line_and_no_litter(
    parent: Path, mill: Mill, tmp_path: Path, words: list[str], text: str
) -> None:
    refused(mill("fork", *words), text)
    assert litter(tmp_path) == [parent.name]


def test_ctrl_c_saves_a_fork_and_it_can_be_resumed(parent: Path, tmp_path: Path, mill: Mill) -> None:
    words = (
        "fork",
        "latest",
        "--total-steps",
        "1e9",
        "--target",
        "none",
        "--topology",
        "processes",
        "--eval-episodes",
        "2",
    )
    with subprocess.Popen(command(*words), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        wait_for(lambda: status(tmp_path).get("steps", 0) > 10_000)
        told = mill("status").stdout
        os.kill(run.pid, signal.SIGINT)
        out, _ = run.communicate(timeout=60)
    assert run.returncode == 130 and "Interrupted, and saved: CartPole-v1 with ppo" in out
    assert "policy lag" in told and ", at most " in told
    result = json.loads(mill("show", "--json").stdout)["result"]
    assert result["lineage"]["run"] == parent.name and result["steps"] > 10_000
    longer = mill("resume", "latest", "--total-steps", str(result["steps"] + 8192), "--eval-episodes", "0", "--json")
    assert json.loads(longer.stdout)["lineage"]["run"] == parent.name
