from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from millstream.core.data import Version
from millstream.core.errors import Diverged
from millstream.core.tree import flatten, unflatten
from millstream.learner.learner import mean_lesson
from millstream.learner.ledger import fingerprint
from millstream.testing import FakeClock
from tests.agents.rollouts import agent_for
from tests.learner.making import HYPER, SLOTS, STEPS, Told, feed, learner, one_update


@pytest.fixture
def told() -> Told:
    return Told()


def weights(of: Any) -> bytes:
    return np.asarray(of.state.weights).tobytes()


def test_the_first_policy_is_published_before_there_is_experience(told: Told) -> None:
    of = learner(told, epoch=3)
    assert of.step() == 1 and told.versions == [Version(3, 0)]
    assert of.step() == 0 and told.versions == [Version(3, 0)]


def test_an_update_publishes_first_then_gives_credit_then_writes_down_then_saves(told: Told) -> None:
    of = learner(told, rollouts=2)
    of.step()
    feed(of, 0), feed(of, 0, actor=1)
    one_update(of)
    assert told.events == ["publish", "publish", "release", "release", "journal", "report", "due"]
    assert told.versions == [Version(0, 0), Version(0, 1)]


def test_a_published_policy_stays_what_it_was(told: Told) -> None:
    of = learner(told)
    of.step()
    first = told.latest()
    assert first is not None
    before = first.params.tensors["weights"].copy()
    feed(of)
    one_update(of)
    second = told.latest()
    assert second is not None and np.array_equal(first.params.tensors["weights"], before)
    assert not np.array_equal(second.params.tensors["weights"], before) and second.steps == STEPS * SLOTS


def test_one_step_is_one_minibatch(told: Told) -> None:
    of = learner(told)
    of.step()
    feed(of)
    assert [of.step() for _ in range(10)] == [1, 8, 8, 8, 8, 8, 8, 8, 8, STEPS * SLOTS]
    assert of.counters.samples == 2 * STEPS * SLOTS and of.step() == 0


def test_stale_rollouts_are_dropped_counted_released_and_journalled(told: Told) -> None:
    of = learner(told, max_lag=1)
    of.step()
    for sequence in range(3):
        feed(of, sequence)
        one_update(of)
    stale = feed(of, 3, number=1)
    allowed = feed(of, 4, number=2)
    one_update(of)
    assert of.counters.stale == stale.count and of.counters.trained == 4 * STEPS * SLOTS
    assert stale.stamp in told.released and allowed.stamp in told.released
    assert told.entries[-1]["dropped"] == [[0, 0, 3, stale.count]]
    assert told.entries[-1]["used"] == [[0, 0, 4, allowed.count]]
    assert told.entries[-2]["dropped"] == [] and told.reports[-1]["lag"] == 1
    assert told.reports[-1]["stale"] == stale.count


def test_stale_rollouts_are_corrected_counted_and_journalled_where_that_is_asked_for(told: Told) -> None:
    of = learner(told, rollouts=2, max_lag=1, correct=True)
    of.step()
    for sequence in range(0, 6, 2):
        feed(of, sequence), feed(of, sequence + 1)
        one_update(of)
    assert "corrected" not in told.entries[-1] and of.counters.corrected == 0
    old, fresh = feed(of, 6, number=0), feed(of, 7, number=2)
    one_update(of)
    assert (of.counters.stale, of.counters.corrected) == (0, old.count)
    assert of.counters.trained == 8 * STEPS * SLOTS and told.released[-2:] == [old.stamp, fresh.stamp]
    assert told.entries[-1]["corrected"] == [[0, 0, 6]] and told.entries[-1]["dropped"] == []
    last = told.reports[-1]
    assert (last["lag"], last["lag_max"], last["stale"], last["corrected"]) == (2.0, 3, 0, old.count)


def test_what_an_earlier_learner_s_policy_made_is_corrected_too(told: Told) -> None:
    of = learner(told, epoch=1, correct=True)
    of.step()
    made = feed(of, 0, epoch=0, number=9)  # that learner had come further before it went back to a checkpoint
    one_update(of)
    assert of.counters.corrected == made.count and told.reports[-1]["lag"] == told.reports[-1]["lag_max"] == 0


def test_a_corrected_update_learns_something_else(told: Told) -> None:
    def after(correct: bool) -> bytes:
        of = learner(Told(), max_lag=0 if correct else None, correct=correct)
        of.step()
        feed(of, 0)
        old = feed(of, 1)
        one_update(of)
        one_update(of)
        assert of.counters.trained == 2 * old.count and of.counters.corrected == correct * old.count
        return weights(of)

    assert after(True) != after(False)


