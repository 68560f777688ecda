"""One process, nothing timed: the same seed is the same run, killed and resumed or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import assembly, training
from millstream.core.errors import CheckpointError
from millstream.learner.checkpoint import Checkpoints
from millstream.learner.ledger import fingerprint
from millstream.parameters import keeping

SMALL = {
    "topology": "inline",
    "total_steps": 20_480,
    "checkpoint.steps": 4_096,
    "evaluation.episodes": 0,
    "target": None,
}


TABLE = {
    "actor.envs": 4,
    "actor.unroll": 8,
    "total_steps": 6_400,
    "checkpoint.steps": 1_600,
    "learning_starts": 500,
    "capacity": 2_000,
    "epsilon": 0.2,
    "epsilon_end": 0.2,
    "learning_rate_end": None,
}


def run(folder: Path, **settings: object) -> training.Run:
    return training.start(assembly.experiment(None, {"folder": str(folder), **SMALL, **settings}))


def weights(folder: Path) -> str:
    policy, _ = keeping.read(keeping.find(folder, "latest"))
    return fingerprint(policy.params.tensors)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"actor.count": 2, "actor.envs": 16},
        {"algo": "impala"},
        {"env.vector": "sync", "actor.envs": 8, "total_steps": 8_192, "checkpoint.steps": 2_048},
        {"normalise_observations": True, "normalise_rewards": True},
        {"algo": "dqn", **TABLE},
        {"algo": "dqn", "actor.count": 2, "prioritised": True, "n_step": 3, **TABLE},
        {"algo": "dqn", "atoms": 11, "v_min": 0.0, "v_max": 100.0, "dueling": True, **TABLE},
        {"algo": "a2c", "actor.envs": 16, "actor.unroll": 16, "learning_rate_end": None, "entropy_end": None},
        {"algo": "reinforce", "actor.envs": 8, "actor.unroll": 128, "learning_rate_end": None, "entropy_end": None},
    ],
    ids=[
        "ppo",
        "two actors",
        "impala",
        "an environment that cannot be kept",
        "normalised",
        "dqn",
        "dqn, prioritised",
        "dqn, atoms",
        "a2c",
        "reinforce",
    ],
)
def test_a_run_killed_and_resumed_equals_the_run_that_was_not(tmp_path: Path, settings: dict[str, object]) -> None:
    whole = run(tmp_path / "whole", **settings)
    total = whole.result["steps"]
    cut = run(tmp_path / "cut", **{**settings, "total_steps": total // 2})
    resumed = training.resume(cut.folder, {"total_steps": settings.get("total_steps", SMALL["total_steps"])})
    assert resumed.result["steps"] == total
    assert weights(resumed.folder) == weights(whole.folder)


def test_two_runs_of_one_seed_have_the_same_weights_and_another_seed_has_not(tmp_path: Path) -> None:
    one, two, other = run(tmp_path), run(tmp_path), run(tmp_path, seed=2)
    assert weights(one.folder) == weights(two.folder) != weights(other.folder)


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    one = run(tmp_path, minibatch=1024, **{"learner.threads": 1})
    two = run(tmp_path, minibatch=1024, **{"learner.threads": 2})
    assert weights(one.folder) == weights(two.folder)


def test_a_run_killed_with_no_warning_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    script = f"""
import os, signal
from millstream import assembly, training
from millstream.core.errors import CheckpointError

def die(report):
    if report["steps"] >= 10_240:
        os.kill(os.getpid(), signal.SIGKILL)

