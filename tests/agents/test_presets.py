from __future__ import annotations

import json
from dataclasses import make_dataclass
from pathlib import Path

import pytest

from millstream import assembly
from millstream.agents import figures, presets
from millstream.agents.ppo import PPO

PAIRS = [(env, algo) for algo, env in presets.names()]


@pytest.mark.parametrize(("env", "algo"), PAIRS)
def test_a_preset_is_an_experiment(env: str, algo: str) -> None:
    found = assembly.experiment(None, {"env.id": env, "algo": algo})
    assert (found.env.id, found.algo) == (env, algo)


def test_what_was_measured_was_measured_with_the_settings_of_today() -> None:
    for entry in figures.entries():
        env, algo = entry["env"], entry["algo"]
        again = f'run: make learn ARGS="--only {env} --algo {algo}"'
        assert (env, algo) in PAIRS, (
            f"{env}, {algo} was measured and is no preset any more; take it out of measured.json"
        )
        assert entry["settings"] == presets.fingerprint(env, algo), f"the preset {env}, {algo} has changed; {again}"


def test_every_preset_is_measured_once() -> None:
    assert sorted((entry["env"], entry["algo"]) for entry in figures.entries()) == sorted(PAIRS)


def test_what_was_measured_is_whole_and_on_unseen_seeds() -> None:
    for entry in figures.entries():
        first, *_ = entry["seeds"]
        assert first == figures.FIRST_SEED and len(entry["seeds"]) == len(entry["returns"]) >= figures.SEEDS
        assert entry["episodes"] >= 100
        assert entry["return"]["low"] <= entry["return"]["mean"] <= entry["return"]["high"]
        assert entry["command"] == figures.command(entry["env"], entry["algo"], len(entry["seeds"]))
        assert bool(entry["players"]) == entry["env"].startswith("Snake")


def test_a_changed_preset_has_another_fingerprint_and_no_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    env, algo = "CartPole-v1", "ppo"
    entry = {"env": env, "algo": algo, "settings": presets.fingerprint(env, algo)}
    monkeypatch.setattr(figures, "MEASURED", tmp_path / "measured.json")
    figures.MEASURED.write_text(json.dumps({"presets": [entry]}))
    assert figures.measured(env, algo) == entry
    assert figures.measured(env, "impala") is None
    monkeypatch.setattr(PPO, "Hyper", make_dataclass("Other", [("clip", float, 0.3)], bases=(PPO.Hyper,), frozen=True))
    assert figures.measured(env, algo) is None
    monkeypatch.undo()
    monkeypatch.setattr(figures, "MEASURED", tmp_path / "measured.json")
    assert figures.measured(env, algo) == entry
    monkeypatch.setitem(presets._TUNED, (algo, env), {**presets.preset(env, algo), "total_steps": 7})
    assert figures.measured(env, algo) is None


def test_published_figures_say_which_environment_they_are_for() -> None:
    (lander,) = figures.published("LunarLander-v3", "ppo")
    assert (lander["env"], lander["source"], lander["steps"]) == ("LunarLander-v2", "SB3 zoo", 1_000_000)
    assert {each["env"] for each in figures.published("ALE/Pong-v5", "ppo")} == {"PongNoFrameskip-v4"}
    assert figures.published("Snake-v0", "ppo") == figures.published("CartPole-v1", "impala") == []
