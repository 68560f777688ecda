"""What there is to choose from, whether the machine is fit, and what `mill` says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from millstream.agents.presets import preset
from millstream.doors import doctor
from millstream.doors.cli import COMMANDS, GROUPS, parser_for, steering

from .conftest import Mill

ROOT = Path(__file__).parents[2]


def test_mill_alone_names_every_command(mill: Mill) -> None:
    text = mill().stdout
    for name in (*COMMANDS, *steering()):
        assert f"  {name} " in text
    assert {name for names in GROUPS.values() for name in names} == set(COMMANDS)


@pytest.mark.parametrize("name", [*COMMANDS, "stop", "scale"])
def test_the_help_of_every_command_has_an_example(name: str) -> None:
    assert f"example: mill {name}" in " ".join(parser_for(name).format_help().split())


def test_the_version_is_told_without_importing_anything_heavy() -> None:
    code = (
        "import sys; from millstream.doors import cli; cli.main(['--version']); "
        "print(sorted({'numpy', 'rich', 'matplotlib', 'gymnasium'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert said[0].startswith("mill ") and said[1] == "[]"


def test_environments_are_listed_and_filtered(mill: Mill) -> None:
    found = json.loads(mill("envs", "snake", "--json").stdout)["environments"]
    assert {"Snake-v0", "SnakeImages-v0"} <= {env["id"] for env in found}
    assert all("snake" in f"{env['id']} {env['about']}".lower() for env in found)


def test_checking_an_environment_says_what_is_wrong_and_fails(mill: Mill) -> None:
    good, bad = mill("envs", "check", "CartPole-v1"), mill("envs", "check", "millstream.testing:WrongShapeEnv")
    assert good.returncode == 0 and "is fit" in good.stdout
    assert bad.returncode == 1 and "has shape (3,), its space promises (2,)" in bad.stdout


def test_an_algorithm_shows_its_hyper_parameters_with_bounds_and_meaning(mill: Mill) -> None:
    told = json.loads(mill("algos", "ppo", "--json").stdout)
    clip = next(each for each in told["hyper"] if each["name"] == "clip")
    assert (clip["default"], clip["bounds"], clip["applies"]) == (0.2, "above 0 and at most 10", "learner")
    assert clip["meaning"] in mill("algos", "ppo").stdout
    assert {"ppo", "impala"} <= {each["name"] for each in json.loads(mill("algos", "--json").stdout)["algorithms"]}


def test_presets_are_listed_as_set_takes_them(mill: Mill) -> None:
    tuned = preset("CartPole-v1", "ppo")
    wanted = f"actor.unroll={tuned['actor']['unroll']}, learning_rate={tuned['hyper']['learning_rate']}"
    assert wanted in mill("presets").stdout


def test_the_doctor_finds_this_machine_fit(mill: Mill) -> None:
    told = json.loads(mill("doctor", "--json").stdout)
    assert told["fit"] and {"Python", "memory", "folder", "numpy"} <= {each["what"] for each in told["machine"]}


def test_the_doctor_finds_a_folder_that_cannot_be_written(mill: Mill, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = mill("doctor", "--folder", "file/runs")
    assert done.returncode == 1 and "file/runs cannot be written" in done.stdout


def test_the_doctor_says_how_to_install_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda module: None)
    assert {"pip install 'millstream[torch]'"} <= {each.text.split(": ")[1] for each in doctor._extras()}
    assert all(each.verdict == "bad" for each in doctor._packages())


def test_the_doctor_knows_every_extra_and_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(doctor.EXTRAS) == set(project["optional-dependencies"]) - {"test"}
    assert set(doctor.NEEDED.values()) == {each.split(">")[0] for each in project["dependencies"]}