def test_a_stale_rollout_gives_credit_even_while_nothing_else_comes(told: Told) -> None:
    of = learner(told, epoch=1)
    of.step()
    stale = feed(of, 0, epoch=0)
    assert of.step() == 0 and told.released == [stale.stamp]


def test_lag_zero_takes_only_what_the_newest_policy_made(told: Told) -> None:
    of = learner(told, max_lag=0)
    of.step()
    feed(of, 0), feed(of, 1)
    one_update(of)
    of.step()
    assert of.between_updates and of.counters.stale == 0  # counted with the update that names it
    feed(of, 2)
    one_update(of)
    assert of.counters.stale == STEPS * SLOTS and told.entries[1]["dropped"] == [[0, 0, 1, STEPS * SLOTS]]


def test_an_algorithm_that_bears_any_age_drops_nothing(told: Told) -> None:
    of = learner(told, epoch=5, max_lag=None)
    of.step()
    feed(of, 0, epoch=1, number=0)
    one_update(of)
    assert of.counters.stale == 0 and of.counters.trained == STEPS * SLOTS


def test_rollouts_are_learnt_in_the_order_of_their_actors_whoever_was_quicker() -> None:
    def after(order: tuple[int, int]) -> tuple[bytes, Any]:
        told = Told()
        of = learner(told, rollouts=2)
        of.step()
        for actor in order:
            feed(of, 0, actor=actor)
        one_update(of)
        return weights(of), told.entries[0]["used"]

    assert after((0, 1)) == after((1, 0))


def test_steps_that_only_reset_count_nowhere(told: Told) -> None:
    of = learner(told)
    of.step()
    made = feed(of, next_step=True, ends=0.4)
    assert 0 < made.count < STEPS * SLOTS
    one_update(of)
    assert of.counters.trained == made.count and of.counters.samples == 2 * made.count


def test_a_rollout_of_nothing_but_resets_is_let_go(told: Told) -> None:
    of = learner(told)
    of.step()
    made = feed(of)
    made.valid[...] = False
    assert of.step() == 0 and told.released == [made.stamp] and of.counters.stale == 0
    feed(of, 1)
    one_update(of)
    assert told.entries[0]["dropped"] == [[0, 0, 0, 0]]


def test_it_finishes_at_the_total_and_takes_no_more(told: Told) -> None:
    of = learner(told, total_steps=2 * STEPS * SLOTS)
    of.step()
    for sequence in range(3):
        feed(of, sequence)
    one_update(of)
    assert not of.finished
    of.step()
    assert not of.finished and not of.between_updates
    one_update(of)
    assert of.finished and of.step() == 0
    assert of.source.waiting == 1 and of.counters.trained == 2 * STEPS * SLOTS


def test_hyper_parameters_follow_the_share_of_the_run_that_is_done(told: Told) -> None:
    hyper = replace(HYPER, learning_rate=1e-2, learning_rate_end=0.0, entropy=0.0, entropy_end=1.0)
    of = learner(told, hyper=hyper, total_steps=4 * STEPS * SLOTS)
    of.step()
    for sequence in range(4):
        feed(of, sequence)
        one_update(of)
    assert [report["hyper"]["learning_rate"] for report in told.reports] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])
    assert [report["hyper"]["entropy"] for report in told.reports] == pytest.approx([0, 0.25, 0.5, 0.75])


def test_a_target_for_the_divergence_ends_an_update_early() -> None:
    def minibatches(target: float | None) -> int:
        told = Told()
        of = learner(told, hyper=replace(HYPER, learning_rate=0.3, epochs=10, target_kl=target))
        of.step()
        feed(of)
        one_update(of)
        assert told.versions[-1] == Version(0, 1)
        return of.counters.samples // 8

    assert minibatches(None) == 40 and 1 < minibatches(0.01) < 40


class Poisoned:
    """An agent whose gradients or lessons are no longer numbers."""

    def __init__(self, what: str) -> None:
        self.inner, self.what = agent_for(), what

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def gradients(self, *args: Any) -> Any:
        gradients, lesson = self.inner.gradients(*args)
        if self.what == "gradient":
            gradients[0] = math.nan
        return gradients, {**lesson, "value_loss": math.inf} if self.what == "lesson" else lesson


