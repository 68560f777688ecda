from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from millstream.core.data import Params, Version
from millstream.core.errors import EnvError
from millstream.core.ports import Snapshots
from millstream.core.tree import flatten, unflatten
from millstream.testing import FakeClock
from tests.actor.making import SLOTS, UNROLL, WORLDS, Counting, Stage, policy, record, same, world


@pytest.fixture(params=WORLDS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def stage(name: str, **changes: Any) -> Stage:
    found = Stage(world(name), **changes)
    found.policies.publish(policy(0))
    return found


def test_a_rollout_is_exactly_what_happened(name: str) -> None:
    count = 6
    made = stage(name).make(count)
    env = world(name)
    told = record(env, Counting(env.spec), policy(0).params, 5, count * UNROLL)
    for k, rollout in enumerate(made):
        part = told[k * UNROLL : (k + 1) * UNROLL]
        assert (rollout.steps, rollout.slots) == (UNROLL, SLOTS)
        assert {key: array.tolist() for key, array in rollout.carry.items()} == {
            key: array.tolist() for key, array in part[0]["carry"].items()
        }
        finals = []
        for t, entry in enumerate(part):
            now, after, decision = entry["now"], entry["after"], entry["decision"]
            for key, array in now.observations.items():
                assert np.array_equal(rollout.observations[key][t], array), (k, t, key)
            assert np.array_equal(rollout.first[t], now.first)
            assert np.array_equal(rollout.actions[t], decision.actions)
            for key, array in decision.extras.items():
                assert np.array_equal(rollout.extras[key][t], array)
            if now.masks is not None:
                assert np.array_equal(rollout.extras["mask"][t], now.masks)
            for field in ("rewards", "terminated", "truncated", "valid"):
                assert np.array_equal(getattr(rollout, field)[t], getattr(after, field)), (k, t, field)
            finals += [
                (t, slot, {key: array[i] for key, array in after.finals.items()}) for i, slot in enumerate(after.ended)
            ]
        last = part[-1]["after"]
        for key, array in last.observations.items():
            assert np.array_equal(rollout.observations[key][UNROLL], array)
        assert np.array_equal(rollout.first[UNROLL], last.first)
        assert last.masks is None or np.array_equal(rollout.extras["mask"][UNROLL], last.masks)
        assert rollout.final_at.tolist() == [[t, slot] for t, slot, _ in finals]
        for row, (_, _, seen) in enumerate(finals):
            assert all(np.array_equal(rollout.finals[key][row], seen[key]) for key in rollout.finals)
        assert rollout.count == sum(entry["after"].valid.sum() for entry in part)
    assert sum(len(rollout.final_at) for rollout in made), "no episode ended: the test shows little"


def test_a_mask_is_recorded_only_where_there_is_one(name: str) -> None:
    (rollout,) = stage(name).make(1)
    assert ("mask" in rollout.extras) == (name == "masked")


@pytest.mark.parametrize("stride", [1, 2, 3, 100])
def test_how_a_rollout_is_cut_into_steps_changes_nothing(stride: int) -> None:
    whole, cut = stage("CartPole-v1").make(5), stage("CartPole-v1", stride=stride).make(5)
    assert all(same(one, other) for one, other in zip(whole, cut, strict=True))


class Ticking(FakeClock):
    """Every look at it takes a second."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def test_a_budget_ends_a_step_early_and_changes_nothing() -> None:
    slow = stage("CartPole-v1", clock=Ticking(), budget=5.0)
    assert slow.actor.step() == 2 * SLOTS and slow.take() == []
    cut = [*slow.make(3)]
    assert all(same(one, other) for one, other in zip(stage("CartPole-v1").make(3), cut, strict=True))


def test_a_step_says_how_many_steps_it_made() -> None:
    cut = stage("CartPole-v1", stride=3)
    assert [cut.actor.step() for _ in range(3)] == [3 * SLOTS, 3 * SLOTS, SLOTS]
    assert len(cut.take()) == 1


def test_without_a_policy_it_does_nothing_and_draws_nothing() -> None:
    idle = Stage(world("CartPole-v1"))
    assert [idle.actor.step() for _ in range(3)] == [0, 0, 0]
    idle.policies.publish(policy(0))
    (late,) = idle.make(1)
    assert same(late, stage("CartPole-v1").make(1)[0])


def test_without_credit_it_waits_and_loses_nothing() -> None:
    blocked = stage("CartPole-v1", window=2)
    assert [blocked.actor.step() for _ in range(5)] == [UNROLL * SLOTS, UNROLL * SLOTS, 0, 0, 0]
    made = [*blocked.take(), *blocked.make(2)]
    assert [rollout.stamp.sequence for rollout in made] == [0, 1, 2, 3]
    assert all(same(one, other) for one, other in zip(stage("CartPole-v1").make(4), made, strict=True))


def test_a_bus_that_refuses_a_finished_rollout_gets_the_same_one_again() -> None:
    found = stage("CartPole-v1")
    publish, answers = found.bus.publish, iter([False, False])
    found.bus.publish = lambda topic, message: (  # type: ignore[method-assign]
        publish(topic, message) if topic.name != "experiences" or next(answers, True) else False
    )
    assert found.actor.step() == UNROLL * SLOTS and found.take() == []
    assert found.actor.step() == 0
    assert found.actor.step() == 1
    assert same(found.take()[0], stage("CartPole-v1").make(1)[0])


def test_a_new_policy_is_taken_only_where_a_rollout_starts() -> None:
    found = stage("CartPole-v1", stride=2)
    found.actor.step()
    found.policies.publish(policy(1))
    found.policies.publish(policy(2))
    first, second = found.make(2)
    assert (first.stamp.policy, second.stamp.policy) == (Version(0, 0), Version(0, 2))
    assert np.array_equal(first.extras["shifted"][..., 0], first.extras["count"])
    assert np.array_equal(second.extras["shifted"][..., 0], second.extras["count"] + 2)


def test_stamps_say_who_made_it() -> None:
    made = stage("CartPole-v1", index=3, epoch=2).make(2)
    assert [(each.stamp.actor, each.stamp.epoch, each.stamp.sequence) for each in made] == [(3, 2, 0), (3, 2, 1)]
    assert made[0].stamp.experiment == "test" and made[0].stamp.made_at == FakeClock().now()


def test_returns_and_lengths_of_episodes_are_right(name: str) -> None:
    count = 9
    found = stage(name)
    found.make(count)
    env = world(name)
    told = record(env, Counting(env.spec), policy(0).params, 5, count * UNROLL)
    expected = []
    total, length = [0.0] * SLOTS, [0] * SLOTS
    for entry in told:
        after = entry["after"]
        for slot in range(SLOTS):
            if after.valid[slot]:
                total[slot] += float(after.rewards[slot])
                length[slot] += 1
            if after.terminated[slot] or after.truncated[slot]:
                expected.append((slot, pytest.approx(total[slot], abs=1e-5), length[slot]))
                total[slot], length[slot] = 0.0, 0
    assert expected and found.episodes() == expected


@pytest.mark.parametrize("name", ["next step", "same step", "disabled"])
def test_an_episode_of_ten_steps_counts_ten_in_every_mode_of_resetting(name: str) -> None:
    found = stage(name)
    made = found.make(10)
    episodes = found.episodes()
    assert sorted(episodes[:SLOTS]) == [(0, 10.0, 10), (1, 9.0, 9), (2, 8.0, 8)]  # slot i opens at age i
    assert {(total, length) for _, total, length in episodes[SLOTS:]} == {(10.0, 10)}
    resets = sum(int((~rollout.valid).sum()) for rollout in made)
    assert sum(rollout.count for rollout in made) == 10 * UNROLL * SLOTS - resets
    assert (resets >= 6 * SLOTS - 1) if name == "next step" else resets == 0


def through_a_file(snapshot: Any) -> Any:
    arrays, skeleton = flatten(snapshot)
    return unflatten(deepcopy(arrays), skeleton)


@pytest.mark.parametrize("before", [0, 1, 4])
def test_an_actor_restored_goes_on_bit_for_bit(name: str, before: int) -> None:
    one = stage(name)
    one.make(before)
    kept = through_a_file(one.actor.snapshot())
    assert ("env" in kept) == isinstance(one.actor.env, Snapshots)
    one.actor.reopen(before)
    two = stage(name, seed=5)
    two.actor.restore(kept)
    two.actor.reopen(before)
    one.episodes()
    ahead, again = one.make(4), two.make(4)
    assert all(same(a, b) and a.stamp == b.stamp for a, b in zip(ahead, again, strict=True))
    assert one.episodes() == two.episodes()


def test_what_cannot_be_kept_starts_anew_and_differently_at_each_checkpoint() -> None:
    def first(number: int) -> Any:
        found = stage("dictionary")
        found.make(1)
        found.actor.reopen(number)
        (rollout,) = found.make(1)
        assert rollout.first[0].all() and (rollout.carry["count"] == 0).all()
        found.make(1)
        assert {length for _, _, length in found.episodes()} == {10}  # the seven steps before were given up
        return rollout.observations["where"][0].tolist()

    assert first(1) == first(1) != first(2)


def test_what_can_be_kept_is_not_disturbed_by_a_checkpoint() -> None:
    one, two = stage("CartPole-v1"), stage("CartPole-v1")
    one.make(1), two.make(1)
    one.actor.snapshot()
    one.actor.reopen(1)
    assert same(one.make(1)[0], two.make(1)[0])


def test_a_snapshot_stays_what_it_was() -> None:
    found = stage("CartPole-v1")
    found.make(1)
    kept = found.actor.snapshot()
    before = deepcopy(kept)
    found.make(3)
    assert str(kept) == str(before)


def test_waiting_is_counted_apart() -> None:
    found = Stage(world("CartPole-v1"))
    found.actor.step()
    found.clock.advance(2.0)
    found.actor.step()
    found.clock.advance(1.0)
    found.policies.publish(policy(0))
    found.make(1)
    (report,) = [delivery.message for delivery in found.reports.poll(9)]
    assert report["seconds"]["wait"] == 3.0 and report["steps"] == UNROLL * SLOTS and report["policy"] == [0, 0]


def test_an_environment_that_breaks_says_so() -> None:
    from millstream.envs import registry

    broken = Stage(registry.make("millstream.testing:CrashingEnv", 2, {"after": 3}))
    broken.policies.publish(policy(0))
    with pytest.raises(EnvError):
        broken.make(3)


def test_closing_lets_go_of_the_environment() -> None:
    closed = []
    found = stage("CartPole-v1")
    found.actor.env.close = lambda: closed.append(True)  # type: ignore[method-assign]
    found.actor.close()
    assert closed == [True]


def test_the_probe_for_the_layout_counts_nowhere() -> None:
    found = stage("CartPole-v1")
    found.make(1)
    assert len(found.agent.acted_with) == UNROLL + 1
    assert isinstance(policy(0).params, Params)
