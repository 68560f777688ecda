"""The broker that tests of the Kafka wires stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.brokers import Broker, BrokerFailed
from tests.flows.test_processes import until

pytest.importorskip("confluent_kafka")

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).parents[1]
USERS = {"miller": "flour"}


def make_topic(address: str, name: str) -> None:
    client = AdminClient({"bootstrap.servers": address})
    client.create_topics([NewTopic(name, 1, 1)])[name].result(10)


def send(address: str, topic: str, values: list[bytes]) -> None:
    """Every one of them is acknowledged, or this raises."""
    lost: list[Any] = []
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: lost.append(error) if error else None)
    assert producer.flush(20) == 0 and not lost


def received(address: str, topic: str, count: int) -> list[bytes]:
    """The first messages of a topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found: list[bytes] = []
    try:
        until(lambda: found.extend(_values(consumer)) or len(found) >= count, f"{count} messages")
    finally:
        consumer.close()
    return found


def _values(consumer: Consumer) -> list[bytes]:
    messages = consumer.consume(1000, timeout=0.1)
    return [message.value() for message in messages if not message.error()]


def test_a_message_comes_back_from_the_shared_broker(kafka: str, kafka_is_mock: bool) -> None:
    topic = f"test-{uuid.uuid4().hex}"
    if not kafka_is_mock:
        make_topic(kafka, topic)
    send(kafka, topic, [b"one"])
    assert received(kafka, topic, 1) == [b"one"]


def test_a_topic_that_nobody_made_is_not_there(durable_kafka: str) -> None:
    producer = Producer({"bootstrap.servers": durable_kafka, "topic.metadata.propagation.max.ms": 0})
    said: list[Any] = []
    producer.produce(f"test-{uuid.uuid4().hex}", b"lost", on_delivery=lambda error, _: said.append(error))
    producer.flush(10)
    assert said[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_what_was_acknowledged_is_there_after_kill_9_at_the_same_address(own_kafka: Broker) -> None:
    make_topic(own_kafka.address, "kept")
    values = [str(number).encode() for number in range(1000)]
    send(own_kafka.address, "kept", values)
    before, address = own_kafka.pid, own_kafka.address
    own_kafka.kill()
    assert own_kafka.pid is None and before and not psutil.pid_exists(before)
    own_kafka.start()
    assert own_kafka.pid != before and own_kafka.address == address
    assert received(address, "kept", 1000) == values
    send(address, "kept", [b"after"])
    assert received(address, "kept", 1001)[-1] == b"after"


def test_a_broker_that_asks_for_passwords_knows_its_users_and_nobody_else(kafka_home: Path, tmp_path: Path) -> None:
    with Broker(kafka_home, tmp_path, users=USERS) as broker:
        seen = AdminClient(_with_password(broker, "flour")).list_topics(timeout=10)
        assert [f"{each.host}:{each.port}" for each in seen.brokers.values()] == [broker.sasl_address]
        heard: list[KafkaError] = []
        stranger = Producer(_with_password(broker, "chaff"), error_cb=heard.append)
        until(lambda: stranger.poll(0.1) or heard, "a refusal", 10)
        assert heard[0].code() == KafkaError._AUTHENTICATION
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=1)
        broker.stop()
        assert broker.pid is None
    assert broker.log.exists() and not broker.data.exists()


def _with_password(broker: Broker, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.sasl_address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "miller",
        "sasl.password": password,
        "log_level": 0,
    }


def test_a_broker_that_cannot_start_says_why(kafka_home: Path, tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="format failed"):
        Broker(kafka_home, tmp_path, {"process.roles": "miller"}).start()


def test_a_broker_ends_with_the_process_that_started_it_even_by_kill_9(kafka_home: Path, tmp_path: Path) -> None:
    code = f"""
        import signal
        from pathlib import Path
        from tests.brokers import Broker
        print(Broker(Path({str(kafka_home)!r}), Path({str(tmp_path)!r})).start().pid, flush=True)
        signal.pause()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout
        broker = psutil.Process(int(owner.stdout.readline()))
        assert broker.is_running()
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: not broker.is_running(), "the end of the broker", 10)


MISSING = ("KAFKA_HOME", "KAFKA_BOOTSTRAP_SERVERS", "CI")
SHARED, OWN = "test_a_message_comes_back_from_the_shared_broker", "test_what_was_acknowledged_is_there"


def pytest_here(*selected: str, **environ: str) -> str:
    """What pytest says about some of these tests where no broker can be had."""
    kept = {name: value for name, value in os.environ.items() if name not in MISSING}
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", __file__, "-k", " or ".join(selected)]
    return subprocess.run(command, cwd=ROOT, env={**kept, **environ}, capture_output=True, text=True).stdout


def test_without_a_broker_the_librarys_own_serves_and_what_needs_a_real_one_is_skipped() -> None:
    said = pytest_here(SHARED, OWN)
    assert "1 passed, 1 skipped" in said and "kafka: mock broker" in said
    assert "started from KAFKA_HOME, which is not set" in said


def test_without_a_broker_ci_fails() -> None:
    said = pytest_here(SHARED, OWN, CI="true")
    assert "no broker in CI" in said and "skipped in CI" in said and "passed" not in said
