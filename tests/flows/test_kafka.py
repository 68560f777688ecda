"""The same experiment over Kafka: with a root, and as roles on their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from millstream import training
from millstream.control import journal
from tests.flows.test_processes import mill_train, status, the_run, trained, until, workers

MILL = [sys.executable, "-m", "millstream.doors.cli"]
LONG = ("--total-steps", "500000000", "--target", "none", "--eval-episodes", "0", "--set", "checkpoint.seconds=0.5")


def at(address: str) -> dict[str, Any]:
    return {"topology": "kafka", "kafka__bootstrap": address, "kafka__prefix": f"t{uuid.uuid4().hex[:8]}."}


def words(address: str, prefix: str | None = None) -> tuple[str, ...]:
    mine = prefix or f"t{uuid.uuid4().hex[:8]}."
    return ("--topology", "kafka", "--set", f"kafka.bootstrap={address}", "--set", f"kafka.prefix={mine}")


def test_two_actor_processes_solve_cartpole_over_kafka(durable_kafka: str, tmp_path: Path) -> None:
    run = training.train(
        "CartPole-v1", actor__count=2, folder=str(tmp_path), evaluation__episodes=20, **at(durable_kafka)
    )
    assert run.result["stopped_by"] == "target"
    assert run.evaluation["mean"] > 450


@pytest.mark.parametrize("algo", ["impala", "dqn"])
def test_other_algorithms_learn_over_kafka_too(durable_kafka: str, tmp_path: Path, algo: str) -> None:
    run = training.train(
        "CartPole-v1", algo=algo, total_steps=20_000, target=None, folder=str(tmp_path), evaluation__episodes=5,
        **at(durable_kafka),
    )  # fmt: skip
    assert run.result["steps"] >= 20_000
    assert run.evaluation["mean"] > 9  # the learner's last policy plays


def test_frames_larger_than_a_message_travel_in_parts(durable_kafka: str, tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    run = training.train(
        "ALE/Pong-v5", actor__envs=4, actor__unroll=64, total_steps=512, folder=str(tmp_path),
        evaluation__episodes=0, minibatch=64, epochs=1, **at(durable_kafka),
    )  # fmt: skip
    assert run.result["steps"] >= 512
    assert run.result["ledger"]["trained"] >= 512


@contextmanager
def playing(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*MILL, "role", *arguments, "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def mill(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MILL, *arguments], capture_output=True, text=True, timeout=60)


def updates(folder: Path) -> int:
    return max((entry["update"] for entry in journal.read(folder / "journal.jsonl")), default=0)


def test_roles_on_their_own_train_while_no_control_process_lives(durable_kafka: str, tmp_path: Path) -> None:
    here = words(durable_kafka)
    run = tmp_path / "alone"
    with (
        playing(tmp_path, "learner", "CartPole-v1", "--run", "alone", *LONG, *here) as learner,
        playing(tmp_path, "actor", "--run", "alone", *here) as actor,
        playing(tmp_path, "recorder", "--run", "alone", *here) as recorder,
    ):
        until(lambda: updates(run) > 3, "training", 60)
        until(lambda: (run / "run.sock").exists() and trained(run) > 0, "a recorder that counts", 60)
        recorder.kill()
        recorder.wait()
        before = updates(run)
        until(lambda: updates(run) > before + 5, "training with nobody in control", 30)

        assert mill("pause", str(run)).returncode == 0
        until(lambda: standing(run), "a pause that came from the brokers", 30)
        assert mill("resume", str(run)).returncode == 0
        before = updates(run)
        until(lambda: updates(run) > before, "going on", 30)

        assert mill("stop", str(run)).returncode == 0
        assert learner.wait(30) == 0
        assert actor.wait(30) == 0
    assert list((run / "checkpoints").glob("*/MANIFEST.json"))


def standing(run: Path) -> bool:
    before = updates(run)
    time.sleep(0.5)  # a stretch of time in which nothing must happen
    return updates(run) == before


def test_an_actor_without_an_index_may_come_while_another_plays(durable_kafka: str, tmp_path: Path) -> None:
    here = words(durable_kafka)
    run = tmp_path / "two"
    with (
        playing(tmp_path, "learner", "CartPole-v1", "--run", "two", "--actors", "1", *LONG, *here),
        playing(tmp_path, "actor", "--run", "two", "--index", "0", *here),
        playing(tmp_path, "actor", "--run", "two", *here),
    ):
        until(lambda: len(seen_actors(run)) >= 2, "rollouts of both", 60)


def seen_actors(run: Path) -> set[int]:
    return {used[0] for entry in journal.read(run / "journal.jsonl") for used in entry["used"]}


def test_workers_outlive_a_killed_root_and_the_next_root_takes_over(durable_kafka: str, tmp_path: Path) -> None:
    here = words(durable_kafka)
    with mill_train(tmp_path, *LONG, *here) as root:
        run = the_run(tmp_path)
        until(lambda: trained(run) > 5000, "training", 60)
        left = list(workers(run).values())
        root.kill()
        root.wait()
        before = updates(run)
        until(lambda: updates(run) > before + 5, "training without a root", 30)
    command = [*MILL, "resume", str(run), "--total-steps", "500000000", "--target", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as again:
        try:
            until(lambda: not any(psutil.pid_exists(pid) and alive(pid) for pid in left), "the old ones to end", 40)
            until(lambda: (run / "run.sock").exists() and workers(run), "new ones", 30)
            assert not set(workers(run).values()) & set(left)
            until(lambda: status(run)["updates"] > 0, "training again", 40)
        finally:
            again.send_signal(signal.SIGTERM)
            again.communicate(timeout=60)
    assert json.loads((run / "result.json").read_text())["stopped_by"] == "interrupted"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_wrong_address_is_one_clear_line_within_ten_seconds(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = mill("train", "CartPole-v1", "--folder", str(tmp_path), "--topology", "kafka",
                "--set", "kafka.bootstrap=127.0.0.1:1")  # fmt: skip
    assert done.returncode == 75
    assert "no Kafka broker answers at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - begun < 15  # the limit is 10 s; the rest is for starting on a busy machine
    assert not list(tmp_path.iterdir())


def test_a_role_of_a_run_that_nobody_knows_says_who_makes_it_known(durable_kafka: str, tmp_path: Path) -> None:
    done = mill("role", "actor", "--run", "nobody", "--patience", "0", "--set", f"kafka.bootstrap={durable_kafka}")
    assert done.returncode == 2
    assert "mill role learner" in done.stderr


def test_a_learner_begins_only_where_its_checkpoints_are(durable_kafka: str, tmp_path: Path) -> None:
    here = words(durable_kafka)
    with (
        playing(tmp_path / "home", "learner", "CartPole-v1", "--run", "one", *LONG, *here) as learner,
        playing(tmp_path / "home", "actor", "--run", "one", *here),
    ):
        until(lambda: updates(tmp_path / "home" / "one") > 2, "training", 60)
        done = mill("role", "learner", "CartPole-v1", "--run", "one", "--folder", str(tmp_path / "away"), *LONG, *here)
        assert done.returncode == 2 and "no checkpoint or journal" in done.stderr
        assert learner.poll() is None  # it was not even fenced
        assert mill("stop", str(tmp_path / "home" / "one")).returncode == 0
        assert learner.wait(30) == 0
    done = mill("pause", str(tmp_path / "home" / "one"))
    assert done.returncode == 2 and "was stopped" in done.stderr
