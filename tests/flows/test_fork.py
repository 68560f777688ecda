"""A run goes on from one of its checkpoints as another run, and stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import assembly, forking, training
from millstream.control import journal
from millstream.core.errors import CheckpointError, ConfigError, EnvError, MillError, RunError
from millstream.forking import fork
from millstream.learner.checkpoint import Checkpoints
from millstream.telemetry.views import lineage, run_view

from .test_inline import SMALL, TABLE, run, weights

QUICK = {
    **TABLE,
    "total_steps": 1_600,
    "checkpoint.steps": 800,
    "samples_per_step": 4.0,
    "gradients": 4,
    "minibatch": 32,
    "n_step": 3,
}
"""A table that is learnt from in a moment."""


def everything(folder: Path) -> dict[str, bytes]:
    """Each file of a run."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def numbers(folder: Path) -> list[int]:
    return [saved.number for saved in Checkpoints(folder / "checkpoints").saved()]


def damage(folder: Path, number: int) -> None:
    path = folder / "checkpoints" / f"{number:08d}" / "state.safetensors"
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


@pytest.mark.parametrize(
    "settings",
    [
        {"actor.count": 2, "actor.envs": 16},
        {"algo": "dqn", "actor.count": 2, "prioritised": True, **QUICK},
    ],
    ids=["ppo", "dqn"],
)
def test_a_fork_that_changes_nothing_goes_on_as_the_run_would_have(tmp_path: Path, settings: dict[str, object]) -> None:
    whole = run(tmp_path / "whole", **settings)
    total = whole.result["steps"]
    half = run(tmp_path / "half", **{**settings, "total_steps": total // 2})
    before = everything(half.folder)
    forked = fork(half.folder, {"total_steps": settings.get("total_steps", SMALL["total_steps"])})
    assert forked.result["steps"] == total and weights(forked.folder) == weights(whole.folder)
    assert everything(half.folder) == before and forked.folder.parent == half.folder.parent
    assert forked.result["ledger"]["trained"] == total
    entries = list(journal.read(forked.folder / "journal.jsonl"))
    assert entries[0]["update"] == numbers(half.folder)[-1] + 1 and {entry["epoch"] for entry in entries} == {1}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    """A run with checkpoints 12, 16 and 20; tests leave it as it is."""
    return run(tmp_path_factory.mktemp("parent"))


@pytest.fixture(scope="module")
def critic(tmp_path_factory: pytest.TempPathFactory) -> training.Run:
    """A run that has learnt from a table; tests leave it as it is."""
    return run(tmp_path_factory.mktemp("critic"), algo="dqn", **QUICK)


def test_a_fork_says_where_it_comes_from_and_counts_on_from_there(parent: training.Run, tmp_path: Path) -> None:
    changes = {"learning_rate": 1e-5, "folder": str(tmp_path)}
    seen: list[int] = []
    forked = fork(
        parent.folder,
        changes,
        at=12,
        callbacks=training.Callbacks(on_update=lambda report: seen.append(report["steps"])),
    )
    said = {"run": parent.id, "checkpoint": 12, "steps": 12_288, "set": changes}
    assert lineage(forked.folder) == forked.result["lineage"] == run_view(forked.folder)["lineage"] == said
    assert lineage(parent.folder) is None
    config = training.read_config(forked.folder)
    assert config["hyper"]["learning_rate"] == 1e-5 and config["total_steps"] == SMALL["total_steps"]
    assert seen[0] == 12_288 + 1024 and forked.result["steps"] == 20_480
    assert weights(forked.folder) != weights(parent.folder)
    again = fork(forked.folder, {"total_steps": 24_576, "folder": str(tmp_path)})
    assert again.result["lineage"]["run"] == forked.id and again.result["steps"] == 24_576


@pytest.mark.parametrize(
    "changes",
    [
        {"normalise_observations": True, "normalise_rewards": True, "epochs": 2, "clip": 0.1},
        {"seed": 5},
        {"actor.envs": 8, "actor.unroll": 64, "minibatch": 128},
        {"actor.count": 2, "actor.envs": 16},
        {"env.args.max_episode_steps": 300},
        {"learner.stale": "correct", "learner.max_policy_lag": 0},
    ],
    ids=["marked restart", "seed", "shape of rollouts", "more actors", "world", "stale"],
)
def test_every_other_setting_may_change(parent: training.Run, tmp_path: Path, changes: dict[str, Any]) -> None:
    forked = fork(parent.folder, {**changes, "total_steps": 24_576, "folder": str(tmp_path)})
    assert forked.result["steps"] >= 24_576 and forked.result["stopped_by"] == "steps"
    plain = fork(parent.folder, {"total_steps": 24_576, "folder": str(tmp_path)})
    assert "learner.stale" in changes or weights(forked.folder) != weights(plain.folder)


def test_a_seed_decides_how_a_fork_goes_on(parent: training.Run, tmp_path: Path) -> None:
    changes = {"total_steps": 22_528, "folder": str(tmp_path), "seed": 5}
    one, two = fork(parent.folder, changes), fork(parent.folder, changes)
    assert weights(one.folder) == weights(two.folder)


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_fork_may_have_another_topology(tmp_path: Path, algo: str) -> None:
    settings = {"algo": algo, **(QUICK if algo == "dqn" else {})}
    inline = run(tmp_path, **settings)
    more = int(inline.result["steps"])
    apart = fork(inline.folder, {"topology": "processes", "total_steps": more + 1_600})
    assert apart.result["steps"] >= more + 1_600 and apart.result["topology"] == "processes"
    back = fork(apart.folder, {"topology": "inline", "total_steps": more + 20_000 if algo == "ppo" else more + 3_200})
    assert back.result["steps"] >= more + 3_200 and back.result["ledger"]["in_flight"] >= 0


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"algo": "impala"}, ConfigError, "keeps its algorithm: .* learns by ppo; for impala"),
        ({"network.hidden": (32,)}, ConfigError, r"keeps its network: network.hidden is \[64, 64\], not \[32\]"),
        ({"network.activation": "relu"}, ConfigError, "network.activation is tanh, not relu"),
        ({"env.id": "Snake-v0"}, CheckpointError, "keeps the spaces of its environment: the policy expects"),
        ({"learning_rat": 1}, MillError, "did you mean hyper.learning_rate"),
        ({"total_steps": 10}, RunError, "at checkpoint 20 has trained 20,480 of 10 steps; add --total-steps 40960"),
    ],
)
def test_what_a_fork_may_not_change_is_refused_before_anything_is_written(
    parent: training.Run, tmp_path: Path, changes: dict[str, Any], error: type[MillError], words: str
) -> None:
    with pytest.raises(error, match=words):
        fork(parent.folder, {"total_steps": 40_960, "folder": str(tmp_path / "new"), **changes})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": 4_000}, "keeps its table: it has capacity 2000, not 4000"),
        ({"n_step": 5}, r"keeps its table: it has cut Windows\(steps=3\), not "),
        ({"prioritised": True}, "keeps its table: it has select Uniform, not Prioritised"),
        ({"atoms": 11, "v_min": 0.0, "v_max": 100.0}, "the checkpoint does not fit these settings: .*shape"),
    ],
)
def test_what_shapes_a_table_or_a_network_is_refused(
    critic: training.Run, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(MillError, match=words):
        fork(critic.folder, {"total_steps": 3_200, "folder": str(tmp_path / "new"), **changes})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("changes", [{"samples_per_step": 1.0}, {"actor.envs": 8}, {"seed": 2}, {"double": False}])
def test_what_a_table_bears_may_change(critic: training.Run, tmp_path: Path, changes: dict[str, Any]) -> None:
    forked = fork(critic.folder, {"total_steps": 3_200, "folder": str(tmp_path), **changes})
    assert forked.result["steps"] >= 3_200 and weights(forked.folder) != weights(critic.folder)


def test_an_unknown_or_damaged_checkpoint_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    old, longer = run(tmp_path), {"total_steps": 24_576}
    with pytest.raises(CheckpointError, match=r"no checkpoint 7 in .*; there: 12, 16, 20"):
        fork(old.folder, longer, at=7)
    damage(old.folder, 20)
    with pytest.raises(CheckpointError, match=r"checkpoint 20 in .* is damaged; others there: 12, 16"):
        fork(old.folder, longer, at=20)
    branch = forking.branch(old.folder, longer)
    assert branch.lineage["checkpoint"] == 16 and "checkpoint 20 is damaged" in branch.warnings[0]
    with pytest.raises(RunError, match="is not the folder of a run"):
        fork(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [old.id]


def test_a_run_that_reached_its_target_is_forked_for_more_or_from_earlier(tmp_path: Path) -> None:
    old = run(tmp_path, target=15)
    assert old.result["stopped_by"] == "target"
    with pytest.raises(RunError, match="has reached its target 15; add --target none"):
        fork(old.folder)
    assert fork(old.folder, {"target": None}).result["stopped_by"] == "steps"


def test_a_fork_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    settings = {"env.id": "millstream.testing:CrashingEnv", "env.args": {"after": 10**9}, "actor.envs": 2}
    old = run(tmp_path / "runs", **settings, **{"actor.unroll": 64, "total_steps": 1_024, "minibatch": 64})
    changes = {"total_steps": 2_048, "env.args.after": 20}
    with pytest.raises(EnvError):
        fork(old.folder, changes)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [old.id]


def test_a_state_that_is_elsewhere_is_handed_over(parent: training.Run, tmp_path: Path) -> None:
    """As for a table that is refilled: whoever hands the state over decides what the new run begins with."""

    def blank(state: dict[str, Any], before: Any, after: Any) -> dict[str, Any]:
        state = forking.adapt(state, before, after)
        state["learner"]["state"]["weights"] = np.zeros_like(state["learner"]["state"]["weights"])
        return state

    branch = forking.branch(parent.folder, {"learning_rate": 1e-3}, at=16, handover=blank)
    assert not branch.policy.params.tensors["weights"].any() and branch.policy.steps == 16_384
    folder = tmp_path / "new"
    folder.mkdir()
    assert forking.plant(branch, folder) == 16
    _, state, about, _ = Checkpoints(folder / "checkpoints").load()
    assert not state["learner"]["state"]["weights"].any() and about["steps"] == 16_384
    assert json.loads((folder / "lineage.json").read_text())["checkpoint"] == 16


@pytest.mark.parametrize(
    ("changes", "sampled"),
    [({}, 3_000), ({"samples_per_step": 1.0}, 1_500), ({"samples_per_step": 4.0, "learning_starts": 700}, 5_200)],
)
def test_nobody_is_further_ahead_by_another_ratio(changes: dict[str, Any], sampled: int) -> None:
    given = {"algo": "dqn", **TABLE, "samples_per_step": 2.0}
    before, after = (assembly.experiment(None, {**given, **extra}) for extra in ({}, changes))
    state = {"learner": {"source": {"table": {"inserted": 2_000, "sampled": 3_000}}}, "companions": {}}
    adapted = forking.adapt(state, before, after)["learner"]["source"]["table"]
    assert adapted["sampled"] == sampled and state["learner"]["source"]["table"]["sampled"] == 3_000
