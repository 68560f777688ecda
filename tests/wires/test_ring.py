"""Slabs between real processes, and what is left when one is killed."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from millstream.core.codec import Layout, rollout_of
from millstream.core.data import Stamp, Version
from millstream.core.errors import CodecError
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import EXPERIENCES
from millstream.wires.ring import Ring
from millstream.wires.shared import SharedBus

WINDOW = 2

ACTOR = """
import sys, time
import numpy as np
from millstream.core.codec import Layout, rollout_of
from millstream.core.data import Stamp, Version
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import EXPERIENCES
from millstream.wires.ring import Ring
from millstream.wires.shared import SharedBus

descriptor, epoch, count, half = map(int, sys.argv[1:])
bus = SharedBus([Ring(descriptor, 2)])
layout = Layout.of(EnvSpec("toy", {"obs": Box((5,))}, Discrete(2)), 4, 2, {}, {})
sequence = 0
while sequence < count:
    memory = bus.claim(EXPERIENCES, 0, layout.size)
    if memory is None:
        time.sleep(0.0002)
        continue
    arrays = layout.views(memory)
    arrays["observations/obs"][...] = sequence
    arrays["rewards"][...] = sequence
    stamp = Stamp("x", 0, epoch, sequence, Version(0, 0), 0.0)
    assert bus.publish(EXPERIENCES, rollout_of(arrays, 4, 0, stamp))
    sequence += 1
if half:
    memory = bus.claim(EXPERIENCES, 0, layout.size)
    memory[: len(memory) // 2] = b"x" * (len(memory) // 2)
    print("half", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def ring():
    one = Ring.create("actor-0", WINDOW)
    yield one
    one.close()


def actor(ring: Ring, epoch: int, count: int, half: bool = False) -> subprocess.Popen:
    arguments = [str(ring.descriptor), str(epoch), str(count), str(int(half))]
    command = [sys.executable, "-c", ACTOR, *arguments]
    return subprocess.Popen(command, pass_fds=[ring.descriptor], stdout=subprocess.PIPE, text=True)


def collect(subscription, count: int, release: bool = True) -> list[tuple[int, int]]:
    """(epoch, sequence) of the next rollouts, each checked to be whole."""
    got = []
    deadline = time.monotonic() + 20
    while len(got) < count:
        assert time.monotonic() < deadline, f"only {len(got)} of {count} arrived"
        for delivery in subscription.poll(4):
            rollout = delivery.message
            assert (rollout.rewards == rollout.stamp.sequence).all()
            assert (rollout.observations["obs"] == rollout.stamp.sequence).all()
            got.append((rollout.stamp.epoch, rollout.stamp.sequence))
            if release:
                subscription.release(rollout.stamp)
    return got


def test_rollouts_cross_from_one_process_to_another_in_order(ring):
    subscription = SharedBus([ring]).subscribe(EXPERIENCES, "learner")
    assert subscription.poll(4) == []  # not even sized yet
    with actor(ring, 0, 300) as process:
        assert collect(subscription, 300) == [(0, sequence) for sequence in range(300)]
    assert process.returncode == 0


def test_an_actor_killed_in_the_middle_of_a_rollout_loses_only_that_one(ring):
    with actor(ring, 0, 1, half=True) as first:
        assert first.stdout.readline() == "half\n"
        first.send_signal(signal.SIGKILL)
    subscription = SharedBus([ring]).subscribe(EXPERIENCES, "learner")
    with actor(ring, 1, 5) as second:
        assert collect(subscription, 6) == [(0, 0)] + [(1, sequence) for sequence in range(5)]
    assert second.returncode == 0


def test_a_new_learner_gets_again_what_the_dead_one_had_not_released(ring):
    with actor(ring, 0, 2):
        dead = SharedBus([Ring(ring.descriptor, WINDOW)]).subscribe(EXPERIENCES, "learner")
        assert collect(dead, 2, release=False) == [(0, 0), (0, 1)]
    new = SharedBus([Ring(ring.descriptor, WINDOW)]).subscribe(EXPERIENCES, "learner")
    assert collect(new, 2) == [(0, 0), (0, 1)]


def test_a_replaced_actor_finds_the_last_sequence_of_its_predecessor(ring):
    with actor(ring, 0, 2):
        pass
    assert SharedBus([Ring(ring.descriptor, WINDOW)]).settled(EXPERIENCES, 0) == 1


def test_memory_that_was_sized_but_never_formed_is_formed_again(ring):
    import os

    os.ftruncate(ring.descriptor, 8192)  # a writer killed between the two
    assert ring.published == 0
    assert ring.claim(100_000) is not None
    assert Ring(ring.descriptor, WINDOW).formed


def test_a_rollout_larger_than_the_slabs_is_refused_clearly(ring):
    ring.claim(10_000)
    with pytest.raises(CodecError, match="slabs of this run"):
        ring.claim(1_000_000)


def test_a_short_poll_starts_with_another_actor_each_time():
    rings = [Ring.create(f"actor-{i}", WINDOW) for i in range(3)]
    bus = SharedBus(rings)
    layout = Layout.of(EnvSpec("toy", {"obs": Box((5,))}, Discrete(2)), 4, 2, {}, {})
    subscription = bus.subscribe(EXPERIENCES, "learner")
    for actor_index in range(3):
        for sequence in range(WINDOW):
            stamp = Stamp("x", actor_index, 0, sequence, Version(0, 0), 0.0)
            arrays = layout.views(bus.claim(EXPERIENCES, actor_index, layout.size))
            bus.publish(EXPERIENCES, rollout_of(arrays, 4, 0, stamp))
    order = [subscription.poll(1)[0].message.stamp.actor for _ in range(3)]
    assert sorted(order) == [0, 1, 2]
    for ring in rings:
        ring.close()


def test_memory_of_released_rollouts_is_used_again():
    from millstream.wires.memory import MemoryBus

    bus = MemoryBus(1)
    subscription = bus.subscribe(EXPERIENCES, "learner")
    layout = Layout.of(EnvSpec("toy", {"obs": Box((5,))}, Discrete(2)), 4, 2, {}, {})
    places = set()
    for sequence in range(5):
        memory = bus.claim(EXPERIENCES, 0, layout.size)
        places.add(np.frombuffer(memory, np.uint8).ctypes.data)
        stamp = Stamp("x", 0, 0, sequence, Version(0, 0), 0.0)
        bus.publish(EXPERIENCES, rollout_of(layout.views(memory), 4, 0, stamp))
        subscription.release(subscription.poll(1)[0].message.stamp)
    assert len(places) == 1
    assert places.pop() % 64 == 0
