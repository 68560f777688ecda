"""What an update learns from, when it is picked from a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.core.data import NONE, Sample, Version
from millstream.learner.sources import Picked
from millstream.replay.cut import transitions
from millstream.replay.limit import Free
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import OLDEST, Table
from tests.replay.making import Worlds


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
    assert taken.steps == 12 and [stamp.sequence for stamp in taken.used] == [0, 1]
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
