"""What every bus promises, over all implementations."""

import socket
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from millstream.core.codec import Layout, paths, rollout_of
from millstream.core.data import Rollout, Stamp, Version
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import COMMANDS, EXPERIENCES, METRICS_ACTORS
from millstream.wires.channel import Channel
from millstream.wires.memory import MemoryBus
from millstream.wires.ring import Ring
from millstream.wires.shared import SharedBus
from tests.kafka_runs import until

WINDOW = 3
ACTORS = 3
STEPS, SLOTS = 4, 2
SPEC = EnvSpec("toy", {"obs": Box((5,))}, Discrete(2))
LAYOUT = Layout.of(SPEC, STEPS, SLOTS, {}, {"log_prob": np.zeros((SLOTS,), np.float32)})


@dataclass
class Ends:
    """The bus as its senders and as its readers see it."""

    sender: Any
    reader: Any

    def fresh_reader(self) -> Any:
        """What a new learner process would hold."""
        return self.renew() if self.renew else self.reader

    renew: Any = None
    durable: bool = False
    """A log on the other side of a network: it answers later, and keeps what was released."""


RUN = "x"


@pytest.fixture(params=["memory", "shared", "kafka"])
def bus(request, monkeypatch):
    if request.param == "kafka":
        run = request.getfixturevalue("on_kafka")
        monkeypatch.setitem(globals(), "RUN", run.name)  # commands and metrics of a broker are shared
        learner = run.learner()
        yield Ends(run.bus(WINDOW), run.bus(policies=learner), lambda: run.bus(policies=learner), durable=True)
        return
    if request.param == "memory":
        one = MemoryBus(WINDOW)
        yield Ends(one, one)
        return
    rings = [Ring.create(f"actor-{i}", WINDOW) for i in range(ACTORS)]
    left, right = socket.socketpair()
    ends = [Channel(left, capacity=64), Channel(right, capacity=64)]

    def reader():  # a mapping of its own, as in another process
        return SharedBus([Ring(ring.descriptor, WINDOW) for ring in rings], ends[1])

    yield Ends(SharedBus(rings, ends[0]), reader(), reader)
    for thing in (*rings, *ends):
        thing.close()


def make(memory: memoryview, actor: int, sequence: int, epoch: int = 0) -> Rollout:
    arrays = LAYOUT.views(memory)
    for array in arrays.values():
        array[...] = 0
    arrays["rewards"][...] = 100 * actor + sequence
    return rollout_of(arrays, STEPS, 0, stamp(actor, sequence, epoch))


def stamp(actor: int, sequence: int, epoch: int = 0) -> Stamp:
    return Stamp(RUN, actor, epoch, sequence, Version(0, 0), 0.0)


def send(end: Any, actor: int, sequence: int, epoch: int = 0) -> bool:
    memory = end.claim(EXPERIENCES, actor, LAYOUT.size)
    return memory is not None and end.publish(EXPERIENCES, make(memory, actor, sequence, epoch))


def polled(subscription: Any, count: int, limit: int = 10) -> list[Any]:
    """So many deliveries; from memory they come at once."""
    found = subscription.poll(limit)
    until(lambda: len(found) >= count or found.extend(subscription.poll(limit - len(found))))
    return found


def sequences(deliveries, actor: int) -> list[int]:
    return [d.message.stamp.sequence for d in deliveries if d.message.stamp.actor == actor]


def test_a_rollout_arrives_as_it_was_sent(bus):
    memory = bus.sender.claim(EXPERIENCES, 1, LAYOUT.size)
    sent = make(memory, 1, 7)
    expected = {path: array.copy() for path, array in paths(sent).items()}
    assert bus.sender.publish(EXPERIENCES, sent)
    (delivery,) = polled(bus.reader.subscribe(EXPERIENCES, "learner"), 1)
    assert delivery.message.stamp == sent.stamp
    assert delivery.source == "actor-1"
    for path, array in paths(delivery.message).items():
        np.testing.assert_array_equal(array, expected[path])


