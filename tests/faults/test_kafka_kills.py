"""kill -9 of actor, learner and broker while a run trains over Kafka: every published step is in one place, once."""

from __future__ import annotations

import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from millstream import config, hindsight, training
from millstream.control import journal
from millstream.control.ledger import Ledger
from tests.brokers import Broker
from tests.flows.test_kafka import LONG, updates, words
from tests.flows.test_processes import mill_train, status, the_run, trained, until, workers

ALGOS = {
    "ppo": ("--algo", "ppo"),
    "dqn": ("--algo", "dqn", "--set", "prioritised=true", "--set", "learning_starts=500", "--set", "capacity=4000"),
}


def kill(run: Path, name: str) -> None:
    pid = until(lambda: workers(run).get(name), f"a living {name}", 60)
    psutil.Process(pid).kill()
    until(lambda: workers(run).get(name, pid) != pid, f"another {name}", 60)


def goes_on(run: Path, seconds: float = 60.0) -> None:
    before = trained(run)
    until(lambda: trained(run) > before, "training", seconds)


def counted(run: Path) -> Ledger:
    return hindsight.ledger(config.from_plain(training.read_config(run)), run)


def suffer(run: Path, broker: Broker, faults: list[str]) -> None:
    for fault in faults:
        goes_on(run)
        if fault == "broker":
            broker.restart()
        else:
            kill(run, fault)
    goes_on(run)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)


def check(run: Path) -> None:
    found = counted(run)
    assert found.balanced, found
    assert found.unexplained == 0, found
    assert found.trained > 0
    used = Counter(tuple(each[:3]) for entry in journal.read(run / "journal.jsonl") for each in entry["used"])
    assert set(used.values()) == {1}  # no update was done again in the journal, and no rollout used twice
    numbers = [entry["update"] for entry in journal.read(run / "journal.jsonl")]
    assert numbers == list(range(1, len(numbers) + 1))


def through(faults: list[str], algo: str, broker: Broker, folder: Path) -> Path:
    options = (*LONG, *ALGOS[algo], "--actors", "2", *words(broker.address))
    with mill_train(folder, *options) as process:
        run = the_run(folder)
        until(lambda: trained(run) > 0, "the first update", 60)
        suffer(run, broker, faults)
        assert status(run)["ledger"]["rolled_back"] == 0
        end(process)
    check(run)
    return run


@pytest.mark.timeout(400)
@pytest.mark.parametrize("algo", ALGOS)
def test_every_step_is_accounted_for_through_kills(own_kafka: Broker, tmp_path: Path, algo: str) -> None:
    run = through(["learner-0", "actor-0", "broker", "learner-0"], algo, own_kafka, tmp_path)
    seen = {entry["epoch"] for entry in journal.read(run / "journal.jsonl")}
    assert len(seen) >= 2  # of several lives of the learner


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("algo", ALGOS)
def test_every_step_is_accounted_for_through_many_kills(
    own_kafka: Broker, tmp_path: Path, algo: str, seed: int
) -> None:
    drawn = random.Random(seed)
    through([drawn.choice(("learner-0", "actor-0", "actor-1", "broker")) for _ in range(15)], algo, own_kafka, tmp_path)


def away(broker: Broker, run: Path, seconds: float) -> None:
    memory = {name: psutil.Process(pid).memory_info().rss for name, pid in workers(run).items()}
    pids = dict(workers(run))
    broker.kill()
    before = updates(run)
    with pytest.raises(AssertionError):
        until(lambda: updates(run) > before + 50, "much training without a broker", seconds)
    for name, pid in pids.items():
        assert psutil.Process(pid).memory_info().rss < memory[name] + (64 << 20)
    broker.start()
    goes_on(run)
    assert workers(run) == pids  # everybody waited, nobody ended


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seconds", [5.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_all_wait_for_a_broker_that_went_away_and_go_on_by_themselves(
    own_kafka: Broker, tmp_path: Path, seconds: float
) -> None:
    with mill_train(tmp_path, *LONG, *words(own_kafka.address)) as process:
        run = the_run(tmp_path)
        until(lambda: trained(run) > 5000, "training", 60)
        away(own_kafka, run, seconds)
        end(process)
    check(run)
