"""Datasets: what was written is read back, by us and by Minari itself; what cannot be used is refused in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.actor.evaluation import Evaluation, whole_episodes
from millstream.core.data import Episode
from millstream.core.errors import DataError, MissingPart
from millstream.core.spec import MASK, Box, Discrete, EnvSpec, MultiDiscrete
from millstream.envs.minari import Dataset, open_dataset, place
from millstream.envs.minari_writing import FORMATS, write_dataset
from tests.actor.making import WORLDS, Counting, alike, policy, world

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")
gymnasium = pytest.importorskip("gymnasium")

ABOUT = {"algo": "ppo", "version": "0", "env": {"id": "CartPole-v1", "args": {}, "wrappers": []}}
SPEC = EnvSpec("small", {"obs": Box((2,), low=-1.0, high=1.0)}, Discrete(3))


def episode(steps: int = 4, seed: int = 0, terminated: bool = True, truncated: bool = False) -> Episode:
    rng = np.random.default_rng([seed, steps])
    seen = {"obs": rng.random((steps + 1, 2)).astype(np.float32)}
    return Episode(seen, rng.integers(3, size=steps), rng.normal(size=steps).astype(np.float32), terminated, truncated)


def written(folder: Path, *held: Episode, spec: EnvSpec = SPEC, **how: Any) -> Path:
    return write_dataset(str(folder), spec, held or (episode(), episode(3, 1, False, True)), ABOUT, **how)[0]


def all_of(dataset: Dataset) -> list[Episode]:
    return list(dataset.read(range(len(dataset))))


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's own datasets are touched."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)


# --- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", WORLDS)
def test_what_was_written_is_read_back_bit_for_bit(tmp_path: Path, name: str, kind: str) -> None:
    env = world(name)
    evaluation = Evaluation(env, Counting(env.spec), policy(0), 7, seed=5, stochastic=True)
    played = list(whole_episodes(evaluation))
    if isinstance(env.spec.action, Box):  # as the environment took them
        low, high = env.spec.action.bounds()
        played = [replace(each, actions=np.clip(each.actions, low, high).astype(np.float32)) for each in played]
    write_dataset(str(tmp_path / "data"), env.spec, played, ABOUT, kind)
    found = all_of(open_dataset(str(tmp_path / "data"), env.spec))
    assert len(found) == len(played) == 7
    assert all(alike(one, other) for one, other in zip(found, played, strict=True))


@pytest.mark.parametrize("kind", FORMATS)
def test_minari_itself_reads_it_and_makes_the_environment_again(kind: str) -> None:
    env = world("CartPole-v1")
    played = list(whole_episodes(Evaluation(env, Counting(env.spec), policy(0), 3, seed=5, stochastic=True)))
    write_dataset("cartpole/random-v0", env.spec, played, ABOUT, kind)
    dataset = minari.load_dataset("cartpole/random-v0")
    assert dataset.spec.dataset_id == "cartpole/random-v0"
    assert (dataset.total_episodes, dataset.total_steps) == (3, sum(each.steps for each in played))
    assert list(minari.list_local_datasets()) == ["cartpole/random-v0"]
    recovered = dataset.recover_environment()
    assert recovered.observation_space == dataset.observation_space and recovered.action_space == dataset.action_space
    for one, other in zip(dataset, played, strict=True):
        assert np.array_equal(one.observations, other.observations["obs"]) and len(one.observations) == other.steps + 1
        assert np.array_equal(one.actions, other.actions) and np.array_equal(one.rewards, other.rewards)
        assert one.terminations.tolist() == [False] * (other.steps - 1) + [other.terminated]
        assert one.truncations.tolist() == [False] * (other.steps - 1) + [other.truncated]


def test_two_endings_stay_two_facts(tmp_path: Path) -> None:
    held = [episode(terminated=one, truncated=other) for one, other in ((True, False), (False, True), (True, True))]
    found = all_of(open_dataset(str(written(tmp_path / "data", *held)), SPEC))
    assert [(each.terminated, each.truncated) for each in found] == [(True, False), (False, True), (True, True)]


def test_the_metadata_say_who_played_what_and_how_well(tmp_path: Path) -> None:
    held = [episode(seed=seed) for seed in range(5)]
    folder = written(tmp_path / "my data", *held)
    told = json.loads((folder / "data" / "metadata.json").read_text())
    returns = [each.rewards.sum(dtype=np.float64) for each in held]
    assert (told["dataset_id"], told["algorithm_name"]) == ("my-data-v0", "ppo")
    assert told["millstream"]["returns"]["mean"] == pytest.approx(np.mean(returns))
    assert (told["millstream"]["returns"]["min"], told["millstream"]["returns"]["max"]) == (min(returns), max(returns))
    assert EnvSpec.from_json(told["millstream"]["spec"]) == SPEC


@pytest.mark.parametrize("room", [0, 300, 1 << 20])
@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_read_again_is_the_same_whether_it_was_held_or_not(tmp_path: Path, room: int, kind: str) -> None:
    held = [episode(steps, steps) for steps in range(1, 9)]
    dataset = open_dataset(str(written(tmp_path / "data", *held, kind=kind)), SPEC)
    dataset.room = room
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(8)
        assert all(alike(one, held[at]) for one, at in zip(dataset.read(order), order, strict=True))
    assert (dataset.room < room) == (room > 0)


def test_large_images_are_kept_as_they_are(tmp_path: Path) -> None:
    spec = EnvSpec("pictures", {"obs": Box((40, 40, 3), "uint8", 0, 255)}, Discrete(3))
    rng = np.random.default_rng(0)
    held = replace(episode(), observations={"obs": rng.integers(256, size=(5, 40, 40, 3), dtype=np.uint8)})
    (found,) = all_of(open_dataset(str(written(tmp_path / "data", held, spec=spec)), spec))
    assert alike(found, held)


# --- of other people -------------------------------------------------------------------------------------------------


def foreign(observation: Any, action: Any, name: str = "others/data-v0", **columns: Any) -> str:
    """A dataset as others write it."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    with pytest.warns(UserWarning):
        minari.create_dataset_from_buffers(
            name, [EpisodeBuffer(**columns)], observation_space=observation, action_space=action
        )
    return name