@pytest.mark.parametrize("bus", ["memory", "shared"], indirect=True)  # a network copies
def test_arrays_built_in_claimed_memory_are_never_copied(bus):
    memory = bus.sender.claim(EXPERIENCES, 0, LAYOUT.size)
    sent = make(memory, 0, 0)
    bus.sender.publish(EXPERIENCES, sent)
    (delivery,) = bus.reader.subscribe(EXPERIENCES, "learner").poll(10)
    sent.rewards[0, 0] = 4242.0  # the same memory, even through another mapping
    assert delivery.message.rewards[0, 0] == 4242.0


def test_claiming_again_before_publishing_gives_the_same_memory(bus):
    first = bus.sender.claim(EXPERIENCES, 0, LAYOUT.size)
    first[100] = 77
    assert bus.sender.claim(EXPERIENCES, 0, LAYOUT.size)[100] == 77


def test_a_full_bus_says_no_and_loses_nothing(bus):
    assert all(send(bus.sender, 0, sequence) for sequence in range(WINDOW))
    assert bus.sender.claim(EXPERIENCES, 0, LAYOUT.size) is None
    elsewhere = make(memoryview(bytearray(LAYOUT.size)), 0, WINDOW)
    assert not bus.sender.publish(EXPERIENCES, elsewhere)
    assert until(lambda: bus.sender.settled(EXPERIENCES, 0) == WINDOW - 1)
    deliveries = polled(bus.reader.subscribe(EXPERIENCES, "learner"), WINDOW)
    assert sequences(deliveries, 0) == list(range(WINDOW))
    assert [float(d.message.rewards[0, 0]) for d in deliveries] == list(range(WINDOW))


def test_one_full_sender_does_not_stop_another(bus):
    for sequence in range(WINDOW):
        send(bus.sender, 0, sequence)
    assert send(bus.sender, 1, 0)


def test_release_gives_credit_back_for_that_message_and_those_before(bus):
    subscription = bus.reader.subscribe(EXPERIENCES, "learner")
    for sequence in range(WINDOW):
        send(bus.sender, 0, sequence)
    polled(subscription, WINDOW)
    subscription.release(stamp(0, 1))
    assert until(lambda: send(bus.sender, 0, 3)) and send(bus.sender, 0, 4)
    assert not send(bus.sender, 0, 5)
    assert sequences(polled(subscription, 2), 0) == [3, 4]


def test_releasing_twice_gives_credit_once(bus):
    subscription = bus.reader.subscribe(EXPERIENCES, "learner")
    for sequence in range(WINDOW):
        send(bus.sender, 0, sequence)
    polled(subscription, WINDOW)
    subscription.release(stamp(0, 0))
    subscription.release(stamp(0, 0))
    assert until(lambda: send(bus.sender, 0, 3))
    assert not send(bus.sender, 0, 4)


def test_messages_of_an_actor_keep_their_order_over_many_rounds(bus):
    subscription = bus.reader.subscribe(EXPERIENCES, "learner")
    seen: dict[int, list[int]] = {actor: [] for actor in range(ACTORS)}
    wanted = dict.fromkeys(range(ACTORS), 0)

    def a_round():
        for actor in range(ACTORS):
            while send(bus.sender, actor, wanted[actor]):
                wanted[actor] += 1
        for delivery in subscription.poll(4):
            about = delivery.message.stamp
            assert delivery.message.rewards[0, 0] == 100 * about.actor + about.sequence
            assert delivery.position == about.sequence
            seen[about.actor].append(about.sequence)
            subscription.release(about)

    for _ in range(20):
        a_round()
    until(lambda: not bus.durable or min(map(len, seen.values())) >= 20 or a_round(), 30)
    for actor in range(ACTORS):
        assert seen[actor] == list(range(len(seen[actor])))
        assert len(seen[actor]) >= 20  # nobody starves


