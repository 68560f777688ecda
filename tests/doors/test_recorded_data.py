"""Recorded data from the command line: written by one command, learnt from by another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import SHORT, Mill
from .test_bad_input import litter, refused

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")

FROM_DATA = ("--topology", "inline", "--total-steps", "3000", "--eval-episodes", "2")


@pytest.fixture(scope="module")
def dataset(trained: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from .conftest import run_mill

    out = tmp_path_factory.mktemp("datasets") / "short"
    words = ("export-data", trained["folder"], "--out", str(out), "--episodes", "6", "--json")
    done = run_mill(out.parent, *words)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["episodes"], told["folder"], told["env"]) == (6, str(out), "CartPole-v1")
    assert told["returns"]["min"] <= told["returns"]["mean"] <= told["returns"]["max"]
    return out


def test_what_was_exported_is_a_dataset_of_minari(dataset: Path, trained: dict[str, Any]) -> None:
    found = minari.MinariDataset(dataset / "data")
    about = found.storage.metadata["millstream"]
    assert found.total_episodes == 6 and found.env_spec.id == "CartPole-v1"
    assert (about["run"], about["algo"], about["episodes"]) == (trained["run"], "ppo", 6)


def test_exporting_again_gives_the_same_episodes_and_another_seed_gives_others(
    dataset: Path, trained: dict[str, Any], mill: Mill, tmp_path: Path
) -> None:
    def lengths(folder: Path) -> list[int]:
        return [len(episode) for episode in minari.MinariDataset(folder / "data")]

    for out, seed in (("again", "10000"), ("other", "7")):
        done = mill("export-data", trained["folder"], "--out", f"./{out}", "--episodes", "6", "--seed", seed)
        assert done.returncode == 0 and f"--data ./{out}" in done.stdout
    assert lengths(tmp_path / "again") == lengths(dataset) != lengths(tmp_path / "other")


@pytest.mark.parametrize("algo", ["cloning", "dqn"])
def test_a_run_learns_from_it_and_can_be_resumed_from_elsewhere(
    dataset: Path, mill: Mill, tmp_path: Path, algo: str
) -> None:
    (tmp_path / "here").symlink_to(dataset)
    done = mill("train", "CartPole-v1", "--algo", algo, "--data", "here", *FROM_DATA, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["steps"] >= 3000 and told["evaluation"]["episodes"] == 2 and told["train_return"] is None
    (tmp_path / "here").unlink()
    again = mill("resume", told["folder"], "--total-steps", "4000", "--json")
    assert json.loads(again.stdout)["steps"] >= 4000


def test_a_dataset_that_is_there_is_replaced_only_by_overwrite(
    dataset: Path, trained: dict[str, Any], mill: Mill
) -> None:
    refused(mill("export-data", trained["folder"], "--out", str(dataset)), "already; --overwrite replaces it")
    assert minari.MinariDataset(dataset / "data").total_episodes == 6


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["CartPole-v1", "--data", "{}"], "ppo learns from what its own newest policy does, never from recorded data"),
        (["CartPole-v1", "--algo", "impala", "--data", "{}"], "try --algo cloning, dqn, sac or td3"),
        (["CartPole-v1", "--algo", "cloning"], "cloning learns from recorded episodes; name a dataset with --data"),
        (["CartPole-v1", "--algo", "cloning", "--data", "./nothing"], "there is no dataset in"),
        (["CartPole-v1", "--algo", "dqn", "--data", "no/thing-v0"], "minari download no/thing-v0"),
        (["Acrobot-v1", "--algo", "dqn", "--data", "{}"], "shape (4,), this environment shows float32 of shape (6,)"),
    ],
)  # fmt: skip
def test_what_cannot_be_learnt_from_is_refused_before_anything_starts(
    dataset: Path, mill: Mill, tmp_path: Path, words: list[str], text: str
) -> None:
    given = [word.format(dataset) for word in words]
    done = mill("train", *given, *SHORT[:4], MINARI_DATASETS_PATH=str(tmp_path / "minari"))
    refused(done, text)
    assert litter(tmp_path) == []


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_an_episode_that_is_not_finite_ends_the_run_with_one_line(
    trained: dict[str, Any], mill: Mill, tmp_path: Path, topology: str
) -> None:
    assert mill("export-data", trained["folder"], "--out", "./bad", "--episodes", "3", "--json").returncode == 0
    with h5py.File(tmp_path / "bad" / "data" / "main_data.hdf5", "a") as file:
        file["episode_2/observations"][1, 0] = float("nan")
    done = mill("train", "CartPole-v1", "--algo", "cloning", "--data", "bad", "--topology", topology, "--quiet")
    refused(done, "episode 2 of the dataset", "holds nan in its observation 'obs'")


def test_wrong_words_of_an_export_are_refused(trained: dict[str, Any], mill: Mill) -> None:
    refused(mill("export-data", trained["folder"]), "required: --out")
    refused(mill("export-data", trained["folder"], "--out", "./x", "--episodes", "0"), "at least one episode, got 0")
    refused(mill("export-data", trained["folder"], "--out", "./x", "--format", "pickle"), "invalid choice: 'pickle'")