ENDS = {"rewards": np.ones(3), "terminations": np.array([False] * 3), "truncations": np.array([False, False, True])}


def test_doubles_nested_names_and_choices_that_begin_elsewhere_are_understood() -> None:
    spaces = gymnasium.spaces
    shown = spaces.Dict(
        {"a": spaces.Dict({"b": spaces.Box(-9, 9, (2,), np.float64)}), "c": spaces.Discrete(3, start=5)}
    )
    name = foreign(
        shown,
        spaces.MultiDiscrete([[2, 3]], start=[[1, 1]]),
        observations={"a": {"b": np.arange(8.0).reshape(4, 2)}, "c": np.array([5, 6, 7, 5])},
        actions=np.array([[[1, 1]], [[2, 3]], [[1, 2]]]),
        **ENDS,
    )
    spec = EnvSpec("other", {"a.b": Box((2,)), "c": Discrete(3)}, MultiDiscrete((2, 3)))
    (found,) = all_of(open_dataset(name, spec))
    assert found.observations["a.b"].dtype == np.float32 and found.observations["c"].tolist() == [0, 1, 2, 0]
    assert found.actions.tolist() == [[0, 0], [1, 2], [0, 1]] and found.truncated and not found.terminated


def test_an_episode_that_ends_in_its_middle_is_cut_there_and_one_without_an_end_was_not_watched_further() -> None:
    ends = {"terminations": np.array([False, True, False, False]), "truncations": np.zeros(4, bool)}
    rows = np.arange(10, dtype=np.float32).reshape(5, 2) / 10
    name = foreign(
        gymnasium.spaces.Box(-1, 1, (2,)),
        gymnasium.spaces.Discrete(3),
        observations=rows,
        actions=np.array([0, 1, 2, 0]),
        rewards=np.arange(4.0),
        **ends,
    )
    one, other = all_of(open_dataset(name, SPEC))
    assert (one.terminated, one.truncated, one.actions.tolist()) == (True, False, [0, 1])
    assert np.array_equal(one.observations["obs"], rows[:3])
    assert (other.terminated, other.truncated, other.rewards.tolist()) == (False, True, [2.0, 3.0])
    assert np.array_equal(other.observations["obs"], rows[2:])


