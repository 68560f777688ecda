"""Whatever a person gets wrong: one line that says what to do, exit code 2, nothing lost and no litter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from millstream import training
from millstream.core.errors import MillError

from .conftest import SHORT, Mill, command

LATE = """
from millstream.testing import Broken

def late():
    return Broken("crash", after=600)

def own(slots):
    from millstream.testing import ContinuousEnv
    env = ContinuousEnv(slots)
    env.step = lambda actions: 1 / 0
    return env
"""
FEW = ("--num-envs", "2", "--set", "minibatch=64", "--unroll", "64", "--quiet")


def refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    """One line on standard error, exit code 2."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("mill: ") and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr


def litter(folder: Path) -> list[str]:
    return [path.name for path in (folder / "runs").glob("*")]


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["train", "--algo", "pppo"], ["unknown algorithm 'pppo'; did you mean ppo"]),
        (["train", "--actors", "many"], ["actor.count should be a whole number, got 'many'"]),
        (["train", "--actors", "99"], ["actor.count should be at least 0 and at most 16, got 99"]),
        (["train", "--set", "learning_rat=1"], ["did you mean hyper.learning_rate"]),
        (["train", "--set", "actor.cuont=1"], ["did you mean actor.count"]),
        (["train", "--set", "learning_rate=fast"], ["hyper.learning_rate should be a number, got 'fast'"]),
        (["train", "--set", "clip"], ["--set takes key=value, got 'clip'"]),
        (["train", "--topology", "cloud"], ["topology should be one of inline, processes"]),
        (["train", "--config", "no.toml"], ["no.toml cannot be read: No such file"]),
        (["train", "--total-step", "5"], ["unknown option '--total-step'; did you mean --total-steps"]),
        (["train", "A-v0", "--env", "B-v0"], ["two environments"]),
        (["train", "--seeds", "0"], ["--seeds should be at least 1"]),
        (["trian"], ["unknown command 'trian'; did you mean train"]),
        (["show", "nothing"], ["unknown run 'nothing'"]),
        (["algos", "pp"], ["did you mean ppo"]),
        (["eval", "latest"], ["there are no runs"]),
        (["train", "--from", "nothing"], ["unknown run 'nothing'"]),
        (["export", "--format", "pickle"], ["invalid choice: 'pickle'"]),
        (["train", "--algo", "fractions:Fraction"], ["fractions:Fraction is not an agent: it lacks Hyper"]),
        (["train", "--network", "fractions:Fraction"], ["fractions:Fraction is not a network"]),
        (["train", "--wrapper", "fractions:Nothing"], ["unknown wrapper 'fractions:Nothing'; a wrapper is"]),
        (["train", "envpool:CartPol-v1"], ["EnvPool"]),
        (["train", "fractions:Nothing"], ["unknown environment 'fractions:Nothing'"]),
        (["envs", "check", "nowhere:x"], ["mill: there is no module 'nowhere'"]),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused_before_anything_starts(
    mill: Mill, tmp_path: Path, words: list[str], texts: list[str]
) -> None:
    refused(mill(*words), *texts)
    assert litter(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("a.toml", "total_steps = 'many'", "total_steps should be a whole number, got 'many'"),
        ("a.toml", "[actor]\nenvs = 0", "actor.envs should be at least 1"),
        ("a.json", '{"sede": 1}', "did you mean seed"),
        ("a.json", "{", "is not valid json"),
        ("a.yaml", "seed: [", "is not valid yaml"),
        ("a.ini", "", "should end in .toml, .json or .yaml"),
    ],
)
def test_a_wrong_experiment_file_is_refused(mill: Mill, tmp_path: Path, name: str, body: str, text: str) -> None:
    (tmp_path / name).write_text(body)
    refused(mill("train", "--config", name), text)
    assert litter(tmp_path) == []


@pytest.mark.parametrize("topology", ["inline", "processes"])
@pytest.mark.parametrize(
    ("env", "text"),
    [
        ("CartPol-v1", "unknown environment 'CartPol-v1'; did you mean CartPole-v1"),
        ("millstream.testing:CrashingEnv", "raised in step: ValueError: the physics exploded"),
        ("millstream.testing:NanEnv", "holds nan"),
        ("millstream.testing:WrongShapeEnv", "has shape (3,), its space promises (2,)"),
    ],
)
def test_a_bad_environment_is_named_and_leaves_no_run(
    mill: Mill, tmp_path: Path, env: str, text: str, topology: str
) -> None:
    done = mill("train", env, "--topology", topology, *FEW)
    refused(done, text)
    assert "failed:" not in done.stderr and "Error:" not in done.stderr.replace("ValueError:", "")
    assert litter(tmp_path) == []


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_an_environment_that_crashes_late_loses_nothing(mill: Mill, tmp_path: Path, topology: str) -> None:
    (tmp_path / "mine.py").write_text(LATE)
    refused(mill("train", "mine:late", "--topology", topology, *FEW), "the physics exploded; what was trained is kept")
    (run,) = (tmp_path / "runs").iterdir()
    assert list(run.glob("checkpoints/*/MANIFEST.json")) and (run / "policies" / "latest.safetensors").is_file()


def test_a_fault_in_an_environment_of_ones_own_is_one_line(mill: Mill, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LATE)
    done = mill("train", "mine:own", *SHORT, "--quiet")
    refused(done)
    assert "mine:own failed in step" in done.stderr and "ZeroDivisionError" in done.stderr


FAULTY = """
from millstream.agents.ppo import PPO

class Faulty(PPO):
    def prepare(self, state, rollouts, hyper):
        return 1 / 0
"""