experiment = assembly.experiment(None, {{"folder": {str(tmp_path / "cut")!r}, **{SMALL!r}}})
training.start(experiment, callbacks=training.Callbacks(on_update=die))
"""
    killed = subprocess.run([sys.executable, "-c", script], env=os.environ, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (folder,) = (tmp_path / "cut").iterdir()
    assert Checkpoints(folder / "checkpoints").saved()
    resumed = training.resume(folder)
    assert resumed.result["steps"] == whole.result["steps"]
    assert weights(folder) == weights(whole.folder)


def test_a_damaged_checkpoint_is_passed_over_and_the_run_still_ends_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    cut = run(tmp_path / "cut", total_steps=12_288)
    newest = Checkpoints(cut.folder / "checkpoints").saved()[-1]
    body = bytearray((newest.folder / "state.safetensors").read_bytes())
    body[len(body) // 2] ^= 1
    (newest.folder / "state.safetensors").write_bytes(body)
    resumed = training.resume(cut.folder, {"total_steps": SMALL["total_steps"]})
    assert weights(resumed.folder) == weights(whole.folder)


def test_a_callback_that_answers_false_stops_the_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def stop_at_three(report: dict[str, int]) -> bool:
        seen.append(report["update"])
        return report["update"] < 3

    experiment = assembly.experiment(None, {"folder": str(tmp_path), **SMALL})
    ended = training.start(experiment, callbacks=training.Callbacks(on_update=stop_at_three))
    assert ended.result["stopped_by"] == "callback"
    assert seen[:3] == [1, 2, 3] and ended.result["steps"] < SMALL["total_steps"]


def test_an_episode_callback_that_answered_false_is_not_called_again(tmp_path: Path) -> None:
    seen: list[float] = []

    def enough(episode: dict[str, float]) -> bool:
        seen.append(episode["return"])
        return len(seen) < 3

    experiment = assembly.experiment(None, {"folder": str(tmp_path), **SMALL})
    ended = training.start(experiment, callbacks=training.Callbacks(on_episode=enough))
    assert (ended.result["stopped_by"], len(seen)) == ("callback", 3)


def test_speed_and_target_count_the_steps_that_the_result_counts(tmp_path: Path) -> None:
    ended = run(tmp_path, target=15).result
    assert ended["steps_per_second"] == pytest.approx(ended["steps"] / ended["seconds"])
    assert ended["target_reached"]["steps"] <= ended["steps"]
    again = run(tmp_path, target=15).result
    assert again["target_reached"]["steps"] == ended["target_reached"]["steps"]


def test_a_warm_start_begins_with_the_weights_of_another_run(tmp_path: Path) -> None:
    first = run(tmp_path)
    warm = run(tmp_path, total_steps=2_048, learning_rate=1e-9, warm_start=str(first.folder))
    old, _ = keeping.read(keeping.find(first.folder))
    new, _ = keeping.read(keeping.find(warm.folder))
    assert abs(old.params.tensors["weights"] - new.params.tensors["weights"]).max() < 1e-5


def test_a_resume_that_was_refused_does_not_stand_in_the_way_of_the_next(tmp_path: Path) -> None:
    first = run(tmp_path, total_steps=4_096)
    with pytest.raises(CheckpointError, match="impala"):
        training.resume(first.folder, {"algo": "impala", "hyper": {}, "total_steps": 8_192})
    assert training.resume(first.folder, {"total_steps": 8_192}).result["steps"] == 8_192


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_critics_learn_from_a_prioritised_table_and_repeatably(tmp_path: Path, algo: str) -> None:
    settings = {
        "algo": algo, "env.id": "Pendulum-v1", "actor.envs": 2, "actor.unroll": 8, "total_steps": 640,
        "checkpoint.steps": 0, "learning_starts": 100, "minibatch": 16, "samples_per_step": 16, "prioritised": True,
        "n_step": 2, "network.hidden": [16], "capacity": 400,
    }  # fmt: skip
    one, two, even = run(tmp_path, **settings), run(tmp_path, **settings), run(tmp_path, **settings, importance=0.0)
    assert one.result["steps"] >= 640
    assert weights(one.folder) == weights(two.folder) != weights(even.folder)


def test_the_number_of_threads_changes_no_bit_of_what_critics_learn(tmp_path: Path) -> None:
    settings = {
        "algo": "sac", "env.id": "Pendulum-v1", "actor.envs": 2, "actor.unroll": 8, "total_steps": 160,
        "checkpoint.steps": 0, "learning_starts": 100, "minibatch": 256, "samples_per_step": 64,
        "network.hidden": [16], "capacity": 400, "learner.shards": 2,
    }  # fmt: skip
    one, two = (run(tmp_path, **settings, **{"learner.threads": threads}) for threads in (1, 2))
    whole = run(tmp_path, **{**settings, "learner.shards": 1})
    assert weights(one.folder) == weights(two.folder) != weights(whole.folder)
