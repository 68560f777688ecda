from __future__ import annotations

from millstream.core.tree import flatten, unflatten
from millstream.learner.refusals import Refusals
from tests.learner.making import SLOTS, STEPS, Told, feed, learner, one_update

ONE, TWO, OTHER = (0, 7, 3, 16, "damaged"), (0, 7, 5, 16, "damaged"), (1, 9, 0, 4, "too large")


def test_what_a_wire_refused_is_counted_journalled_and_reported_once() -> None:
    told = Told()
    waiting = [[ONE, OTHER], [], [ONE, TWO]]
    of = learner(told, refused=lambda: waiting.pop(0) if waiting else ())
    of.step()
    for sequence in range(3):
        feed(of, sequence)
        one_update(of)
    assert told.entries[0]["refused"] == [list(ONE), list(OTHER)] and "refused" not in told.entries[1]
    assert told.entries[2]["refused"] == [list(TWO)]  # the other was known
    assert of.counters.refused == {"damaged": 32, "too large": 4} == told.reports[-1]["refused"]
    assert of.counters.trained == 3 * STEPS * SLOTS


def test_a_checkpoint_holds_what_no_update_has_counted_yet() -> None:
    waiting = [[ONE], [TWO]]
    one = Refusals(lambda: waiting.pop(0) if waiting else ())
    one.collect()
    one.counted()
    two = Refusals(lambda: [ONE, OTHER, TWO])  # reads some of it again
    two.restore(one.snapshot())
    two.collect()
    assert two.counted() == [TWO, OTHER] and two.counted() == []


def test_what_an_entry_counted_is_not_counted_again_whether_it_comes_before_or_after() -> None:
    waiting = [[ONE, OTHER], [TWO]]
    refusals = Refusals(lambda: waiting.pop(0) if waiting else ())
    refusals.collect()
    assert refusals.counted([ONE, TWO]) == [ONE, TWO]
    refusals.collect()
    assert refusals.counted() == [OTHER]


def test_a_checkpoint_of_before_is_read() -> None:
    of, other = learner(Told()), learner(Told())
    snapshot = unflatten(*flatten(of.snapshot()))
    del snapshot["refused"], snapshot["source"], snapshot["counters"]["refused"]
    other.restore({**snapshot, "counters": {**snapshot["counters"], "trained": 5}})
    assert other.counters.refused == {} and other.counters.trained == 5