@pytest.mark.parametrize("what", ["gradient", "lesson"])
def test_numbers_that_are_not_finite_end_the_run_and_reach_nobody(told: Told, what: str) -> None:
    of = learner(told, agent=Poisoned(what))
    of.step()
    feed(of)
    before = weights(of)
    with pytest.raises(Diverged, match="learning_rate"):
        one_update(of)
    assert told.versions == [Version(0, 0)] and told.entries == [] and told.released == [] and told.saved == []
    assert what != "gradient" or weights(of) == before


def test_rewards_that_never_change_are_no_reason_to_end(told: Told) -> None:
    of = learner(told)
    of.step()
    feed(of, rewards=lambda actions: np.zeros(SLOTS), ends=0)
    one_update(of)
    assert np.isfinite(list(told.reports[0]["lesson"].values())).all()


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_the_number_of_threads_changes_no_bit(algorithm: str) -> None:
    def after(threads: int, shards: int) -> bytes:
        agent = agent_for(algorithm)
        hyper = agent.Hyper(minibatch=1024, epochs=2)
        of = learner(Told(), agent=agent, hyper=hyper, threads=threads, shards=shards, total_steps=10**6)
        of.step()
        feed(of, steps=32, slots=64, next_step=True)
        one_update(of)
        of.close()
        return weights(of)

    assert after(1, 3) == after(2, 3) == after(4, 3)
    assert after(1, 3) != after(1, 1)  # otherwise this test would show nothing


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_shards_sum_to_the_gradient_of_the_whole(algorithm: str) -> None:
    found = []
    for shards in (1, 4):
        agent = agent_for(algorithm)
        of = learner(Told(), agent=agent, hyper=agent.Hyper(minibatch=4096), shards=shards)
        of.step()
        feed(of, steps=32, slots=64, next_step=True, ends=0.2)
        of.step()
        assert of._update is not None
        found.append(of._gradients(of._update, next(of._update.plan)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=2e-3, atol=2e-6)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-3, abs=1e-5)


def test_closing_brings_an_update_to_its_end_and_saves(told: Told) -> None:
    of = learner(told)
    of.step()
    feed(of)
    of.step(), of.step()
    assert not of.between_updates
    of.close()
    assert of.between_updates and told.versions[-1] == Version(0, 1) and told.saved == [1] and len(told.released) == 1


def test_closing_before_anything_was_learnt_saves_too(told: Told) -> None:
    of = learner(told)
    of.close()
    assert told.saved == [0]


def test_a_restored_learner_goes_on_bit_for_bit() -> None:
    one = learner(Told())
    one.step()
    feed(one, 0)
    one_update(one)
    arrays, skeleton = flatten(one.snapshot())
    two = learner(Told(), rng=np.random.default_rng(99), epoch=1)
    two.restore(unflatten({path: array.copy() for path, array in arrays.items()}, skeleton))
    assert two.counters == one.counters and two.step() == 1 and two.policies.versions == [Version(1, 1)]
    for of, epoch in ((one, 0), (two, 1)):
        feed(of, 1, epoch=epoch)
        one_update(of)
    assert weights(one) == weights(two) and one.counters == two.counters


def test_every_hundredth_entry_of_the_journal_has_the_hash_of_the_weights(told: Told) -> None:
    of = learner(told, hyper=replace(HYPER, epochs=1, minibatch=64), total_steps=10**9)
    of.step()
    of.counters.updates = 98
    feed(of, 0)
    one_update(of)
    feed(of, 1)
    one_update(of)
    assert "weights" not in told.entries[0]
    assert told.entries[1]["weights"] == fingerprint(of.agent.policy(of.state, of.hyper).tensors)


def test_waiting_for_experience_is_counted_as_waiting(told: Told) -> None:
    clock = FakeClock()
    of = learner(told, clock=clock)
    of.step(), of.step()
    clock.advance(2.0)
    of.step()
    clock.advance(3.0)
    feed(of)
    one_update(of)
    assert told.reports[0]["seconds"]["wait"] == 5.0
    feed(of, 1)
    one_update(of)
    assert told.reports[1]["seconds"]["wait"] == 0.0


def test_a_hash_knows_names_and_numbers() -> None:
    one = fingerprint({"a": np.zeros(2), "b": np.ones(2)})
    assert one == fingerprint({"b": np.ones(2), "a": np.zeros(2)})
    assert one != fingerprint({"a": np.ones(2), "b": np.zeros(2)})


def test_lessons_are_averaged_by_their_weights() -> None:
    assert mean_lesson([{"a": 1.0}, {"a": 3.0}]) == {"a": 2.0}
    assert mean_lesson([{"a": 1.0}, {"a": 3.0}], [0.75, 0.25]) == {"a": 1.5}
    assert mean_lesson([]) == {}
