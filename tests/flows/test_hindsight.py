"""What the log of a run on Kafka is good for afterwards: its ledger, its updates once more, its episodes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from millstream import assembly, config, hindsight, training
from millstream.control import journal
from millstream.core.clock import SystemClock
from millstream.core.errors import CheckpointError
from millstream.forking import fork
from millstream.streaming import cluster_of, find
from millstream.wires.kafka.cluster import Cluster
from tests.flows.test_kafka import at, mill


@pytest.fixture(scope="module")
def run(kafka: str, kafka_is_mock: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PPO that has ended."""
    if kafka_is_mock:
        pytest.skip("the mock broker keeps nothing; set KAFKA_HOME or KAFKA_BOOTSTRAP_SERVERS")
    folder = tmp_path_factory.mktemp("runs")
    how: dict[str, Any] = {"folder": str(folder), "total_steps": 20_000, "target": None, "evaluation__episodes": 0}
    return training.train("CartPole-v1", actor__count=2, **how, **at(kafka)).folder


def experiment(run: Path) -> config.Experiment:
    return config.from_plain(training.read_config(run))


def say(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = mill(*arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def test_the_ledger_counts_every_step_of_the_log_once(run: Path) -> None:
    code, found = say("ledger", str(run))
    assert code == 0 and found["balanced"] and found["unexplained"] == 0
    told = {"published", "trained", "stale", "refused", "in_flight", "lost_with_actor"}
    assert told <= found.keys()
    assert found["published"] == found["trained"] + found["stale"] + sum(found["refused"].values()) + found["in_flight"]
    assert found["trained"] == json.loads((run / "result.json").read_text())["steps"]
    assert found["bytes"] > 0


def test_a_run_replays_to_the_same_weights(run: Path) -> None:
    code, found = say("replay", str(run))
    assert code == 0 and found["same"]
    assert found["updates"] == max(entry["update"] for entry in journal.read(run / "journal.jsonl"))
    assert found["agreed"] == found["compared"] > 3


def test_replay_names_the_first_difference(run: Path, tmp_path: Path) -> None:
    other = tmp_path / run.name
    subprocess.run(["cp", "-r", run, other], check=True)
    lines = [json.loads(line) for line in (other / "journal.jsonl").read_text().splitlines()]
    for line in lines:
        if line["update"] >= 3 and "weights" in line:
            line["weights"] = "0" * 64
    (other / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = hindsight.replay(experiment(run), other)
    assert not found.same and found.difference is not None
    assert found.difference.update == 4


def test_replay_from_the_last_checkpoint_has_nothing_to_do(run: Path) -> None:
    newest = max(int(path.name) for path in (run / "checkpoints").iterdir())
    done = mill("replay", str(run), "--from", str(newest))
    assert done.returncode == 2 and "nothing to replay" in done.stderr  # it was the run's last


def test_the_log_s_episodes_become_a_dataset(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    code, found = say("export-data", str(run), "--out", str(tmp_path / "logged"), "--episodes", "20")
    assert code == 0 and found["episodes"] == 20
    from millstream.envs.minari import open_dataset

    assert open_dataset(str(tmp_path / "logged"), assembly.spec_of(experiment(run)))


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_run_on_kafka_is_forked_into_a_log_of_its_own(durable_kafka: str, tmp_path: Path, algo: str) -> None:
    """The fork of DQN fills its table from the log of the run that it comes from."""
    how: dict[str, Any] = {"folder": str(tmp_path), "target": None, "evaluation__episodes": 0}
    first = training.train("CartPole-v1", algo=algo, total_steps=6000, **how, **at(durable_kafka))
    steps = first.result["steps"]
    second = fork(
        first.folder, {"learning_rate": 1e-4, "total_steps": 2 * steps, "kafka.prefix": f"{at('')['kafka__prefix']}"}
    )
    assert second.result["steps"] >= 2 * steps
    assert json.loads((second.folder / "lineage.json").read_text())["run"] == first.id
    found = hindsight.ledger(experiment(second.folder), second.folder)
    assert found.balanced and found.unexplained == 0
    assert found.trained == second.result["steps"] - steps


def test_a_trimmed_log_says_from_where_it_can_be_replayed(run: Path) -> None:
    known = find(experiment(run), run.name, SystemClock())
    trim(cluster_of(experiment(run)), known.names.experiences, 2)
    with pytest.raises(CheckpointError, match="the log was trimmed"):
        hindsight.replay(experiment(run), run)
    found = hindsight.ledger(experiment(run), run)  # what was trimmed is in the journal
    assert found.balanced and found.unexplained == 0


def trim(cluster: Cluster, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    admin = cluster.admin()  # its answers end with it
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(10)


def test_a_run_with_no_log_says_that_it_cannot_be_replayed(tmp_path: Path) -> None:
    made = training.train(
        "CartPole-v1", topology="inline", total_steps=2048, folder=str(tmp_path), evaluation__episodes=0
    )
    done = mill("replay", str(made.folder))
    assert done.returncode == 2 and "keeps no log" in done.stderr
    code, found = say("ledger", str(made.folder))
    assert code == 0 and found["trained"] == made.result["steps"]
