"""`mill train` and `mill resume`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millstream import assembly
from millstream.config import Experiment
from millstream.doors.cli import parser_for
from millstream.doors.seeds import show
from millstream.doors.train import overrides

from .conftest import SHORT, Mill

KEYS = {
    "run", "env", "algo", "topology", "seed", "steps", "seconds", "steps_per_second", "train_return", "target_reached",
    "evaluation", "folder",
}  # fmt: skip


def said(*words: str) -> dict[str, Any]:
    return dict(overrides(parser_for("train").parse_args(words)))


def test_json_is_exactly_one_object_with_everything_about_the_run(trained: dict[str, Any]) -> None:
    assert trained.keys() >= KEYS
    assert trained["steps"] == 4096 and trained["env"] == "CartPole-v1" and trained["topology"] == "inline"
    assert set(trained["evaluation"]) == {"episodes", "mean", "iqm", "low", "high"}
    assert (Path(trained["folder"]) / "result.json").is_file()


def test_json_lines_are_objects_and_the_result_is_the_last(mill: Mill) -> None:
    lines = [json.loads(line) for line in mill("train", *SHORT, "--json-lines").stdout.splitlines()]
    assert {"progress", "checkpoint"} <= {line["kind"] for line in lines[:-1]}
    assert lines[-1]["kind"] == "result" and lines[-1].keys() >= KEYS


def test_json_lines_of_several_seeds_end_with_what_they_amount_to(mill: Mill) -> None:
    lines = [json.loads(line) for line in mill("train", *SHORT, "--seeds", "2", "--json-lines").stdout.splitlines()]
    assert [line["kind"] for line in lines if line["kind"] in ("result", "seeds")] == ["result", "result", "seeds"]
    assert lines[-1]["kind"] == "seeds" and lines[-1]["seeds"] == [1, 2]


def test_an_error_among_json_lines_has_a_kind_too(mill: Mill) -> None:
    (said,) = mill("train", "--algo", "nonsense", "--json-lines").stdout.splitlines()
    assert json.loads(said)["kind"] == "error"


NOISY = """
import ctypes, os
from gymnasium.envs.classic_control import CartPoleEnv

class Noisy(CartPoleEnv):
    def reset(self, **given):
        print("a print")
        os.write(1, b"a write\\n")
        ctypes.CDLL(None).puts(b"a word from C")
        return super().reset(**given)
"""


@pytest.mark.parametrize("form", ["--json", "--json-lines"])
def test_an_environment_that_prints_spoils_no_json(mill: Mill, tmp_path: Path, form: str) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    few = ("--envs-per-actor", "4", "--unroll", "64", "--total-steps", "512")
    done = mill("train", "noisy:Noisy", *SHORT, *few, form)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told[-1].keys() >= KEYS and (form == "--json-lines" or len(told) == 1)
    assert "a print" in done.stderr and "a write" in done.stderr and "a word from C" in done.stderr


def test_without_a_terminal_there_are_plain_lines_then_a_summary(mill: Mill, tmp_path: Path) -> None:
    done = mill("train", *SHORT, "--target", "5", "--capture-video")
    run = next((tmp_path / "runs").glob("CartPole*")).name
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert "Solved: CartPole-v1 with ppo reached 5 after" in done.stdout
    for expected in ("95 % interval", f"runs/{run}/plots/run.png", f"runs/{run}/videos/", f"mill show {run}"):
        assert expected in done.stdout
    assert f"mill resume {run} --target none" in done.stdout


def test_several_seeds_give_one_table_and_one_plot(mill: Mill, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(mill("train", *SHORT, "--seed", "3", "--seeds", "2", "--json").stdout)
    assert [run["seed"] for run in told["runs"]] == [3, 4] and told["evaluation"]["seeds"] == 2
    assert told.keys() >= (KEYS - {"run", "seed"}) | {"seeds"} and "rows" not in told
    assert (told["steps"], told["evaluation"]["episodes"], told["seeds"]) == (8192, 8, [3, 4])
    assert told["folder"] == str(Path(told["runs"][0]["folder"]).parent)
    assert Path(told["plot"]).read_bytes().startswith(b"\x89PNG")
    show(told, Experiment(target=475), Path(told["plot"]))
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines() if "4,096" in line] == ["3", "4"]
    assert "95 % interval over seeds" in text and "475 reached by 0 of 2 seeds" in text


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        (["Snake-v0"], "env.id", "Snake-v0"),
        (["--env-id", "Snake-v0"], "env.id", "Snake-v0"),
        (["--total-timesteps", "1e5"], "total_steps", "1e5"),
        (["--num-envs", "8"], "actor.envs", "8"),
        (["--track"], "tracking.wandb", True),
        (["--no-tensorboard"], "tracking.tensorboard", False),
        (["--capture-video"], "tracking.video", True),
        (["--set", "learning_rate=0.01"], "learning_rate", 0.01),
        (["--set", "network.hidden=[32,32]"], "network.hidden", [32, 32]),
        (["--env-arg", "size=6"], "env.args.size", 6),
        (["--wrapper", "a:b", "--wrapper", "c:d"], "env.wrappers", ["a:b", "c:d"]),
        (["--target", "none"], "target", None),
    ],
)
def test_an_option_becomes_its_setting_and_nothing_else(words: list[str], setting: str, value: Any) -> None:
    assert said(*words) == {setting: value}


def test_what_is_not_said_is_left_to_the_preset_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text("seed = 7\n[actor]\nenvs = 16\n")
    found = assembly.experiment(file, said("--unroll", "8"), {})
    assert (found.seed, found.actor.envs, found.actor.unroll, found.target) == (7, 16, 8, 475.0)


def test_every_setting_behind_an_option_exists() -> None:
    from millstream.core.settings import describe
    from millstream.doors.train import _FLAGS

    assert {flag.setting for flag in _FLAGS} <= {setting.name for setting in describe(Experiment)}


def test_help_shows_the_texts_of_the_settings_and_an_example(mill: Mill) -> None:
    text = " ".join(mill("train", "--help").stdout.split())
    assert "Environment steps to train on. (1000000)" in text
    assert "example: mill train CartPole-v1" in text
    assert "preset" in text.split("options:")[0]


def test_a_run_that_has_ended_goes_on_to_more_steps(mill: Mill, tmp_path: Path) -> None:
    quiet = mill("train", *SHORT, "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    refused = mill("resume", "latest")
    assert refused.returncode == 2 and "--total-steps 8192" in refused.stderr
    told = json.loads(mill("resume", "latest", "--total-steps", "8192", "--json").stdout)
    assert told["steps"] == 8192 and len(list((tmp_path / "runs").iterdir())) == 1


def test_a_run_that_reached_its_target_goes_on_when_the_target_is_taken_away(mill: Mill) -> None:
    short = [word for word in SHORT if word != "4096"]
    short.insert(short.index("--total-steps") + 1, "20480")
    assert json.loads(mill("train", *short, "--target", "5", "--json").stdout)["stopped_by"] == "target"
    assert "--target none" in mill("resume", "latest").stderr
    told = json.loads(mill("resume", "latest", "--target", "none", "--json").stdout)
    assert told["steps"] == 20480 and told["target_reached"] is None


def test_a_new_run_may_start_from_the_weights_of_another(look: Mill, trained: dict[str, Any], tmp_path: Path) -> None:
    done = look("train", *SHORT, "--from", trained["folder"], "--folder", str(tmp_path / "warm"), "--json")
    folder = Path(json.loads(done.stdout)["folder"])
    assert json.loads((folder / "config.json").read_text())["warm_start"] == trained["folder"]