def test_what_was_legal_is_found_among_observations_or_infos_and_missed_where_it_is_not(tmp_path: Path) -> None:
    spaces, masks = gymnasium.spaces, np.array([[1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1]], np.int8)
    spec = replace(SPEC, masked=True)
    shown = spaces.Dict({"obs": spaces.Box(-1, 1, (2,)), MASK: spaces.Box(0, 1, (3,), np.int8)})
    seen, actions = np.zeros((4, 2), np.float32), np.array([0, 1, 2])
    inside = foreign(shown, spaces.Discrete(3), observations={"obs": seen, MASK: masks}, actions=actions, **ENDS)
    (found,) = all_of(open_dataset(inside, spec))
    assert found.masks is not None and np.array_equal(found.masks, masks.astype(bool))
    without = foreign(shown["obs"], spaces.Discrete(3), "others/without-v0", observations=seen, actions=actions, **ENDS)
    with pytest.raises(DataError, match="episode 0 of the dataset others/without-v0 does not say which actions"):
        all_of(open_dataset(without, spec))


# --- what cannot be used ---------------------------------------------------------------------------------------------


def metadata(folder: Path, **changes: Any) -> None:
    path = folder / "data" / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (replace(SPEC, observations={"obs": Box((3,))}), r"shows obs to be float32 of shape \(2,\), this .* \(3,\)"),
        (replace(SPEC, observations={"eye": Box((2,))}), "shows the observations obs; this environment shows eye"),
        (replace(SPEC, action=Discrete(4)), "chooses one of 3, this environment takes one of 4"),
        (replace(SPEC, action=Box((1,))), "chooses one of 3, this environment takes float32"),
    ],
)
def test_a_dataset_of_other_spaces_is_refused_and_the_difference_named(
    tmp_path: Path, spec: EnvSpec, text: str
) -> None:
    folder = written(tmp_path / "data")
    with pytest.raises(DataError, match=f"was not made with small: the dataset {text}"):
        open_dataset(str(folder), spec)


def test_bounds_of_actions_are_compared_and_those_of_observations_are_not(tmp_path: Path) -> None:
    spec = replace(SPEC, action=Box((1,), low=-2.0, high=2.0))
    held = replace(episode(), actions=np.full((4, 1), 5.0, np.float32))
    folder = str(written(tmp_path / "data", held, spec=spec))
    wide = replace(spec, observations={"obs": Box((2,))})
    assert all_of(open_dataset(folder, wide))[0].actions.max() == 2.0
    with pytest.raises(DataError, match=r"from -2 to 2, this environment takes float32 .* from -1 to 1"):
        open_dataset(folder, replace(spec, action=Box((1,), low=-1.0, high=1.0)))


def nan_observation(data: Any) -> None:
    data["episode_1/observations"][2, 1] = np.nan


def infinite_reward(data: Any) -> None:
    data["episode_1/rewards"][0] = np.inf


def unknown_action(data: Any) -> None:
    data["episode_1/actions"][0] = 3


def too_few(data: Any) -> None:
    data["episode_1/observations"].resize((3, 2))


def lost(data: Any) -> None:
    del data["episode_1/rewards"]


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (nan_observation, "holds nan in its observation 'obs'"),
        (infinite_reward, "holds inf among its rewards"),
        (unknown_action, r"holds 3 in its actions, which is not one of Discrete\(n=3\)"),
        (too_few, r"has observation 'obs' of shape \(3, 2\), its steps and its space promise \(4, 2\)"),
        (lost, "cannot be read: .*rewards"),
    ],
)
def test_an_episode_that_holds_nonsense_is_named(tmp_path: Path, harm: Any, text: str) -> None:
    folder = written(tmp_path / "data")
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        harm(file)
    dataset = open_dataset(str(folder), SPEC)
    with pytest.raises(DataError, match=f"^episode 1 of the dataset {folder} {text}") as caught:
        all_of(dataset)
    assert "\n" not in str(caught.value)


