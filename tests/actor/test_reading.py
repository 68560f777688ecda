"""A reader publishes what is recorded: all of it, in rounds, from wherever it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from millstream.actor.reading import Reader
from millstream.actor.splicing import episodes
from millstream.agents.features import Features
from millstream.core.data import NONE, Episode, Rollout
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import EXPERIENCES, METRICS_ACTORS
from millstream.testing import FakeClock
from millstream.wires.memory import MemoryBus, MemoryPolicies
from tests.actor.making import alike, policy, same

SPEC = EnvSpec("small", {"obs": Box((2,)), "what": Discrete(3)}, Discrete(4), masked=True)


def episode(steps: int, number: int, terminated: bool = True) -> Episode:
    rng = np.random.default_rng([steps, number])
    return Episode(
        {
            "obs": rng.normal(size=(steps + 1, 2)).astype(np.float32),
            "what": rng.integers(3, size=steps + 1),
        },
        rng.integers(4, size=steps),
        rng.normal(size=steps).astype(np.float32),
        terminated,
        not terminated,
        rng.random((steps + 1, 4)) < 0.7,
    )


class Shelf:
    """Episodes in a list."""

    def __init__(self, held: list[Episode]):
        self.held = held

    def __len__(self) -> int:
        return len(self.held)

    def read(self, indices: Iterable[int]) -> Iterator[Episode]:
        return (self.held[index] for index in indices)


SHELF = Shelf([episode(steps, number, number % 2 == 0) for number, steps in enumerate((3, 7, 1, 12, 4, 5, 8))])
STEPS = sum(each.steps for each in SHELF.held)


class Desk:
    """A reader and who takes from it."""

    def __init__(self, **changes: Any):
        self.bus, self.policies = MemoryBus(2), MemoryPolicies()
        self.policies.publish(policy(0))
        self.subscription = self.bus.subscribe(EXPERIENCES, "learner")
        self.reports = self.bus.subscribe(METRICS_ACTORS, "recorder")
        settings: dict[str, Any] = {
            "experiment": "test", "index": 0, "epoch": 0, "spec": SPEC, "data": SHELF, "bus": self.bus,
            "policies": self.policies, "seed": 3, "steps": 8, "clock": FakeClock(),
        }  # fmt: skip
        self.reader = Reader(**{**settings, **changes})

    def make(self, count: int) -> list[Rollout]:
        found: list[Rollout] = []
        while len(found) < count:
            assert self.reader.step() > 0
            for delivery in self.subscription.poll(9):
                found.append(deepcopy(delivery.message))
                self.subscription.release(delivery.message.stamp)
        return found


def order(found: list[Episode]) -> list[int]:
    return [next(at for at, held in enumerate(SHELF.held) if alike(held, each)) for each in found]


@pytest.mark.parametrize("steps", [1, 8, 13, STEPS, 2 * STEPS + 3])
def test_every_round_holds_every_episode_once_in_an_order_of_its_own(steps: int) -> None:
    found = order(list(episodes(Desk(steps=steps).make(3 * STEPS // steps + 1))))[:21]
    rounds = [found[:7], found[7:14], found[14:]]
    assert [sorted(each) for each in rounds] == [list(range(7))] * 3
    assert rounds[0] != rounds[1]


def test_rollouts_are_of_one_size_and_of_nobodys_policy() -> None:
    for number, rollout in enumerate(Desk().make(12)):
        assert (rollout.steps, rollout.slots, rollout.count) == (8, 1, 8)
        assert (rollout.stamp.sequence, rollout.stamp.policy) == (number, NONE)


@pytest.mark.parametrize("steps", [1, 4, 8])
def test_a_rollout_ends_with_what_the_next_begins_with(steps: int) -> None:
    found = Desk(steps=steps).make(40)
    for before, after in pairwise(found):
        assert np.array_equal(before.first[-1], after.first[0])
        assert np.array_equal(before.extras["mask"][-1], after.extras["mask"][0])
        assert all(
            np.array_equal(before.observations[name][-1], after.observations[name][0]) for name in ("obs", "what")
        )
    assert len({bool(rollout.first[-1, 0]) for rollout in found}) == 2


def test_another_seed_is_another_order() -> None:
    one, two, other = (order(list(episodes(Desk(seed=seed).make(10)))) for seed in (3, 3, 4))
    assert one == two != other


@pytest.mark.parametrize("before", [1, 4, 9])
def test_a_reader_that_was_restored_goes_on_where_it_was(before: int) -> None:
    whole, cut = Desk(), Desk()
    expected = whole.make(before + 9)[before:]
    cut.make(before)
    again = Desk(seed=99, epoch=1)
    again.reader.restore(cut.reader.snapshot())
    found = again.make(9)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))
    assert [each.stamp.sequence for each in found] == [each.stamp.sequence for each in expected]


def test_without_credit_it_waits_and_loses_nothing() -> None:
    desk = Desk()
    assert [desk.reader.step() for _ in range(4)] == [8, 8, 0, 0]
    found = [deepcopy(delivery.message) for delivery in desk.subscription.poll(9)]
    desk.subscription.release(found[-1].stamp)
    found += desk.make(8)
    assert order(list(episodes(found))) == order(list(episodes(Desk().make(10))))


def test_it_begins_when_the_learner_has() -> None:
    policies = MemoryPolicies()
    desk = Desk(policies=policies)
    assert desk.reader.step() == 0 and desk.subscription.poll(9) == []
    policies.publish(policy(0))
    assert desk.reader.step() == 8


def test_a_report_counts_steps_and_tells_no_returns() -> None:
    desk = Desk()
    desk.make(3)
    reports = [delivery.message for delivery in desk.reports.poll(9)]
    assert [report["steps"] for report in reports] == [8, 8, 8]
    assert all(report["episodes"] == [] for report in reports)


def test_stacks_are_those_that_a_player_would_have_seen() -> None:
    spec = replace(SPEC, stack=3)
    features, seen = Features(spec), []
    for rollout in Desk(spec=spec, steps=5).make(20):
        stacked = features.unroll(rollout)["obs"]
        seen += [stacked[t, 0] for t in range(rollout.steps)]
    expected = []
    for index in order(list(episodes(Desk(spec=spec, steps=5).make(20)))):
        frames = SHELF.held[index].observations["obs"]
        expected += [[frames[max(at - back, 0)] for back in (2, 1, 0)] for at in range(len(frames) - 1)]
    assert np.array_equal(np.stack(seen)[: len(expected)], np.array(expected)) and len(expected) > STEPS
