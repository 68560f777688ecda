from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.data import Delivery, Rollout, Stamp, Version
from millstream.core.journal import effective
from millstream.learner.course import Course, Entry
from millstream.learner.rereading import Rereading
from millstream.learner.sources import Fresh, Picked
from millstream.replay.cut import transitions
from millstream.replay.ingest import Ingest
from millstream.replay.table import Table, queue
from tests.learner.durable import DurableLog, Reader, counted


def line(update: int, *used: tuple[int, ...], epoch: int = 0, **more: Any) -> dict[str, Any]:
    return {"update": update, "epoch": epoch, "used": [[*each, 1] for each in used], "dropped": [], **more}


def rollout(actor: int, sequence: int, number: int = 0, epoch: int = 0) -> Rollout:
    empty = np.zeros((1, 1), bool)
    return Rollout(
        {"obs": np.full((2, 1, 1), sequence, np.float32)}, {"obs": np.zeros((0, 1), np.float32)},
        np.zeros((0, 2), np.int64), np.full((1, 1), actor), np.zeros((1, 1), np.float32), empty, empty,
        np.zeros((2, 1), bool), ~empty, {}, {}, Stamp("test", actor, epoch, sequence, Version(0, number), 0.0),
    )  # fmt: skip


class Hyper:
    minibatch, gradients = 2, 1


# --- the journal -----------------------------------------------------------------------------------------------------


def test_where_an_update_occurs_again_the_later_line_counts_and_all_after_it_is_void() -> None:
    lines = [line(n, (0, 0, n)) for n in (1, 2, 3, 4)] + [line(3, (0, 0, 9), epoch=1)]
    assert [(each["update"], each["epoch"]) for each in effective(lines)] == [(1, 0), (2, 0), (3, 1)]
    assert [each["update"] for each in effective(lines, after=2)] == [3]
    assert effective([]) == [] and effective(lines, after=3) == []


def test_a_course_begins_after_the_checkpoint_and_ends_with_the_journal() -> None:
    course = Course(line(n, (0, 0, n)) for n in range(1, 6))
    course.begin(3)
    assert course.redoing and course.last == 5
    for update in (4, 5):
        assert course.due(update) == Entry(update, ((0, 0, update),))
        course.took()
    assert not course.redoing and course.due(6) is None and course.wanted is None


def test_without_lines_it_is_over_at_once() -> None:
    course = Course([])
    assert not course.redoing and course.last == 0 and course.due(1) is None
    course.abandon("nothing to give up")
    assert course.reason is None


def test_a_journal_with_a_gap_is_followed_up_to_there() -> None:
    told: list[tuple[str, str]] = []
    course = Course([line(1), line(2), line(4)])
    course.tell = lambda level, text: told.append((level, text))
    course.begin(0)
    assert course.last == 2
    assert told[1] == ("warning", "the journal lacks update 3; what comes after it is not redone")


def test_lines_of_before_that_had_no_steps_are_read() -> None:
    entry = Entry.of({"update": 1, "epoch": 0, "used": [[0, 0, 1]], "dropped": [[1, 0, 2]]})
    assert (entry.used, entry.dropped, entry.refused) == (((0, 0, 1),), ((1, 0, 2),), ())


def test_a_learner_at_another_update_than_the_journal_goes_on_freely() -> None:
    course = Course([line(1), line(2)])
    assert course.due(2) is None and not course.redoing and course.reason == "the next update is 2"


def test_only_policies_that_were_redone_are_known_afterwards() -> None:
    lines = [line(1), line(2), line(3), line(3, epoch=1), line(4, epoch=1)]
    course = Course(lines)
    course.begin(2)
    assert course.made(Version(0, 2)) and course.made(Version(1, 3)) and course.made(Version(1, 4))
    assert not course.made(Version(0, 3))  # published by the first learner with weights that nobody wrote down
    assert course.made(Version(1, 2)) and not course.made(Version(1, 5)) and course.made(Version(0, 0))


