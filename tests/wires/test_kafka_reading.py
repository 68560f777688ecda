"""The log of experience on a real broker: once each, whatever comes; what is bad lies in the dead letters."""

from __future__ import annotations

import uuid
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millstream.core.codec import encode
from millstream.core.errors import CheckpointError
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import COMMANDS, EXPERIENCES, METRICS_ACTORS
from millstream.replay.admission import objection
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.history import reread, scan
from millstream.wires.kafka.looking import Looking
from millstream.wires.kafka.notes import headers_of
from millstream.wires.kafka.outlet import Outlet
from millstream.wires.kafka.sending import Sending
from tests.kafka_runs import until
from tests.wires.test_kafka_parts import assert_same, random_rollout

SPEC = EnvSpec("toy", {"image": Box((3, 2), "uint8")}, Discrete(4))


def made(run, actor, sequence, epoch=0, **size):
    rollout = random_rollout(1000 * actor + sequence, **size)
    return replace(
        rollout, stamp=replace(rollout.stamp, experiment=run.name, actor=actor, epoch=epoch, sequence=sequence)
    )


class Stranger:
    """Writes into the log what it likes."""

    def __init__(self, run):
        self.run, self.producer = run, run.cluster.producer()

    def write(self, body, partition=0, **headers):
        self.producer.produce(
            self.run.names.experiences, bytes(body), partition=partition,
            headers=[(name, str(value).encode()) for name, value in headers.items()],
        )  # fmt: skip
        assert self.producer.flush(20) == 0

    def send(self, rollout, body=None, part="0/1", **lies):
        told = headers_of(self.run.name, rollout.stamp, rollout.count, 0, 1) | {"part": part} | lies
        self.write(encode(rollout) if body is None else body, rollout.stamp.actor % 16, **told)


def reader_of(run, learner=None, admit=lambda rollout: objection(rollout, SPEC)):
    learner = learner or run.learner()
    return run.bus(policies=learner, admit=admit).subscribe(EXPERIENCES, "learner")


def polled(reader, count):
    found = []
    assert until(lambda: found.extend(reader.poll(50)) or len(found) >= count), f"{len(found)} of {count} came"
    return found


def identities(deliveries):
    return [delivery.message.stamp.identity for delivery in deliveries]


def dead_letters(run):
    with Looking(run.cluster, run.names.dead) as looking:
        return [dict(message.headers()) for message in looking.read(*looking.bounds())]


def test_a_large_rollout_arrives_whole_and_is_one_unit(on_kafka):
    large = made(on_kafka, 2, 0, steps=64, slots=16, shape=(64, 48))
    assert large.observations["image"].nbytes > 3 << 20
    sender = on_kafka.bus(window=1)
    assert sender.publish(EXPERIENCES, large)
    assert not sender.publish(EXPERIENCES, made(on_kafka, 2, 1))
    reader = reader_of(on_kafka, admit=lambda rollout: None)
    (delivery,) = polled(reader, 1)
    assert_same(delivery.message, large)
    assert (delivery.source, delivery.position, reader.positions()["actor-2"]) == ("actor-2", 0, 0)
    reader.release(large.stamp)
    assert reader.positions()["actor-2"] >= 4  # its parts
    assert until(lambda: sender.publish(EXPERIENCES, made(on_kafka, 2, 1)))
    counted = scan(on_kafka.cluster, on_kafka.names, on_kafka.name)
    assert until(lambda: [(each.identity, each.steps) for each in counted][:1]) == [((2, 0, 0), large.count)]
    assert counted.bytes > 3 << 20


def test_an_unfinished_rollout_of_a_dead_actor_stops_nothing(on_kafka):
    stranger, reader = Stranger(on_kafka), reader_of(on_kafka)
    stranger.send(made(on_kafka, 0, 0))
    stranger.send(made(on_kafka, 0, 1), part="0/2")
    stranger.send(made(on_kafka, 0, 0, epoch=9))
    deliveries = polled(reader, 2)
    assert identities(deliveries) == [(0, 0, 0), (0, 9, 0)]
    for delivery in deliveries:
        reader.release(delivery.message.stamp)
    assert (reader.positions()["actor-0"], reader.incomplete) == (3, 1)
    counted = scan(on_kafka.cluster, on_kafka.names, on_kafka.name)
    assert [each.identity for each in counted] == [(0, 0, 0), (0, 9, 0)]
    assert counted.incomplete == 1


