"""Weights on a real broker: whole or not at all, whatever dies, and whatever compaction takes away."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millstream.core.codec import encode_policy
from millstream.core.data import NONE, Params, Policy, Version
from millstream.core.errors import Fenced
from millstream.core.topics import EXPERIENCES
from millstream.wires.kafka.announcing import Announcer
from millstream.wires.kafka.looking import Looking
from tests.kafka_runs import kafka_run, until
from tests.wires.test_kafka_parts import random_rollout

PARTS = 3
SIZE = PARTS * (1 << 18) - 50_000  # numbers of four bytes, a little less than so many parts


def policy(number: int, epoch: int = 0, size: int = SIZE) -> Policy:
    return Policy(Version(epoch, number), Params({"w": np.full(size, number, np.float32)}), steps=number)


def assert_whole(read, number):
    assert read.version.number == number
    assert (read.params.tensors["w"] == number).all()


def published(store, *policies):
    for each in policies:
        store.publish(each)
        assert store.flush(30)


def test_a_policy_of_forty_megabytes_arrives_whole_and_the_newest_wins(on_kafka):
    learner, reader = on_kafka.learner(), on_kafka.policies()
    assert reader.latest() is None
    published(learner, policy(1, size=10_000_000), policy(2, size=10_000_000))
    assert_whole(until(lambda: reader.latest(Version(0, 1)), 60), 2)
    assert_whole(on_kafka.policies().latest(), 2)


def test_of_policies_that_wait_the_newest_goes(on_kafka):
    learner = on_kafka.learner()
    for number in range(1, 30):
        learner.publish(policy(number))
    assert learner.flush(30)
    assert_whole(on_kafka.policies().latest(), 29)


class Careless(Announcer):
    """Damages what it writes."""

    def _records(self, policy, credits):
        first, *rest = super()._records(policy, credits)
        return [(first[0], first[1][:-1] + b"!", first[2]), *rest] if policy else [first, *rest]


def test_a_damaged_part_leaves_the_policy_before_it(on_kafka):
    learner, reader = on_kafka.learner(), on_kafka.policies()
    published(learner, policy(1))
    assert_whole(until(reader.latest), 1)
    careless = Careless(on_kafka.cluster, on_kafka.names, on_kafka.name)
    careless.announce(Version(0, 2), encode_policy(policy(2)))
    assert careless.flush(30)
    assert until(lambda: reader.latest() and reader.reading().damaged)
    assert_whole(reader.latest(), 1)
    assert_whole(on_kafka.policies().latest(), 1)
    careless.close()
    published(on_kafka.learner(), policy(3))
    assert_whole(until(lambda: reader.latest(Version(0, 1))), 3)


def test_a_second_learner_fences_the_first_which_says_so(on_kafka):
    first = on_kafka.learner()
    published(first, policy(1, size=10))
    second = on_kafka.policies()
    assert second.take_over() == 1
    first.publish(policy(2, size=10))
    with pytest.raises(Fenced, match="another learner has taken over"):
        first.flush(30)
    with pytest.raises(Fenced):
        first.release(0, 0, 0)
    published(second, policy(1, epoch=1, size=10))
    assert until(lambda: on_kafka.policies().latest().version == Version(1, 1))
    assert on_kafka.policies().take_over() == 2


KILLED = """
import os, signal, sys
import numpy as np
from millstream.core.codec import encode_policy
from millstream.core.data import Params, Policy, Version
from millstream.wires.kafka.announcing import Announcer
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.topics import Names

address, run, number, size, after = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

class Dying(Announcer):
    policies = 0

    def _produce(self, record):
        super()._produce(record)
        self.policies += record[1][:1] != b"{" or b'"parts"' in record[1]
        if self.policies == after:
            assert self._producer.flush(20) == 0
            os.kill(os.getpid(), signal.SIGKILL)

one = Dying(Cluster(address), Names(run + "."), run)
weights = np.full(size, number, np.float32)
one.announce(Version(one.epoch, number), encode_policy(Policy(Version(one.epoch, number), Params({"w": weights}))))
one.flush(30)
"""


def compact_soon(run):
    wanted = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ResourceType.TOPIC, run.names.model_updates, incremental_configs=entries)
    admin = run.cluster.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def versions(run):
    """Of which there are parts in the log."""
    with Looking(run.cluster, run.names.model_updates) as looking:
        return {dict(message.headers() or ()).get("version") for message in looking.read(*looking.bounds())}


def compacted(run, learner):
    """Write credit, for only what is followed by something is compacted, until the first policy is gone."""
    credit = iter(range(10_000))

    def gone():
        learner.release(0, 0, next(credit))
        assert learner.flush(20)
        return b"0.1" not in versions(run)

    assert until(gone, 60)


def test_a_fresh_reader_gets_a_whole_policy_after_compaction(on_kafka):
    compact_soon(on_kafka)
    learner = on_kafka.learner()
    published(learner, *(policy(number) for number in range(1, 9)))
    compacted(on_kafka, learner)
    assert_whole(on_kafka.policies().latest(), 8)
    published(learner, policy(9))
    assert_whole(on_kafka.policies().latest(), 9)
    learner.close()
    assert on_kafka.policies().take_over() == 1


@pytest.mark.parametrize("after", range(1, PARTS + 2))
def test_a_writer_that_is_killed_after_any_part_leaves_the_policy_before_it(on_kafka, after):
    compact_soon(on_kafka)
    learner = on_kafka.learner()
    published(learner, *(policy(number) for number in range(1, 5)))
    command = [KILLED, on_kafka.cluster.bootstrap, on_kafka.name, "7", str(SIZE), str(after)]
    assert subprocess.run([sys.executable, "-c", *command], timeout=60).returncode == -9
    assert_whole(on_kafka.policies().latest(), 4)  # while the transaction is open
    successor = on_kafka.policies()
    assert successor.take_over() == 2
    compacted(on_kafka, successor)
    assert_whole(on_kafka.policies().latest(), 4)
    published(successor, policy(7, epoch=2))
    assert_whole(on_kafka.policies().latest(), 7)


@pytest.mark.timeout(300)
def test_everything_arrives_once_when_the_broker_is_killed_meanwhile(own_kafka):
    with kafka_run(own_kafka.address) as run:
        learner, actor = run.learner(), run.policies()
        sender = run.bus(window=4, policies=actor)
        reader = run.bus(policies=learner).subscribe(EXPERIENCES, "learner")
        sent, seen, newest = [0], [], NONE
        total = 60
        away = [0]  # rounds without a broker

        def work():
            nonlocal newest
            rollout = random_rollout(sent[0])
            stamp = replace(rollout.stamp, experiment=run.name, actor=0, epoch=0, sequence=sent[0])
            if sent[0] < total and sender.publish(EXPERIENCES, replace(rollout, stamp=stamp)):
                sent[0] += 1
            for delivery in reader.poll(10):
                seen.append(delivery.message.stamp.sequence)
                reader.release(delivery.message.stamp)
                learner.publish(policy(len(seen), size=1000))
            read = actor.latest(newest)
            newest = read.version if read else newest
            if len(seen) >= 20 and not away[0]:
                own_kafka.kill()
            if len(seen) >= 20 and away[0] <= 50:
                away[0] += 1
            if away[0] == 50:
                own_kafka.start()
            return len(seen) >= total and newest.number == total

        assert until(work, 180, pause=0.03), (sent, len(seen), newest)
        assert away[0] > 50
        assert seen == list(range(total))
        assert until(lambda: sender.settled(EXPERIENCES, 0) == total - 1)
