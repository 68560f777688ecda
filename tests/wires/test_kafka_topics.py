"""Topics on a real broker: how they are made, and whose they are."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from millstream.core.errors import ConfigError, NotAllowed, RunError, Unavailable
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.topics import LANES, Keep, Names, claim, create, find, owned_by, require, set_retention
from tests.brokers import Broker


@pytest.fixture
def cluster(durable_kafka):
    return Cluster(durable_kafka)


@pytest.fixture
def prefix():
    return f"t{uuid.uuid4().hex[:12]}."


def settings_of(cluster, topic):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = cluster.admin()
    (future,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(10).items()}


def test_topics_are_made_as_they_are_needed(cluster, prefix):
    names = Names(prefix)
    assert create(cluster, names, Keep(hours=2, bytes=1 << 30))[:3] == [
        names.experiences, names.model_updates, names.dead,
    ]  # fmt: skip
    there = cluster.check()
    assert [there[name] for name in names.all] == [LANES, 1, 1, 1, 1, 1]
    experiences, updates = settings_of(cluster, names.experiences), settings_of(cluster, names.model_updates)
    assert experiences["retention.ms"] == str(2 * 3600 * 1000)
    assert experiences["retention.bytes"] == str((1 << 30) // LANES)
    assert experiences["cleanup.policy"] == "delete"
    assert updates["cleanup.policy"] == "compact"
    assert all(int(each["max.message.bytes"]) > 1 << 20 for each in (experiences, updates))
    assert settings_of(cluster, names.dead)["retention.ms"] == "-1"
    assert create(cluster, names) == []
    require(cluster, names)


def test_without_a_wish_the_log_is_kept_for_good_and_another_wish_can_follow(cluster, prefix):
    names = Names(prefix)
    create(cluster, names)
    assert settings_of(cluster, names.experiences)["retention.ms"] == "-1"
    set_retention(cluster, names, Keep(hours=1))
    assert settings_of(cluster, names.experiences)["retention.ms"] == "3600000"


def test_a_missing_topic_is_one_clear_error_and_is_not_made_by_asking(cluster, prefix):
    with pytest.raises(ConfigError, match=f"no topic {prefix}experiences.*mill kafka init --prefix {prefix}"):
        require(cluster, Names(prefix))
    with pytest.raises(RunError, match="know no run nobody"):
        find(cluster, "nobody", prefix)
    consumer, place = cluster.consumer(), TopicPartition(prefix + "experiences", 0)
    with pytest.raises(KafkaException, match=r"(?i)unknown"):
        consumer.get_watermark_offsets(place, 5)
    consumer.close()
    assert Names(prefix).experiences not in cluster.check()


def test_a_prefix_belongs_to_who_claimed_it_first(cluster, prefix):
    names = claim(cluster, "mine", {"lr": 0.1}, 5.0, prefix=prefix)
    assert claim(cluster, "mine", {"lr": 0.2}, 6.0, prefix=prefix) == names
    found, owner = find(cluster, "mine", prefix)
    assert (found, owner.run, owner.config, owner.created_at) == (names, "mine", {"lr": 0.1}, 5.0)
    with pytest.raises(ConfigError, match=rf"{prefix}.* belongs to mine; choose another: kafka\.prefix"):
        claim(cluster, "yours", {}, 7.0, prefix=prefix, keep=Keep(hours=1))
    assert settings_of(cluster, names.experiences)["retention.ms"] == "-1"  # nothing of it was touched
    with pytest.raises(RunError):
        find(cluster, "yours", prefix)


def test_of_two_claims_at_once_one_wins(cluster, prefix):
    answers = {}

    def try_it(run):
        try:
            answers[run] = claim(cluster, run, {}, 0.0, prefix=prefix)
        except ConfigError as error:
            answers[run] = str(error)

    threads = [threading.Thread(target=try_it, args=(run,)) for run in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = owned_by(cluster, Names(prefix))
    loser = ({"one", "two"} - {winner}).pop()
    assert answers[winner] == Names(prefix)
    assert f"belongs to {winner}" in answers[loser]


def test_the_first_run_has_bare_names_and_the_next_its_own(own_kafka):
    cluster = Cluster(own_kafka.address)
    assert claim(cluster, "first", {}, 0.0) == Names("")
    assert claim(cluster, "second", {}, 0.0) == Names("second.")
    assert claim(cluster, "first", {}, 0.0) == Names("")
    assert find(cluster, "second")[0] == Names("second.")
    assert find(cluster, None)[1].run == "first"


def test_a_topic_that_somebody_else_made_is_refused(cluster, prefix):
    names = Names(prefix)
    admin = cluster.admin()
    for future in admin.create_topics([NewTopic(names.experiences, 2, 1)]).values():
        future.result(10)
    create(cluster, names)
    with pytest.raises(ConfigError, match=f"has 2 partitions, not {LANES}"):
        require(cluster, names)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:9092"])
def test_a_wrong_address_is_one_clear_error_in_time(address):
    began = time.monotonic()
    with pytest.raises(Unavailable, match=rf"no Kafka broker answers at {address}.*kafka\.bootstrap"):
        Cluster(address).check()
    assert time.monotonic() - began < 10


def test_refused_credentials_are_one_clear_error_and_right_ones_work(kafka_home, tmp_path_factory, tmp_path):
    word = "7f3a-hidden-word"
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    secret = tmp_path / "secret"
    secret.write_text(word + "\n")
    with Broker(kafka_home, tmp_path_factory.mktemp("kafka"), users={"ann": word}) as broker:
        assert isinstance(Cluster(broker.sasl_address, {**client, "sasl.password": f"file:{secret}"}).check(), dict)
        wrong = Cluster(broker.sasl_address, {**client, "sasl.password": "env:WORD"}, environ={"WORD": "bad-word"})
        began = time.monotonic()
        with pytest.raises(NotAllowed, match=r"refused us.*kafka\.client") as refused:
            wrong.check()
        assert time.monotonic() - began < 10
        assert "bad-word" not in f"{refused.value}{wrong!r}"


def test_a_plain_secret_is_refused_and_never_repeated():
    with pytest.raises(ConfigError, match=r"sasl\.password is a secret.*file:PATH or env:NAME") as refused:
        Cluster("127.0.0.1:1", {"sasl": {"password": "hunter2"}})
    assert "hunter2" not in str(refused.value)


def test_a_secret_that_is_not_there_is_named_by_its_place(tmp_path):
    with pytest.raises(ConfigError, match="variable NOWHERE, which is not set"):
        Cluster("127.0.0.1:1", {"sasl.password": "env:NOWHERE"}, environ={}).producer()
    with pytest.raises(ConfigError, match="cannot be read"):
        Cluster("127.0.0.1:1", {"ssl.key.password": f"file:{tmp_path / 'none'}"}).producer()


def test_a_setting_that_the_client_does_not_know_is_one_clear_error():
    with pytest.raises(ConfigError, match=r"kafka\.client.*no\.such\.thing"):
        Cluster("127.0.0.1:1", {"no.such.thing": 1}).producer()


def test_an_error_about_a_secret_does_not_tell_it():
    cluster = Cluster("127.0.0.1:1", {"ssl.key.pem": "env:KEY", "security.protocol": "SSL"}, environ={"KEY": "s3cr3t"})
    with pytest.raises(ConfigError) as refused:
        cluster.producer()
    assert "s3cr3t" not in f"{refused.value}{refused.value.__cause__}{cluster!r}"