def test_seek_delivers_once_more_what_was_not_released(bus):
    subscription = bus.reader.subscribe(EXPERIENCES, "learner")
    for sequence in range(WINDOW):
        send(bus.sender, 0, sequence)
    start = dict(subscription.positions())
    polled(subscription, WINDOW)
    subscription.release(stamp(0, 0))
    subscription.seek(start)
    assert sequences(polled(subscription, 2), 0) == [1, 2]
    subscription.seek({"actor-0": 2})
    assert sequences(polled(subscription, 1), 0) == [2]
    assert subscription.positions()["actor-0"] == (2 if bus.durable else 3)  # of a log: what is not done with
    subscription.release(stamp(0, 2))
    assert subscription.positions()["actor-0"] == 3


def test_a_new_reader_starts_at_the_oldest_message_still_held(bus):
    subscription = bus.reader.subscribe(EXPERIENCES, "learner")
    for sequence in range(WINDOW):
        send(bus.sender, 0, sequence)
    polled(subscription, WINDOW)
    subscription.release(stamp(0, 0))
    again = bus.fresh_reader().subscribe(EXPERIENCES, "learner")
    assert sequences(polled(again, 2 + bus.durable), 0) == ([0, 1, 2] if bus.durable else [1, 2])


def test_publishing_without_a_claim_works_and_needs_credit_too(bus):
    for sequence in range(WINDOW):
        assert bus.sender.publish(EXPERIENCES, make(memoryview(bytearray(LAYOUT.size)), 2, sequence))
    assert not bus.sender.publish(EXPERIENCES, make(memoryview(bytearray(LAYOUT.size)), 2, WINDOW))
    deliveries = polled(bus.reader.subscribe(EXPERIENCES, "learner"), WINDOW)
    assert [float(d.message.rewards[0, 0]) for d in deliveries] == [200.0, 201.0, 202.0]


def test_settled_is_the_last_sequence_and_minus_one_before(bus):
    assert bus.sender.settled(EXPERIENCES, 0) == -1
    send(bus.sender, 0, 5)
    assert until(lambda: bus.sender.settled(EXPERIENCES, 0) == 5)


def test_a_rollout_shorter_than_its_slab_arrives_short(bus):
    memory = bus.sender.claim(EXPERIENCES, 0, LAYOUT.size)
    bus.sender.publish(EXPERIENCES, rollout_of(LAYOUT.views(memory), 2, 1, stamp(0, 0)))
    (delivery,) = polled(bus.reader.subscribe(EXPERIENCES, "learner"), 1, limit=1)
    assert delivery.message.steps == 2
    assert delivery.message.observations["obs"].shape == (3, SLOTS, 5)
    assert delivery.message.final_at.shape == (1, 2)


def test_reports_arrive_in_order(bus):
    subscription = bus.reader.subscribe(METRICS_ACTORS, "recorder")
    for number in range(5):
        assert bus.sender.publish(METRICS_ACTORS, {"n": number})
    assert [d.message["n"] for d in polled(subscription, 3, limit=3)] == [0, 1, 2]
    assert [d.message["n"] for d in polled(subscription, 2, limit=3)] == [3, 4]
    assert subscription.poll(3) == []


@pytest.mark.parametrize("bus", ["memory", "shared"], indirect=True)  # in a log, retention does that
def test_reports_that_nobody_reads_drop_the_oldest_and_are_counted(bus):
    sent = 30000
    subscription = bus.reader.subscribe(METRICS_ACTORS, "recorder")
    for number in range(sent):
        bus.sender.publish(METRICS_ACTORS, {"n": number})
    seen = []
    while batch := subscription.poll(1000):
        seen += [d.message["n"] for d in batch]
        if bus.sender is not bus.reader:
            bus.sender.pump()  # what waited in the outbox leaves
    dropped = bus.sender.dropped + (bus.reader.dropped if bus.reader is not bus.sender else 0)
    assert seen[-1] == sent - 1
    assert seen == sorted(seen)
    assert dropped == sent - len(seen) > 0


def test_commands_reach_every_group(bus):
    one, two = (bus.reader.subscribe(COMMANDS, group) for group in ("actor", "learner"))
    bus.sender.publish(COMMANDS, {"command": "pause"})
    assert [d.message for d in polled(one, 1)] == [{"command": "pause"}]
    assert [d.message for d in polled(two, 1)] == [{"command": "pause"}]
    assert one.poll(10) == []
