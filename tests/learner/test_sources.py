"""What an update learns from: rollouts as they come, or what is picked from a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.core.data import NONE, Sample, Version
from millstream.core.topics import EXPERIENCES
from millstream.core.tree import flatten, unflatten
from millstream.learner.course import Course
from millstream.learner.sources import Fresh, Picked
from millstream.replay.cut import transitions
from millstream.replay.ingest import Ingest
from millstream.replay.limit import Free
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import OLDEST, Table, queue
from millstream.wires.memory import MemoryBus
from tests.replay.making import Worlds


def bus_and_fresh(rollouts: int = 2, course: Course | None = None) -> tuple[MemoryBus, Ingest, Fresh]:
    bus, fresh = MemoryBus(8), queue(16)
    subscription = bus.subscribe(EXPERIENCES, "learner")
    return bus, Ingest(subscription, fresh), Fresh(fresh, lambda: rollouts, 0, subscription.release, course)


def test_a_rollout_that_is_dropped_is_not_released_before_an_earlier_one_that_waits_to_be_used() -> None:
    bus, ingest, source = bus_and_fresh()
    made = [replace(each, stamp=replace(each.stamp, policy=Version(0, number)))
            for each, number in zip((Worlds(0, 2, 0).rollout(2) for _ in range(2)), (5, 4), strict=True)]  # fmt: skip
    made[1] = replace(made[1], stamp=replace(made[1].stamp, sequence=1))
    other = Worlds(1, 2, 0).rollout(2)
    for each in made:
        assert bus.publish(EXPERIENCES, each)
    ingest.step()
    assert source.take(0, 5, None) is None  # the first is gathered, the second too old
    again = bus.subscribe(EXPERIENCES, "another").poll(9)
    assert [delivery.message.stamp.sequence for delivery in again] == [0, 1]  # neither is gone
    bus.publish(EXPERIENCES, replace(other, stamp=replace(other.stamp, policy=Version(0, 5))))
    ingest.step()
    taken = source.take(0, 5, None)
    assert taken is not None and [stamp.sequence for stamp in taken.owed] == [1]
    assert [(stamp.sequence, steps) for stamp, steps in taken.dropped] == [(1, 4)]
    source.give_back(taken)
    assert bus.subscribe(EXPERIENCES, "third").poll(9) == []


def test_what_was_dropped_and_released_is_kept_for_the_update_that_will_name_it() -> None:
    bus, ingest, source = bus_and_fresh(rollouts=1)
    world = Worlds(0, 2, 0)
    bus.publish(EXPERIENCES, world.rollout(2))
    ingest.step()
    assert source.take(1, 5, None) is None
    _, _, other = bus_and_fresh(rollouts=1)
    other.restore(unflatten(*flatten(source.snapshot())))
    rollout = world.rollout(3)
    other.replay.insert(replace(rollout, stamp=replace(rollout.stamp, policy=Version(1, 5))))
    taken = other.take(1, 5, None)
    assert taken is not None and [(*stamp.identity, steps) for stamp, steps in taken.dropped] == [(0, 0, 0, 4)]
    assert taken.steps == 6 and taken.owed == []


def test_without_a_course_what_an_earlier_learner_s_policy_made_is_too_old_and_with_one_it_need_not_be() -> None:
    for course, fresh in ((None, False), (Course([]), True)):
        _, _, source = bus_and_fresh(rollouts=1, course=course)
        source.replay.insert(Worlds(0, 2, 0).rollout(2))
        taken = source.take(1, 0, None)
        assert (taken is not None) == fresh


class Hyper:
    minibatch, gradients = 4, 3


def picked(select: Uniform | Prioritised, least: int = 1) -> tuple[Picked, Worlds]:
    table = Table(transitions(), select, OLDEST, Free(least), 100, np.random.default_rng(0))
    return Picked(table), Worlds(0, 2, seed=0)


def give(source: Picked, world: Worlds, steps: int = 3) -> None:
    rollout = world.rollout(steps)
    assert source.table.insert(rollout)
    source.note(rollout)


def test_an_update_takes_all_its_minibatches_and_counts_what_came_since_the_last() -> None:
    source, world = picked(Uniform())
    assert source.take(0, 0, Hyper) is None
    give(source, world), give(source, world)
    taken = source.take(0, 5, Hyper)
    assert taken is not None and sum(rollout.slots for rollout in taken.rollouts) == 12
    assert taken.steps == 12 and [stamp.sequence for stamp, _ in taken.used] == [0, 1]
    assert (taken.lag, taken.lag_max) == (4.5, 5)
    again = source.take(0, 6, Hyper)
    assert again is not None and (again.steps, again.used, again.lag) == (0, [], 0.0)


def test_what_no_policy_of_this_run_made_is_behind_none() -> None:
    source, world = picked(Uniform())
    for stamp in (NONE, Version(0, 3)):
        rollout = world.rollout(3)
        source.table.insert(rollout)
        source.note(replace(rollout, stamp=replace(rollout.stamp, policy=stamp)))
    taken = source.take(0, 5, Hyper)
    assert taken is not None and (taken.lag, taken.lag_max, taken.steps) == (2.0, 2, 12)


def test_what_comes_while_there_is_not_enough_is_counted_later() -> None:
    source, world = picked(Uniform(), least=10)
    give(source, world)
    assert source.take(0, 0, Hyper) is None
    give(source, world)
    taken = source.take(0, 0, Hyper)
    assert taken is not None and taken.steps == 12


def test_only_what_is_picked_unevenly_has_an_importance_and_wants_priorities() -> None:
    even, uneven = picked(Uniform()), picked(Prioritised(1.0, 1.0))
    for source, world in (even, uneven):
        give(source, world)
    taken = even[0].take(0, 0, Hyper)
    assert taken is not None and taken.keys is None and "importance" not in taken.rollouts[0].extras
    source = uneven[0]
    source.reprioritise(np.arange(6), np.array([1.0, 2.0, 0.0, 0.0, 0.0, 0.0]))
    taken = source.take(0, 0, Hyper)
    assert taken is not None and taken.keys is not None and set(taken.keys.tolist()) == {0, 1}
    np.testing.assert_allclose(taken.rollouts[0].extras["importance"][0], np.where(taken.keys == 0, 1.0, 0.5))
    assert isinstance(source.table.sample(1), Sample)