def test_after_it_was_given_up_only_what_was_redone_is_known() -> None:
    course = Course([line(1), line(2), line(3)])
    course.begin(0)
    course.took()
    course.abandon("gone")
    assert course.made(Version(0, 1)) and not course.made(Version(0, 2))


# --- any order of arrival --------------------------------------------------------------------------------------------


@st.composite
def histories(draw: Any) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """A journal of whatever updates took from two or three actors, and how many rollouts each of them made."""
    made = {actor: draw(st.integers(0, 12)) for actor in range(draw(st.integers(2, 3)))}
    following, lines = dict.fromkeys(made, 0), []
    for _ in range(draw(st.integers(1, 6))):
        named: dict[str, list[list[int]]] = {"used": [], "dropped": []}
        for actor in draw(st.lists(st.sampled_from([*made]), max_size=5)):
            if following[actor] < made[actor]:
                named[draw(st.sampled_from(["used", "used", "dropped"]))].append([actor, 0, following[actor], 1])
                following[actor] += 1
        named["used"].sort()
        if named["used"]:
            lines.append({"update": len(lines) + 1, "epoch": 0, **named})
        else:
            for actor, *_ in named["dropped"]:
                following[actor] -= 1
    return lines, made


def written(made: dict[int, int], sources: int) -> DurableLog:
    log = DurableLog(sources)
    for actor, count in made.items():
        for sequence in range(count):
            log.append(rollout(actor, sequence))
    return log


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(1, 3), st.integers(0, 99), st.integers(1, 5))
def test_fresh_rollouts_are_used_and_dropped_as_before_in_whatever_order_they_come(history, sources, seed, limit):
    lines, made = history
    course = Course(lines)
    reader = Reader(written(made, sources), seed)
    subscription, fresh = Rereading(reader, course, reader.ended), queue(8)
    released: list[tuple[int, int, int]] = []

    def release(stamp: Stamp) -> None:
        released.append(stamp.identity)
        subscription.release(stamp)

    source, ingest = Fresh(fresh, lambda: 2, 0, release, course), Ingest(subscription, fresh, limit)
    found, update = [], 0
    for _ in range(400):
        ingest.step()
        taken = source.take(1, update, None)
        if taken is None:
            continue
        update += 1
        found.append(taken)
        source.give_back(taken)
    for taken, line_ in zip(found, lines, strict=False):
        assert [[*stamp.identity, steps] for stamp, steps in taken.used] == line_["used"]
        assert sorted([*stamp.identity, steps] for stamp, steps in taken.dropped) == sorted(line_["dropped"])
        assert taken.entry is not None
    assert len(found) >= len(lines) and not course.redoing and course.reason is None
    named = [stamp.identity for taken in found for stamp, _ in (*taken.used, *taken.dropped)]
    assert len(named) == len(set(named)) and all(taken.entry is None for taken in found[len(lines) :])
    # afterwards actors go on in their own order
    rest = [each for each in released if each not in counted(lines, "used", "dropped")]
    assert [sequence for actor, _, sequence in rest if actor == 0] == sorted(s for a, _, s in rest if a == 0)
    assert sum(made.values()) == len(named) + len(source._gathered) + len(source._dropped)


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(1, 3), st.integers(0, 99), st.integers(1, 5))
def test_a_table_is_picked_from_when_exactly_what_was_in_it_is_in_it_again(history, sources, seed, limit):
    lines, made = history
    for each in lines:  # a table drops nothing
        each["used"], each["dropped"] = each["used"] + each["dropped"], []
    course, table = Course(lines), Table(transitions(), capacity=1_000)
    reader = Reader(written(made, sources), seed)
    picked = Picked(table, course)
    ingest = Ingest(Rereading(reader, course, reader.ended), table, limit, picked.note)
    for index, each in enumerate(lines):
        taken = None
        for _ in range(400):
            ingest.step()
            taken = taken or picked.take(1, index, Hyper)
            if taken is not None:
                break
        assert taken is not None and [[*s.identity, n] for s, n in taken.used] == each["used"]
        assert table.inserted == sum(len(line_["used"]) for line_ in lines[: index + 1])
    while ingest.step():
        pass
    assert table.inserted == sum(made.values()) and course.reason is None


