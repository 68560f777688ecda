from __future__ import annotations

import numpy as np

from millstream.core.data import Rollout, Stamp, Version
from millstream.core.topics import EXPERIENCES
from millstream.replay.ingest import Ingest
from millstream.replay.table import Table, queue
from millstream.wires.memory import MemoryBus


def rollout(sequence: int, actor: int = 0) -> Rollout:
    empty = np.zeros((1, 1), bool)
    return Rollout({}, {}, np.zeros((0, 2), int), empty, empty, empty, empty, np.zeros((2, 1), bool), ~empty, {}, {},
                   Stamp("test", actor, 0, sequence, Version(0, 0), 0.0))  # fmt: skip


def wired(capacity: int, window: int, limit: int = 8) -> tuple[MemoryBus, Table, Ingest]:
    bus, table = MemoryBus(window), queue(capacity)
    return bus, table, Ingest(bus.subscribe(EXPERIENCES, "learner"), table, limit)


def test_nothing_arrives_and_nothing_is_done() -> None:
    assert wired(4, 4)[2].step() == 0


def test_it_says_how_much_it_moved_and_keeps_the_order() -> None:
    bus, table, ingest = wired(8, 4)
    for sequence in range(3):
        bus.publish(EXPERIENCES, rollout(sequence))
    assert ingest.step() == 3 and ingest.step() == 0
    sample = table.sample(3)
    assert sample is not None and [each.stamp.sequence for each in sample.rollouts] == [0, 1, 2]


def test_a_full_table_stops_the_sender_and_nothing_is_lost_or_doubled() -> None:
    bus, table, ingest = wired(capacity=2, window=4)
    sent, taken, refused = 0, [], 0
    for turn in range(60):
        if bus.publish(EXPERIENCES, rollout(sent)):
            sent += 1
        else:
            refused += 1
        ingest.step()
        assert table.waiting <= 2
        if turn % 3 == 0 and (sample := table.sample(1)):
            taken.append(sample.rollouts[0].stamp.sequence)
            ingest.subscription.release(sample.rollouts[0].stamp)
    assert refused > 10 and taken == list(range(len(taken))) and len(taken) > 15
    assert sent - len(taken) <= 4


def test_while_the_table_is_full_it_does_not_poll() -> None:
    bus, table, ingest = wired(capacity=1, window=8, limit=1)
    for sequence in range(4):
        bus.publish(EXPERIENCES, rollout(sequence))
    assert [ingest.step() for _ in range(4)] == [1, 0, 0, 0]
    assert ingest.subscription.positions() == {"actor-0": 2}  # one in the table, one in its hand
    assert table.sample(1) is not None and ingest.step() == 1


def test_it_tells_where_on_the_wire_each_rollout_stood_that_is_in_the_table_now() -> None:
    bus, table = MemoryBus(4), queue(2)
    placed, copied = [], []
    ingest = Ingest(bus.subscribe(EXPERIENCES, "learner"), table, copied=copied.append, placed=placed.append)
    for actor, sequence in ((1, 0), (0, 0), (1, 1)):
        bus.publish(EXPERIENCES, rollout(sequence, actor))
    assert ingest.step() == 2
    assert [(each.source, each.position) for each in placed] == [("actor-1", 0), ("actor-0", 0)]
    assert [each.message for each in placed] == copied
    assert table.sample(1) is not None and ingest.step() == 1
    assert (placed[2].source, placed[2].position) == ("actor-1", 1)