def test_what_comes_twice_is_delivered_once_and_what_is_foreign_is_skipped(on_kafka):
    stranger, reader = Stranger(on_kafka), reader_of(on_kafka)
    one, two = made(on_kafka, 0, 0), made(on_kafka, 0, 1)
    for rollout in (one, two, one, two):
        stranger.send(rollout)
    elsewhere = replace(one, stamp=replace(one.stamp, experiment="other", sequence=7))
    stranger.send(elsewhere, run="other")
    stranger.send(made(on_kafka, 0, 2))
    assert identities(polled(reader, 3)) == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    assert (reader.duplicates, reader.foreign, sum(reader.dead.values())) == (2, 1, 0)
    counted = scan(on_kafka.cluster, on_kafka.names, on_kafka.name)
    assert [each.identity for each in counted] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    assert (counted.duplicates, counted.foreign) == (2, 1)


def corrupt(rollout):
    body = encode(rollout)
    body[-20] ^= 0xFF
    return body


def old(rollout):
    body = encode(rollout)
    body[4:6] = (0).to_bytes(2, "little")
    return body


def laden(rollout):
    rewards = rollout.rewards.copy()
    rewards[0, 0] = np.nan
    return encode(replace(rollout, rewards=rewards))


def misshapen(rollout):
    return encode(replace(rollout, observations={"image": rollout.observations["image"][..., :1]}))


BAD = {
    "checksum": corrupt,
    "truncated": lambda rollout: encode(rollout)[:9],
    "unreadable": lambda rollout: b"these are not the bytes of a rollout",
    "schema": old,
    "non_finite": laden,
    "spec": misshapen,
    "oversized": lambda rollout: bytes(3 << 20),
}


def allow_large(run):
    entry = ConfigEntry("max.message.bytes", str(8 << 20), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, run.names.experiences, incremental_configs=[entry])
    admin = run.cluster.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def test_what_is_bad_is_put_aside_with_its_reason_and_the_rest_goes_on(on_kafka):
    allow_large(on_kafka)
    stranger, reader = Stranger(on_kafka), reader_of(on_kafka)
    stranger.producer = on_kafka.cluster.producer({"message.max.bytes": 8 << 20})
    stranger.send(made(on_kafka, 0, 0))
    steps = []
    for sequence, spoil in enumerate(BAD.values(), 1):
        rollout = made(on_kafka, 0, sequence)
        steps.append(rollout.count)
        stranger.send(rollout, spoil(rollout))
    stranger.send(made(on_kafka, 0, 8))
    assert identities(polled(reader, 2)) == [(0, 0, 0), (0, 0, 8)]
    assert reader.refused() == [
        (0, 0, sequence, steps[sequence - 1], reason) for sequence, reason in enumerate(BAD, 1)
    ]  # fmt: skip
    assert reader.refused() == []
    assert dict(reader.dead) == dict.fromkeys(BAD, 1)
    letters = until(lambda: len(found := dead_letters(on_kafka)) == len(BAD) and found)
    assert [(letter["reason"].decode(), int(letter["offset"])) for letter in letters] == [
        (reason, offset) for offset, reason in enumerate(BAD, 1)
    ]


LIES = {
    "another rollout": {"id": "0/0/5"},
    "other steps": {"steps": "123456"},
    "an endless number of parts": {"part": "3/2"},
    "a negative sequence": {"id": "0/0/-4"},
    "no number": {"id": "a/b/c"},
}


def test_headers_that_lie_are_put_aside_and_hide_nothing(on_kafka):
    stranger, reader = Stranger(on_kafka), reader_of(on_kafka)
    for lie in LIES.values():
        stranger.send(made(on_kafka, 0, 0, epoch=1), **lie)
    stranger.write(encode(made(on_kafka, 0, 0)))  # none at all
    stranger.send(made(on_kafka, 0, 0), b"no rollout, and far ahead", id=f"0/0/{10**9}")
    stranger.write(
        encode(made(on_kafka, 3, 0)), 5, **headers_of(on_kafka.name, made(on_kafka, 3, 0).stamp, 1, 0, 1)
    )  # in a partition that is not its actor's
    for sequence in range(3):
        stranger.send(made(on_kafka, 0, sequence))
    assert identities(polled(reader, 3)) == [(0, 0, sequence) for sequence in range(3)]
    until(lambda: reader.poll(10) or sum(reader.dead.values()) == len(LIES) + 3)
    assert reader.dead == {"headers": len(LIES) + 2, "unreadable": 1}
    assert {(0, 0, 5), (0, 0, 10**9), (3, 0, 0)} <= {each[:3] for each in reader.refused()}
    assert reader._policies.flush()