def test_a_fault_in_code_of_ones_own_is_apologised_for_and_its_traceback_kept(mill: Mill, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAULTY)
    done = mill("train", "--algo", "mine:Faulty", *SHORT, "--quiet")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "ZeroDivisionError" in done.stderr and "the traceback is in runs/" in done.stderr
    (log,) = tmp_path.glob("runs/*/logs/root.log")
    assert "1 / 0" in log.read_text()
    assert "Traceback" in mill("train", "--algo", "mine:Faulty", *SHORT, "--quiet", MILL_DEBUG="1").stderr


def test_a_name_that_does_not_exist_starts_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "new_folder", lambda *_: pytest.fail("a folder was made"))
    for words in ({"env": "CartPol-v1"}, {"algo": "fractions:Fraction"}, {"network__kind": "fractions:Fraction"}):
        with pytest.raises(MillError):
            training.train(folder=str(tmp_path), topology="processes", **words)


def test_a_plot_in_an_unknown_format_is_refused(look: Mill, tmp_path: Path) -> None:
    refused(look("plot", "latest", "--out", str(tmp_path / "a.txt")), "a plot ends in .png, .svg, .pdf or .jpg")


@pytest.mark.parametrize("word", ["eval", "record"])
def test_a_policy_of_another_environment_does_not_play(
    trained: dict[str, Any], tmp_path: Path, mill: Mill, word: str
) -> None:
    run = tmp_path / "runs" / trained["run"]
    shutil.copytree(trained["folder"], run)
    config = json.loads((run / "config.json").read_text())
    config["env"]["id"] = "Snake-v0"
    (run / "config.json").write_text(json.dumps(config))
    refused(mill(word, "latest"), "was trained for another environment: the policy expects ")


ALONE = """
from millstream.agents.ppo import PPO

class Alone:
    Hyper, window, max_lag, sequences = PPO.Hyper, PPO.window, PPO.max_lag, False

    def __init__(self, *parts):
        self._ppo = PPO(*parts)

    def __getattr__(self, name):
        if name == "adopt":
            raise AttributeError(name)
        return getattr(self._ppo, name)

for name in ("init", "policy", "carry", "act", "prepare", "gradients", "apply"):
    setattr(Alone, name, lambda self, *given, _name=name: getattr(self._ppo, _name)(*given))
"""


def test_an_agent_that_cannot_start_from_other_weights_is_told(
    trained: dict[str, Any], tmp_path: Path, mill: Mill
) -> None:
    (tmp_path / "mine.py").write_text(ALONE)
    words = ("train", "--algo", "mine:Alone", "--from", trained["folder"], *SHORT)
    refused(mill(*words), "Alone cannot start from other weights: it has no `adopt`", "leave --from out")
    assert litter(tmp_path) == []


def test_with_json_an_error_is_one_object_too(mill: Mill) -> None:
    done = mill("train", "CartPol-v1", "--json")
    refused(done)
    told = json.loads(done.stdout)
    assert told["error"] == "UnknownName" and "CartPole-v1" in told["text"] and done.stdout.count("\n") == 1


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_weights_of_another_environment_are_refused(
    look: Mill, trained: dict[str, Any], tmp_path: Path, topology: str
) -> None:
    words = (
        "train",
        "Snake-v0",
        "--from",
        trained["folder"],
        "--topology",
        topology,
        "--folder",
        str(tmp_path / "runs"),
    )
    refused(look(*words), "does not fit this experiment: the policy expects ")
    assert litter(tmp_path) == []


def test_a_checkpoint_of_another_environment_is_refused_and_the_run_stays_as_it_was(
    trained: dict[str, Any], tmp_path: Path, mill: Mill
) -> None:
    run = tmp_path / "runs" / trained["run"]
    shutil.copytree(trained["folder"], run)
    before = {name: (run / name).read_bytes() for name in ("config.json", "result.json")}
    refused(
        mill("resume", "latest", "--set", "env.id=Snake-v0", "--total-steps", "9000"),
        "the checkpoint is of ppo on CartPole-v1, this experiment is ppo on Snake-v0",
    )
    assert {name: (run / name).read_bytes() for name in before} == before


def test_a_folder_below_a_file_is_refused(mill: Mill, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(
        mill("train", *SHORT, "--folder", "file/runs"),
        "file/runs",
        "Not a directory",
        "choose another place with --folder",
    )
    assert (tmp_path / "file").read_text() == "mine"


def in_namespace(folder: Path, mount: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `mill` in a mount namespace of its own, so that the disk can be small or read-only for it alone."""
    script = f'{mount} && exec "$@"'
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *command(*words)],
        cwd=folder, capture_output=True, text=True, timeout=60, env=dict(os.environ),
    )  # fmt: skip


needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode != 0
    if shutil.which("unshare")
    else True,
    reason="this system lets nobody mount a disk of their own",
)


@needs_namespaces
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    mount = f"mount -t tmpfs -o ro tmpfs {tmp_path / 'disk'}"
    refused(
        in_namespace(tmp_path, mount, "train", *SHORT, "--folder", "disk/runs"), "choose another place with --folder"
    )


@needs_namespaces
@pytest.mark.parametrize(("size", "topology"), [("64k", "inline"), ("600k", "inline"), ("900k", "processes")])
def test_a_full_disk_is_told_and_what_was_trained_is_kept(tmp_path: Path, size: str, topology: str) -> None:
    (tmp_path / "disk").mkdir()
    mount = f"mount -t tmpfs -o size={size} tmpfs {tmp_path / 'disk'}"
    words = ("train", "--folder", "disk/runs", "--topology", topology, "--quiet")
    done = in_namespace(tmp_path, mount, *words, "--target", "none", "--checkpoint-every", "20000")
    refused(done, "the disk is full")
    assert ("what was trained is kept: mill resume disk/runs/CartPole" in done.stderr) == (size != "64k")
