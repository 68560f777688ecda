from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from millstream import assembly, config
from millstream.agents import presets
from millstream.config import Experiment, from_plain, load, merge, nest, to_plain
from millstream.core.errors import ConfigError, MillError

TOML = """
algo = "impala"
total_steps = 5_000
[env]
id = "Snake"
args = {size = 9}
[actor]
count = 3
[hyper]
learning_rate = 1e-3
"""
TREE = {
    "algo": "impala",
    "total_steps": 5000,
    "env": {"id": "Snake", "args": {"size": 9}},
    "actor": {"count": 3},
    "hyper": {"learning_rate": 1e-3},
}
YAML = """
algo: impala
total_steps: 5e3
env: {id: Snake, args: {size: 9}}
actor: {count: 3}
hyper: {learning_rate: 0.001}
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def said(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_layer_lies_over_the_one_before(tmp_path: Path) -> None:
    def preset(env: str, algo: str) -> dict[str, Any]:
        return {"seed": 2, "target": 2.0, "total_steps": 2, "folder": "2"}

    file = write(tmp_path, "e.toml", 'target = 3.0\ntotal_steps = 3\nfolder = "3"')
    found = load(file, {"folder": "5"}, {"MILL_TOTAL_STEPS": "4", "MILL_FOLDER": "four"}, preset)
    assert (found.algo, found.seed, found.target, found.total_steps, found.folder) == ("ppo", 2, 3.0, 4, "5")


def test_a_preset_is_asked_for_the_pair_that_was_chosen_on_any_layer(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []
    file = write(tmp_path, "e.toml", '[env]\nid = "Snake"')

    def preset(env: str, algo: str) -> dict[str, Any]:
        asked.append((env, algo))
        return {}

    load(preset=preset)
    load(file, {"algo": "impala"}, preset=preset)
    load(file, {"env.id": "Other"}, {"MILL_ALGO": "x"}, preset=preset)
    assert asked == [("CartPole-v1", "ppo"), ("Snake", "impala"), ("Other", "x")]


def test_arguments_and_hyper_parameters_merge_key_by_key(tmp_path: Path) -> None:
    file = write(tmp_path, "e.toml", TOML)
    found = load(file, {"env.args.vision": 2, "clip": 0.1}, {"MILL_HYPER__LEARNING_RATE": "5e-4"})
    assert found.env.args == {"size": 9, "vision": 2} and found.hyper == {"learning_rate": 5e-4, "clip": 0.1}


@pytest.mark.parametrize(
    ("name", "text"), [("e.toml", TOML), ("e.json", json.dumps(TREE)), ("e.yaml", YAML), ("e.yml", YAML)]
)
def test_a_file_says_the_same_in_each_of_the_three_languages(tmp_path: Path, name: str, text: str) -> None:
    assert load(write(tmp_path, name, text)) == from_plain(TREE)


@pytest.mark.parametrize("name", ["e.toml", "e.yaml"])
def test_an_empty_file_changes_nothing(tmp_path: Path, name: str) -> None:
    assert load(write(tmp_path, name, "# nothing yet\n")) == Experiment()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("e.ini", "", "should end in .toml, .json or .yaml"),
        ("e.toml", "a = ", "is not valid toml"),
        ("e.json", "{", "is not valid json"),
        ("e.json", "[" * 100_000, "is not valid json"),
        ("e.json", "[1]", "should hold a table"),
        ("e.json", "null", "should hold a table"),
        ("e.yaml", "a: [", "is not valid yaml"),
        ("e.yaml", "- 1", "should hold a table"),
        ("e.yaml", "!!python/object/apply:os.system [true]", "is not valid yaml"),
        ("e.yaml", "1: 2", "unknown setting '1'"),
        ("e.toml", b"\xff\xfe\x00", "is not text"),
        ("e.toml", "sed = 1", "did you mean seed"),
        ("e.toml", 'algo = ["ppo"]', "algo should be text"),
        ("e.toml", "[env]\nid = [1]", "env.id should be text"),
        ("e.toml", 'env = "Snake"', "env should be a table of settings, got 'Snake'"),
        ("e.toml", "seed = inf", "seed should be a whole number"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    assert words in said(write(tmp_path, name, text), preset=presets.preset)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in said(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    assert "cannot be read" in said(tmp_path / "folder.toml")


def test_errors_of_all_tables_come_together(tmp_path: Path) -> None:
    words = said(
        None, {"actor.count": 99, "actor.envs": "x", "network.hidden": "a", "seed": -1, "tpology": 1, "env.idd": 1}
    )
    said_of_count = "actor.count should be at least 0 and at most 16, got 99"
    for part in (said_of_count, "actor.envs should", "network.hidden should", "seed should be at least 0", "env.idd"):
        assert part in words


def test_a_bare_name_is_a_hyper_parameter_unless_it_is_a_setting() -> None:
    assert nest({"actor.count": 2, "clip": 0.1, "seed": 3}) == {
        "actor": {"count": 2},
        "hyper": {"clip": 0.1},
        "seed": 3,
    }


def test_dotted_names_and_tables_meet() -> None:
    assert nest({"actor": {"count": 1, "envs": 4}, "actor.count": 2}) == {"actor": {"count": 2, "envs": 4}}
    assert nest({"actor.count": 2, "actor": {"envs": 4}}) == {"actor": {"count": 2, "envs": 4}}
    with pytest.raises(ConfigError, match="set twice"):
        nest({"seed": 1, "seed.more": 2})


def test_what_the_user_gave_is_never_changed() -> None:
    table = {"count": 1, "deep": {"a": 1}}
    nest({"actor": table, "actor.count": 2, "actor.deep.b": 3})
    assert table == {"count": 1, "deep": {"a": 1}}
    merged = merge({"env": table})
    merged["env"]["deep"]["a"] = 9
    assert table["deep"] == {"a": 1}


def test_only_our_variables_count() -> None:
    environ = {
        "MILL_SEED": "7",
        "MILL_ACTOR__COUNT": "2",
        "MILL_TOKEN": "secret",
        "SEED": "9",
        "MILLSEED": "3",
        "MILL_": "1",
    }
    found = load(environ=environ)
    assert (found.seed, found.actor.count) == (7, 2) and found == load(None, {"seed": 7, "actor.count": 2})
    assert "actor.cuont" in said(environ={"MILL_ACTOR__CUONT": "2"})


def test_an_experiment_is_frozen_and_comes_back_from_its_file() -> None:
    found = load(None, {"network.hidden": "32,16", "target": 475, "env.args.size": 5, "clip": 0.3})
    with pytest.raises(FrozenInstanceError):
        found.seed = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        found.actor.count = 2  # type: ignore[misc]
    assert from_plain(json.loads(json.dumps(to_plain(found)))) == found


def test_hyper_parameters_are_checked_against_the_algorithm() -> None:
    with pytest.raises(ConfigError, match=r"hyper.clip should be above 0.*hyper.clpi"):
        assembly.experiment(None, {"clip": -1, "clpi": 1})
    with pytest.raises(MillError, match="did you mean ppo"):
        assembly.experiment(None, {"algo": "pppo"})


def test_presets_lie_under_what_the_user_says() -> None:
    assert assembly.experiment().target == 475.0
    assert assembly.experiment(None, {"target": None, "minibatch": 64}).target is None
    assert assembly.experiment(None, {"minibatch": 64}).hyper["minibatch"] == 64


@pytest.mark.parametrize("topology", config.TOPOLOGIES)
def test_training_without_actors_is_refused_at_once(topology: str) -> None:
    with pytest.raises(ConfigError, match=r"actor.count should be at least 1"):
        assembly.check(load(None, {"actor.count": 0, "topology": topology}))


def test_an_inline_run_takes_as_many_rollouts_from_each_actor() -> None:
    with pytest.raises(ConfigError, match=r"learner.rollouts should be a multiple of actor.count \(2\)"):
        assembly.check(load(None, {"topology": "inline", "actor.count": 2, "learner.rollouts": 3}))
    assembly.check(load(None, {"topology": "inline", "actor.count": 2, "learner.rollouts": 4}))
    assembly.check(load(None, {"topology": "processes", "actor.count": 2, "learner.rollouts": 3}))


def test_no_episodes_means_no_evaluation_while_training() -> None:
    assert not assembly.evaluates(load(None, {"evaluation.every": 10, "evaluation.episodes": 0}))
    assert assembly.evaluates(load(None, {"evaluation.every": 10, "evaluation.episodes": 1}))