def test_an_actor_whose_rollouts_are_refused_goes_on(on_kafka):
    reader, sender = reader_of(on_kafka, admit=lambda rollout: "non_finite: all of it"), on_kafka.bus(window=1)
    for sequence in range(3):
        rollout = made(on_kafka, 0, sequence)
        assert until(lambda rollout=rollout: reader.poll(10) or sender.publish(EXPERIENCES, rollout))
    assert until(lambda: reader.poll(10) or len(reader.refused()) >= 1)


def test_credit_of_two_lives_of_one_actor_does_not_mix(on_kafka):
    learner = on_kafka.learner()
    actor = on_kafka.policies()
    learner.release(0, 2000, 4)
    learner.release(0, 1000, 9)  # who lived before, done with later
    assert until(lambda: actor.released(0, 1000) == 9)
    assert actor.released(0, 2000) == 4
    assert actor.released(0, 3000) == -1


def test_a_restored_reader_gives_credit_again_that_may_have_been_lost(on_kafka):
    reader, actor = reader_of(on_kafka), on_kafka.policies()
    assert actor.released(0, 7) == -1  # the learner that kept this died before it said so
    reader.restore({"positions": {"actor-0": 4}, "lives": [[0, 7, 3]]})
    assert until(lambda: actor.released(0, 7) == 3)


MOVES = st.lists(st.sampled_from(["send", "bad", "again", "poll", "poll", "release", "keep", "restart"]), max_size=40)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES, st.randoms(use_true_random=False))
def test_everything_is_done_with_once_over_restarts(on_kafka, moves, random):
    """A learner keeps what it has done together with where it was; what it did after that, it has never done."""
    epoch = uuid.uuid4().int >> 80
    stranger, learner = Stranger(on_kafka), on_kafka.learner()
    reader = reader_of(on_kafka, learner)
    reader.restore({"positions": ends_of(on_kafka), "lives": []})
    published, held, done = [], [], []
    kept = (reader.snapshot(), [])
    for move in [*moves, "keep", "restart"]:
        if move in ("send", "bad"):
            actor = random.choice([0, 1, 16])
            sequence = sum(each[0] == actor for each in published)
            rollout = made(on_kafka, actor, sequence, epoch)
            stranger.send(rollout, corrupt(rollout) if move == "bad" else None)
            published.append(rollout.stamp.identity)
        elif move == "again" and published:
            actor, _, sequence = random.choice(published)
            stranger.send(made(on_kafka, actor, sequence, epoch))
        elif move == "poll":
            got, most = [], random.randint(1, 4)
            until(lambda got=got, most=most, reader=reader: got.extend(reader.poll(most)) or got, 0.2)
            held += [delivery.message.stamp for delivery in got]
            done += [each[:3] for each in reader.refused()]
        elif move == "release" and held:
            stamp = random.choice(held)
            mine = [each for each in held if each.actor == stamp.actor]
            gone = mine[: mine.index(stamp) + 1]
            held = [each for each in held if each not in gone]
            done += [each.identity for each in gone]
            reader.release(stamp)
        elif move == "keep":
            kept = (reader.snapshot(), list(done))
        elif move == "restart":
            reader.close()
            reader = reader_of(on_kafka, learner)
            reader.restore(kept[0])
            held, done = [], list(kept[1])

    def all_done():
        for delivery in reader.poll(10):
            done.append(delivery.message.stamp.identity)
            reader.release(delivery.message.stamp)
        done.extend(each[:3] for each in reader.refused())
        return len(done) >= len(set(published))

    assert until(all_done)
    assert not reader.poll(10)
    assert sorted(done) == sorted(published)


def ends_of(run):
    ends = {}
    for partition in range(16):
        with Looking(run.cluster, run.names.experiences, partition) as looking:
            ends[f"actor-{partition}"] = looking.bounds()[1]
    return ends


def trim(run, partition, offset):
    admin = run.cluster.admin()
    for future in admin.delete_records([TopicPartition(run.names.experiences, partition, offset)]).values():
        future.result(10)


def test_a_trimmed_log_is_told(on_kafka):
    stranger, reader = Stranger(on_kafka), reader_of(on_kafka)
    for sequence in range(6):
        stranger.send(made(on_kafka, 0, sequence))
    reader.seek({"actor-0": 1})
    assert reader.trimmed() == {}
    trim(on_kafka, 0, 4)
    late = reader_of(on_kafka, reader._policies)
    late.seek({"actor-0": 1, "actor-1": 7})
    assert late.trimmed() == {"actor-0": (1, 4), "actor-1": (7, 0)}
    assert identities(polled(late, 2)) == [(0, 0, 4), (0, 0, 5)]