# --- reading again ---------------------------------------------------------------------------------------------------


def reading(log: DurableLog, *lines: dict[str, Any], seed: int = 0) -> Rereading:
    reader = Reader(log, seed)
    return Rereading(reader, Course(lines), reader.ended)


def identities(deliveries: list[Delivery[Rollout]]) -> list[tuple[int, int, int]]:
    return [delivery.message.stamp.identity for delivery in deliveries]


def everything(subscription: Rereading) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for _ in range(100):
        found += identities(subscription.poll(3))
    return found


def test_a_checkpoint_knows_the_oldest_that_is_not_done_with_and_what_after_it_is() -> None:
    log = DurableLog(1)  # three actors in one source: 0 1 2 0 1 2 ...
    for sequence in range(3):
        for actor in range(3):
            log.append(rollout(actor, sequence))
    one = reading(log)
    assert len(everything(one)) == 9 and one.positions() == {"part-0": 100}
    for actor, sequence in ((1, 1), (0, 0), (2, 2)):
        one.release(rollout(actor, sequence).stamp)
    assert one.positions() == {"part-0": 103}
    two = reading(log)
    two.restore(one.snapshot())
    assert everything(two) == [(0, 0, 1), (0, 0, 2), (1, 0, 2)] and two.repeated == 3
    two.release(rollout(0, 2).stamp), two.release(rollout(1, 2).stamp)
    assert two.positions() == {"part-0": 109}
    assert two.snapshot()["positions"] == {"part-0": 109} and sorted(two.snapshot()["done"]) == [
        [a, 0, 2] for a in range(3)
    ]


def test_a_rollout_that_stands_in_the_log_twice_comes_once() -> None:
    log = DurableLog(1)
    for sequence in (0, 1, 0, 1, 2, 2):
        log.append(rollout(0, sequence))
    subscription = reading(log)
    assert everything(subscription) == [(0, 0, 0), (0, 0, 1), (0, 0, 2)] and subscription.repeated == 3
    subscription.release(rollout(0, 2).stamp)
    assert subscription.positions() == {"part-0": 106}


def test_another_life_of_an_actor_begins_to_count_anew() -> None:
    log = DurableLog(1)
    for epoch, sequence in ((5, 0), (5, 1), (9, 0), (9, 1)):
        log.append(rollout(0, sequence, epoch=epoch))
    subscription = reading(log)
    assert everything(subscription) == [(0, 5, 0), (0, 5, 1), (0, 9, 0), (0, 9, 1)]
    subscription.release(rollout(0, 0, epoch=9).stamp)
    assert subscription.positions() == {"part-0": 103}


def test_what_is_not_needed_yet_waits_and_comes_afterwards_as_it_arrived() -> None:
    log = DurableLog(1)
    for actor, sequence in ((1, 0), (1, 1), (0, 0), (1, 2), (0, 1)):
        log.append(rollout(actor, sequence))
    subscription = reading(log, line(1, (0, 0, 0)), line(2, (1, 0, 0), (0, 0, 1)))
    assert everything(subscription) == [(0, 0, 0)] and subscription.held == 2
    subscription.course.took()
    assert everything(subscription) == [(1, 0, 0), (0, 0, 1)]
    subscription.course.took()
    assert everything(subscription) == [(1, 0, 1), (1, 0, 2)] and subscription.held == 0


def test_what_cannot_come_any_more_ends_the_course_as_soon_as_that_is_known() -> None:
    log = DurableLog(1)
    for sequence in range(50):
        log.append(rollout(0, sequence))
    log.trim(0, 103)
    subscription = reading(log, line(1, (0, 0, 2)))
    assert subscription.poll(1) == [] and not subscription.course.redoing
    assert subscription.course.reason == "rollout 2 of actor 0 (epoch 0) is not in the log"
    assert everything(subscription)[:2] == [(0, 0, 3), (0, 0, 4)]
