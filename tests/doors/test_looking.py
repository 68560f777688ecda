"""`mill runs`, `show`, `plot`, `eval`, `record`, `export`, and how a run is found."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from millstream.core.errors import RunError, UnknownName
from millstream.doors.finding import find_run

from .conftest import Mill


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for age, name in enumerate(("Snake__ppo__1", "CartPole__ppo__2", "CartPole__ppo__1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "result.json").write_text("{}")
        os.utime(tmp_path / name / "config.json", (1000 - age, 1000 - age))
    return tmp_path


def test_a_run_is_found_by_name_by_the_beginning_of_it_by_path_and_as_the_latest(runs: Path) -> None:
    assert find_run("CartPole__ppo__1", runs).name == "CartPole__ppo__1"
    assert find_run("Snake", runs).name == "Snake__ppo__1"
    assert find_run(str(runs / "CartPole__ppo__2"), Path("elsewhere")).name == "CartPole__ppo__2"
    assert find_run("latest", runs).name == "Snake__ppo__1"


def test_the_latest_run_is_not_a_start_that_failed(runs: Path) -> None:
    failed = runs / "Snake__ppo__2"
    (failed / "logs").mkdir(parents=True)
    (failed / "config.json").write_text("{}")
    (failed / "journal.jsonl").touch()
    assert find_run("latest", runs).name == "Snake__ppo__1"
    (failed / "journal.jsonl").write_text("{}")
    assert find_run("latest", runs).name == "Snake__ppo__2"


def test_where_nothing_was_trained_there_is_no_latest(tmp_path: Path) -> None:
    (tmp_path / "Snake").mkdir()
    (tmp_path / "Snake" / "config.json").write_text("{}")
    with pytest.raises(RunError, match="has trained anything yet; the newest is Snake"):
        find_run("latest", tmp_path)


def test_a_beginning_that_several_runs_share_is_refused_with_their_names(runs: Path) -> None:
    with pytest.raises(RunError, match=r"2 runs begin with 'Cart'.*CartPole__ppo__1, CartPole__ppo__2"):
        find_run("Cart", runs)


def test_a_run_that_is_not_there_gives_the_nearest_names(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean Snake__ppo__1"):
        find_run("Snaek__ppo__1", runs)
    with pytest.raises(RunError, match="mill train makes one"):
        find_run("latest", tmp_path / "nothing")


def test_runs_lists_what_there_is(look: Mill, trained: dict[str, Any]) -> None:
    assert trained["run"] in look("runs").stdout
    (only,) = json.loads(look("runs", "--json").stdout)["runs"]
    assert (only["run"], only["state"]) == (trained["run"], "finished")


def test_runs_in_an_empty_place_says_how_to_begin(mill: Mill) -> None:
    done = mill("runs")
    assert done.returncode == 0 and "mill train" in done.stdout


def test_a_reader_that_goes_away_is_no_error(trained: dict[str, Any]) -> None:
    import subprocess

    from .conftest import command

    here = Path(trained["folder"]).parents[1]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command("runs"), cwd=here, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_show_tells_settings_numbers_and_places(look: Mill, trained: dict[str, Any]) -> None:
    text = look("show", trained["run"][:10]).stdout
    for expected in (trained["run"], "ppo on CartPole-v1", "4,096", "95 % interval", "plots/run.png", "checkpoint"):
        assert expected in text
    view = json.loads(look("show", "--json").stdout)
    assert view["result"]["steps"] == 4096 and view["config"]["hyper"]["minibatch"] == 256


def test_eval_plays_as_many_episodes_as_asked_and_repeats_by_seed(look: Mill) -> None:
    once, again, other = (
        json.loads(look("eval", "--episodes", "5", "--seed", seed, "--json").stdout) for seed in ("3", "3", "4")
    )
    assert once["evaluation"]["episodes"] == 5
    assert once == again and once["evaluation"] != other["evaluation"]


def test_plot_draws_one_run_or_several(look: Mill, trained: dict[str, Any], tmp_path: Path) -> None:
    one, two = tmp_path / "one.png", tmp_path / "two.svg"
    assert look("plot", "--out", str(one)).stdout.strip() == str(one)
    assert look("plot", trained["run"], "latest", "--out", str(two)).returncode == 0
    assert one.read_bytes().startswith(b"\x89PNG") and b"<svg" in two.read_bytes()


def test_record_writes_a_film(look: Mill, tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    assert look("record", "--out", str(film)).returncode == 0
    assert film.read_bytes().startswith(b"GIF89a")


def test_export_writes_named_tensors(look: Mill, tmp_path: Path) -> None:
    from safetensors import safe_open

    out = tmp_path / "policy.safetensors"
    assert look("export", "--out", str(out)).returncode == 0
    with safe_open(out, "numpy") as file:
        assert {"hidden.0.weight", "policy.bias", "value.weight"} <= set(file.keys())
        assert file.metadata()["env"] == "CartPole-v1" and file.metadata()["algo"] == "ppo"


def test_export_writes_onnx_into_the_run(look: Mill, trained: dict[str, Any]) -> None:
    told = json.loads(look("export", "--format", "onnx", "--json").stdout)
    assert Path(told["file"]) == Path(trained["folder"]) / "exports" / "policy.onnx"
    assert Path(told["file"]).stat().st_size > 1000
