from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import learn
import pytest

from millstream.agents import figures, presets

ROOT = Path(__file__).parents[2]
TINY = ("--topology", "inline", "--total-steps", "2048", "--eval-episodes", "4")


def test_a_preset_is_measured_by_the_command_that_people_type() -> None:
    measured, curve = learn.measure("CartPole-v1", "ppo", 2, TINY)
    assert measured["command"] == f"mill train CartPole-v1 --algo ppo --seed 101 --seeds 2 {' '.join(TINY)}"
    assert measured["settings"] == presets.fingerprint("CartPole-v1", "ppo")
    assert (measured["seeds"], measured["episodes"], measured["steps"]) == ([101, 102], 4, 2048)
    assert len(measured["returns"]) == 2 and measured["seconds"] > 0 and measured["players"] == []
    assert min(measured["returns"]) <= measured["return"]["low"] <= measured["return"]["mean"]
    assert measured["target"] == {"value": presets.preset("CartPole-v1", "ppo")["target"], "reached": 0, "steps": None}
    assert curve.startswith(b"\x89PNG")


def test_a_command_that_fails_leaves_no_measurement() -> None:
    with pytest.raises(learn.Failed, match="exit code 2"):
        learn.measure("CartPole-v1", "ppo", 1, ("--set", "no_such_setting=1"))


def test_a_measurement_changes_only_its_own_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(learn, "IMAGES", tmp_path / "images")
    other = {"env": "Pendulum-v1", "algo": "ppo", "steps": 1}
    gone = {"env": "Nowhere-v0", "algo": "ppo", "steps": 2}
    before = {"env": "CartPole-v1", "algo": "ppo", "steps": 3}
    figures.MEASURED.write_text(json.dumps({"presets": [other, gone, before]}))
    learn.keep({**before, "steps": 4, "curve": "some.png"}, b"picture")
    assert [(each["env"], each["steps"]) for each in figures.entries()] == [("CartPole-v1", 4), ("Pendulum-v1", 1)]
    assert (tmp_path / "images" / "some.png").read_bytes() == b"picture"


def test_presets_are_picked_by_part_of_a_name_and_by_algorithm() -> None:
    everything = sorted((env, algo) for algo, env in presets.names())
    assert learn.wanted([], None) == everything
    assert learn.wanted(["cartpole", "CartPole-v1"], "impala") == [("CartPole-v1", "impala")]
    with pytest.raises(SystemExit, match=r"no preset for Chess; there are presets for .*CartPole-v1"):
        learn.wanted(["CartPole", "Chess"], None)


def test_the_page_of_presets_is_up_to_date() -> None:
    page = _page()
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.renewed(text) == text, "docs/presets.md is out of date: python docs/presets.py"
    assert all(f"<!-- presets {name} -->" in text for name in page.PARTS)


def test_every_measurement_has_its_curve_and_no_curve_is_left_over() -> None:
    drawn = {path.name: path.stat().st_size for path in learn.IMAGES.glob("*")}
    assert drawn.keys() == {entry["curve"] for entry in figures.entries()}
    assert [name for name, size in drawn.items() if size > 300 * 1024] == []


def _page() -> Any:
    spec = importlib.util.spec_from_file_location("docs_presets", ROOT / "docs" / "presets.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
