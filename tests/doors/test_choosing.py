"""What there is to choose from, whether the machine is fit, and what `mill` says of itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from argparse import Namespace
from pathlib import Path

import pytest

from millstream import catalogue
from millstream.agents.figures import published
from millstream.agents.presets import names, preset
from millstream.doors import choose, doctor
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


def test_presets_are_listed_with_what_is_known_of_them(mill: Mill) -> None:
    found = json.loads(mill("presets", "--json").stdout)["presets"]
    assert [(one["algo"], one["env"]) for one in found] == sorted(names(), key=lambda pair: (pair[1], pair[0]))
    text = mill("presets").stdout
    for one in found:
        assert f"{one['env']} " in text and one["command"].startswith(f"mill train {one['env']} --algo {one['algo']} ")


def test_one_preset_shows_its_settings_as_set_takes_them_and_its_command(mill: Mill) -> None:
    tuned = preset("CartPole-v1", "ppo")
    wanted = f"actor.unroll={tuned['actor']['unroll']}, learning_rate={tuned['hyper']['learning_rate']}"
    text = mill("presets", "cartpole").stdout
    assert wanted in text and "500.0 ± 0.00 after 100k steps (SB3 zoo)" in text
    assert "mill train CartPole-v1 --algo ppo --seed 101 --seeds 5\n" in text and "Pendulum" not in text


def test_a_preset_that_nobody_has_is_said_to_be_missing(mill: Mill) -> None:
    assert "no preset for an environment named like 'Chess'" in mill("presets", "Chess").stdout
    assert json.loads(mill("presets", "Chess", "--json").stdout) == {"presets": []}


MEASURED = {
    "seeds": [101, 102, 103, 104, 105],
    "episodes": 100,
    "return": {"mean": -1172.25, "low": -1200.04, "high": -1150.55},
    "steps": 9_990_000,
    "seconds": 12345.67,
    "cores": 2,
    "target": {"value": -1000.0, "reached": 3, "steps": 9_000_000},
    "players": [{"name": "greedy", "return": {"mean": 11.5, "low": 11.1, "high": 12.0}, "food": 12.5, "episodes": 500}],
}


def shown(filter: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a terminal of a hundred columns shows of one wide preset and one that was not measured."""
    one = {
        "env": "LunarLander-v3",
        "algo": "impala",
        "settings": {"network": {"hidden": (256, 256)}, "hyper": {"learning_rate": 1e-3}},
        "chosen_on": "1 to 3",
        "measured": MEASURED,
        "published": published("LunarLander-v3", "ppo"),
        "command": "mill train LunarLander-v3 --algo impala --seed 101 --seeds 5",
    }
    other = {**one, "env": "Other-v0", "measured": None, "published": []}
    monkeypatch.setattr(catalogue, "presets", lambda containing: [one, other])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    assert choose.presets(Namespace(env=filter, json=False)) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


def test_the_widest_preset_keeps_its_line_in_a_hundred_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, rule, wide, bare, star, _ = lines = shown("", monkeypatch, capsys)
    assert max(map(len, lines)) <= 100 and set(rule.strip()) == {"─"}
    assert wide.startswith("LunarLander-v3 ") and "-1,172.2 (-1,200.0 to -1,150.5) " in wide
    assert wide.rstrip().endswith("242.1*, 1M (SB3 zoo)") and star == "* published for LunarLander-v2"
    assert "not measured" in bare and bare.rstrip().endswith(" -")


def test_a_preset_shown_whole_fits_a_hundred_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown("e", monkeypatch, capsys)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 100
    assert "network.hidden=256,256, learning_rate=0.001" in text and "-1000 reached by 3 of 5 seeds" in text
    assert "after 1M steps for LunarLander-v2 (SB3 zoo)" in text and "12.50 food an episode" in text
    starts = [line.index(word) for line in lines for word in ("network.hidden", "mill train") if word in line]
    assert starts[::2] == starts[1::2]  # the command stands below the settings


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