def test_a_missing_an_empty_and_a_damaged_dataset_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no dataset in .*/nowhere; mill export-data writes one$"):
        open_dataset("./nowhere", SPEC)
    with pytest.raises(DataError, match="minari download other/thing-v3 fetches"):
        open_dataset("other/thing-v3", SPEC)
    folder = written(tmp_path / "data")
    metadata(folder, total_episodes=0)
    with pytest.raises(DataError, match="is empty"):
        open_dataset(str(folder), SPEC)
    (folder / "data" / "metadata.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        open_dataset(str(folder), SPEC)
    cut = written(tmp_path / "cut")
    body = (cut / "data" / "main_data.hdf5").read_bytes()
    (cut / "data" / "main_data.hdf5").write_bytes(body[: len(body) // 2])
    with pytest.raises(DataError, match=r"episode 0 of the dataset .*/cut cannot be read"):
        all_of(open_dataset(str(cut), SPEC))
    metadata(cut, minari_version="0.1.0")
    with pytest.raises(DataError, match="does not support"):
        open_dataset(str(cut), SPEC)


def test_without_minari_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    for attempt in (lambda: open_dataset("./data", SPEC), lambda: written(tmp_path / "data")):
        with pytest.raises(MissingPart, match=r"pip install 'millstream\[minari\]'"):
            attempt()


# --- whole or not there ----------------------------------------------------------------------------------------------


def failing() -> Iterator[Episode]:
    yield episode()
    raise KeyboardInterrupt


def test_an_export_that_fails_leaves_nothing_and_what_was_there_stays(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_dataset(str(tmp_path / "data"), SPEC, failing(), ABOUT)
    assert list(tmp_path.iterdir()) == []
    folder = written(tmp_path / "data")
    with pytest.raises(KeyboardInterrupt):
        write_dataset(str(folder), SPEC, failing(), ABOUT, overwrite=True)
    assert len(open_dataset(str(folder), SPEC)) == 2 and list(tmp_path.iterdir()) == [folder]


def test_a_killed_export_leaves_no_dataset_and_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    script = f"""
import os, signal
from tests.envs.test_minari import ABOUT, SPEC, episode
from millstream.envs.minari_writing import write_dataset

def dying():
    for seed in range(50):
        yield episode(200, seed)
    os.kill(os.getpid(), signal.SIGKILL)

write_dataset({str(tmp_path / "data")!r}, SPEC, dying(), ABOUT)
"""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *sys.path])
    ran = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert ran.returncode == -signal.SIGKILL
    assert not (tmp_path / "data").exists() and (tmp_path / ".data.draft").exists()
    folder = written(tmp_path / "data")
    assert len(open_dataset(str(folder), SPEC)) == 2 and list(tmp_path.iterdir()) == [folder]


def test_what_is_there_is_replaced_only_where_that_was_asked_for(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    with pytest.raises(DataError, match=r"already; --overwrite replaces it"):
        written(folder, episode())
    assert written(folder, episode(), overwrite=True) == folder
    assert len(open_dataset(str(folder), SPEC)) == 1 and list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_is_no_dataset_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="is no dataset; choose another name"):
        written(tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_nothing_to_write_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no whole episode"):
        write_dataset(str(tmp_path / "data"), SPEC, [], ABOUT)
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_one_of_minaris_unless_it_is_a_path_or_a_folder_here(tmp_path: Path) -> None:
    store = (tmp_path / "minari").resolve()
    assert place("expert-v0") == store / "expert-v0" and place("cartpole/expert-v0") == store / "cartpole" / "expert-v0"
    assert place("./expert-v0") == tmp_path / "expert-v0" and place("expert") == tmp_path / "expert"
    (tmp_path / "expert-v0").mkdir()
    assert place("expert-v0") == tmp_path / "expert-v0"