LARGE = {"steps": 64, "slots": 16, "shape": (48, 32)}


def test_rollouts_are_read_again_in_the_order_that_is_asked_for(on_kafka):
    sender = on_kafka.bus(window=100)
    wanted = {}
    for sequence in range(6):
        for actor in (0, 1):
            size = LARGE if sequence == 3 else {}
            assert sender.publish(EXPERIENCES, made(on_kafka, actor, sequence, **size))
    assert sender.sending.flush(20)
    for each in scan(on_kafka.cluster, on_kafka.names, on_kafka.name):
        wanted[each.source, each.offset] = each.identity
    places = sorted(wanted, key=lambda place: hash((place, 3)))
    places += places[:3]
    again = list(reread(on_kafka.cluster, on_kafka.names, places))
    assert [rollout.stamp.identity for rollout in again] == [wanted[place] for place in places]
    for rollout, (actor, _, sequence) in zip(again, (wanted[place] for place in places), strict=True):
        assert_same(rollout, made(on_kafka, actor, sequence, **(LARGE if sequence == 3 else {})))
    trim(on_kafka, 0, 2)
    with pytest.raises(CheckpointError, match=r"at 0 of actor-0.*no longer there.*log\.keep"):
        list(reread(on_kafka.cluster, on_kafka.names, [("actor-1", 0), ("actor-0", 0)]))


def test_what_finds_no_room_is_kept_and_sent_later_in_order(on_kafka):
    narrow = Cluster(on_kafka.cluster.bootstrap, {"queue.buffering.max.messages": 2, "linger.ms": 200})
    outlet = Outlet(narrow)
    sending = Sending(outlet, on_kafka.names, on_kafka.name, 100, on_kafka.policies())
    for sequence in range(12):
        assert sending.publish(made(on_kafka, 0, sequence))
    assert outlet.waiting <= 2
    assert sending.unsettled > 2
    assert sending.flush(20)
    assert sending.settled(0) == 11
    assert identities(polled(reader_of(on_kafka), 12)) == [(0, 0, sequence) for sequence in range(12)]


def test_who_only_asks_for_credit_still_sends_what_found_no_room(on_kafka):
    narrow = Cluster(on_kafka.cluster.bootstrap, {"queue.buffering.max.messages": 1, "linger.ms": 200})
    sending = Sending(Outlet(narrow), on_kafka.names, on_kafka.name, 4, on_kafka.policies())
    for sequence in range(4):
        assert sending.publish(made(on_kafka, 0, sequence))
    assert sending.unsettled > 1
    assert until(lambda: sending.claim(0, 100) or not sending.unsettled)


def test_a_client_that_has_broken_is_replaced_and_nothing_is_lost(on_kafka):
    sender = on_kafka.bus(window=100)
    for sequence in range(10):
        assert sender.publish(EXPERIENCES, made(on_kafka, 0, sequence))
        if sequence in (3, 7):
            sender.outlet.breaks(KafkaError(KafkaError._FATAL, "as if", fatal=True))
    assert until(lambda: sender.settled(EXPERIENCES, 0) == 9)
    assert identities(polled(reader_of(on_kafka), 10)) == [(0, 0, sequence) for sequence in range(10)]


def test_reports_begin_where_they_are_asked_to_and_catch_up_with_now(on_kafka):
    bus = on_kafka.bus()
    for number in range(5):
        bus.publish(METRICS_ACTORS, {"n": number})
    assert bus.outlet.flush(20)
    all_of_them = bus.subscribe(METRICS_ACTORS, "recorder")
    assert [each.message["n"] for each in all_of_them.catch_up()] == list(range(5))
    assert all_of_them.catch_up() == []
    bus.publish(COMMANDS, {"command": "pause"})
    bus.publish(METRICS_ACTORS, {"n": 5})
    assert bus.outlet.flush(20)
    assert [each.message["n"] for each in all_of_them.catch_up()] == [5]
    later = on_kafka.bus(since=4e9).subscribe(METRICS_ACTORS, "recorder")
    bus.publish(METRICS_ACTORS, {"n": 6})
    assert bus.outlet.flush(20)
    assert [each.message["n"] for each in later.catch_up()] == [6]
    assert [each.message for each in bus.subscribe(COMMANDS, "learner").catch_up()] == [{"command": "pause"}]
