"""Learning from recorded data: the learner, its table and its checkpoints are those of every other run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import assembly, datasets, training
from millstream.actor.evaluation import Evaluation, whole_episodes
from millstream.core.data import Episode
from millstream.envs import registry as envs
from millstream.learner.ledger import fingerprint
from millstream.parameters import keeping
from tests.actor.making import Counting, policy

pytest.importorskip("minari")

SMALL = {"topology": "inline", "evaluation.episodes": 0, "checkpoint.steps": 0, "target": None}
ABOUT = {"algo": "random"}
DQN = {
    "algo": "dqn", "total_steps": 5_120, "checkpoint.steps": 1_280, "learning_starts": 512, "capacity": 2_000,
    "learning_rate_end": None,
}  # fmt: skip


def run(folder: Path, callbacks: training.Callbacks | None = None, **settings: Any) -> training.Run:
    experiment = assembly.experiment(None, {"folder": str(folder), **SMALL, **settings})
    return training.start(experiment, callbacks=callbacks)


def weights(folder: Path) -> str:
    found, _ = keeping.read(keeping.find(folder, "latest"))
    return fingerprint(found.params.tensors)


def random_play(id: str, episodes: int, seed: int = 1) -> list[Episode]:
    env = envs.make(id, 4)
    return list(whole_episodes(Evaluation(env, Counting(env.spec), policy(0), episodes, seed, stochastic=True)))


def written(folder: Path, id: str, episodes: list[Episode]) -> str:
    return datasets.write(str(folder), envs.make(id, 1).spec, episodes, ABOUT)["folder"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """A run whose policy balances the pole."""
    return run(place, total_steps=100_000, target=475).folder


@pytest.fixture(scope="module")
def expert(place: Path, trained: Path) -> str:
    return datasets.export_played(trained, str(place / "expert"), episodes=50)["folder"]


@pytest.fixture(scope="module")
def mixed(place: Path) -> str:
    """Episodes of chance, and of a policy that has just begun to learn."""
    early = run(place, total_steps=6_000).folder
    evaluation = assembly.evaluation(assembly.experiment(None, {}), early, 60, 5, True)
    return written(place / "mixed", "CartPole-v1", [*random_play("CartPole-v1", 300), *whole_episodes(evaluation)])


def test_fifty_episodes_are_enough_to_do_as_well(tmp_path: Path, expert: str) -> None:
    settings = {"algo": "cloning", "data": expert, "total_steps": 50_000, "evaluation.episodes": 50}
    ended = run(tmp_path, **settings)
    assert ended.evaluation is not None and ended.evaluation["mean"] >= 400
    assert ended.train_return is None  # nobody played while it learnt
    assert ended.result["ledger"]["trained"] == ended.result["steps"] >= 50_000


def test_a_cloned_policy_is_one_that_other_algorithms_go_on_with(tmp_path: Path, expert: str) -> None:
    cloned = run(tmp_path, algo="cloning", data=expert, total_steps=30_000)
    warm = run(
        tmp_path, total_steps=2_048, learning_rate=1e-9, warm_start=str(cloned.folder), **{"evaluation.episodes": 20}
    )
    assert warm.evaluation is not None and warm.evaluation["mean"] >= 300


def test_q_learning_does_better_than_what_it_learnt_from(tmp_path: Path, mixed: str) -> None:
    settings = {"total_steps": 30_000, "n_step": 3, "target_every": 100, "evaluation.episodes": 50}
    ended = run(tmp_path, algo="dqn", data=mixed, **settings)
    assert ended.evaluation is not None and ended.evaluation["mean"] >= 150  # chance 22, all that is recorded 38


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_critics_come_nearer_to_what_was_recorded(tmp_path: Path, algo: str) -> None:
    pytest.importorskip("torch")
    data = written(tmp_path / "data", "Pendulum-v1", random_play("Pendulum-v1", 8))
    losses: list[float] = []
    settings = {
        "env.id": "Pendulum-v1", "algo": algo, "data": data, "total_steps": 900, "learning_starts": 200,
        "minibatch": 64, "samples_per_step": 64, "learning_rate": 1e-3, "discount": 0.5, "network.hidden": [32],
        "evaluation.episodes": 2,
    }  # fmt: skip
    seen = training.Callbacks(on_update=lambda report: losses.append(report["lesson"]["loss"]))
    ended = run(tmp_path, seen, **settings)
    assert ended.evaluation is not None
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


@pytest.mark.parametrize(
    "settings",
    [
        DQN,
        {**DQN, "prioritised": True, "n_step": 3, "actor.count": 2},
        {**DQN, "minibatch": 8, "gradients": 2, "samples_per_step": 0.025, "checkpoint.steps": 1},
        {"algo": "cloning", "total_steps": 20_480, "checkpoint.steps": 4_096, "normalise_observations": True},
    ],
    ids=["dqn", "prioritised, two readers", "a learner that waits for the reader", "cloning"],
)
def test_a_run_from_data_repeats_and_one_that_was_cut_ends_the_same(
    tmp_path: Path, mixed: str, settings: dict[str, Any]
) -> None:
    whole, again = (run(tmp_path / name, data=mixed, **settings) for name in ("whole", "again"))
    other = run(tmp_path / "other", data=mixed, **{**settings, "seed": 2})
    assert weights(whole.folder) == weights(again.folder) != weights(other.folder)
    cut = run(tmp_path / "cut", data=mixed, **{**settings, "total_steps": settings["total_steps"] // 2})
    resumed = training.resume(cut.folder, {"total_steps": settings["total_steps"]})
    assert resumed.result["steps"] == whole.result["steps"]
    assert weights(resumed.folder) == weights(whole.folder)


def test_processes_learn_from_data_with_a_reader_in_an_actors_place(tmp_path: Path, expert: str) -> None:
    settings = {"algo": "cloning", "data": expert, "total_steps": 30_000, "evaluation.episodes": 20}
    ended = run(tmp_path, topology="processes", **settings)
    assert ended.evaluation is not None and ended.evaluation["mean"] >= 300
    resumed = training.resume(ended.folder, {"total_steps": 40_000, "evaluation.episodes": 0})
    assert resumed.result["steps"] >= 40_000 and resumed.evaluation is None


def test_policies_are_judged_while_they_learn_from_data(tmp_path: Path, expert: str) -> None:
    judged: list[int] = []
    seen = training.Callbacks(on_evaluation=lambda report: judged.append(report["steps"]))
    run(tmp_path, seen, algo="cloning", data=expert, total_steps=10_240,
        **{"evaluation.every": 2_000, "evaluation.episodes": 4})  # fmt: skip
    assert len(judged) >= 2


def test_images_and_their_stacks_are_learnt_from(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    id = "millstream.testing:ImageGrid"
    data = written(tmp_path / "data", id, random_play(id, 12))
    small = {"env.id": id, "env.stack": 3, "data": data, "total_steps": 600, "learning_starts": 100, "capacity": 500}
    for algo in ("dqn", "cloning"):
        assert run(tmp_path, algo=algo, **small).result["steps"] >= 600


def test_what_a_policy_was_shown_while_it_was_recorded_is_what_is_legal(tmp_path: Path) -> None:
    id = "millstream.testing:MaskedEnv"
    data = written(tmp_path / "data", id, random_play(id, 40))
    small = {"env.id": id, "data": data, "total_steps": 2_000, "learning_starts": 200}
    for algo in ("dqn", "cloning"):
        assert run(tmp_path, algo=algo, **small).result["steps"] >= 2_000


def test_an_ordinary_run_does_without_minari(tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules['minari'] = None\nfrom millstream import assembly, training\n"
        f"training.start(assembly.experiment(None, {{'folder': {str(tmp_path)!r}, 'total_steps': 2048, **{SMALL!r}}}))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
