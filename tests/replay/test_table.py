"""Tables against a model that fits on a page: a list of everything that ever happened."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.agents.features import Features
from millstream.core import tree
from millstream.core.errors import ConfigError
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.replay.cut import Sequences, Whole, n_step, transitions
from millstream.replay.limit import Free, SamplesPerInsert
from millstream.replay.select import Fifo, Lifo, Prioritised, Uniform
from millstream.replay.table import Oldest, Table, Used, queue
from tests.replay.making import Worlds

NUMBERS = EnvSpec("numbers", {"obs": Box((4,))}, Discrete(10))
PICTURES = EnvSpec("pictures", {"obs": Box((4, 3), "uint8")}, Discrete(10))


def stacked(spec, rollout, stack):
    """What a policy sees at each step [L + 1, B, stack, ...]."""
    spec = EnvSpec(spec.id, spec.observations, spec.action, stack=stack)
    seen = Features(spec, images=True).unroll(rollout)["obs"]
    return seen if stack > 1 else seen[:, :, None]


def in_order(worlds, rollouts):
    """All that was told, in the order of rows: rollout by rollout, time first."""
    turns = {rollout: turn for turn, rollout in enumerate(rollouts)}
    told = [step for world in worlds for step in world.told]
    return sorted(told, key=lambda step: (turns[step["row"][:2]], *step["row"][2:]))


@settings(max_examples=60, deadline=None)
@given(
    image=st.booleans(), stack=st.integers(1, 3), steps=st.integers(1, 4), resets=st.booleans(),
    turns=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), min_size=1, max_size=12),
    slots=st.tuples(st.integers(1, 3), st.integers(1, 3)), capacity=st.integers(15, 60), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_window_is_as_it_happened(image, stack, steps, resets, turns, slots, capacity, seed):
    worlds = [Worlds(actor, slots[actor], seed, image, stack, resets) for actor in range(2)]
    table = Table(n_step(steps), Fifo(), capacity=capacity)
    written, rows = [], 0
    for actor, length in turns:
        rollout = worlds[actor].rollout(length)
        written.append((actor, rollout.stamp.sequence))
        assert table.insert(rollout)
        rows += length * slots[actor]
    assert table.waiting <= capacity and (table.waiting == min(capacity, rows) or image or stack > 1)
    told = in_order(worlds, written)
    sample = table.sample(table.waiting)
    (found,) = sample.rollouts
    spec = PICTURES if image else NUMBERS
    seen = stacked(spec, found, stack)
    there = [slot for slot in range(found.slots) if found.valid[0, slot]]
    assert len(there) <= len(told)
    for slot, step in zip(there, told[len(told) - len(there) :], strict=True):
        last = step
        for t in range(steps):
            if not found.valid[t, slot]:
                assert last["terminated"] or last["truncated"] or last["next"] is None
                break
            last = step
            np.testing.assert_array_equal(seen[t, slot], step["now"])
            assert found.actions[t, slot] == step["action"] and found.rewards[t, slot] == step["reward"]
            assert found.terminated[t, slot] == step["terminated"] and found.truncated[t, slot] == step["truncated"]
            step = step["next"]
            if step is None and t + 1 < steps:
                assert not found.valid[t + 1, slot]
        else:
            assert found.valid[:, slot].all()
        np.testing.assert_array_equal(found.observations["obs"][-1, slot], last["after"][-1])
    ended = (found.terminated | found.truncated) & found.valid
    np.testing.assert_array_equal(np.argwhere(ended), found.final_at)


def test_sequences_cover_every_step_and_go_through_endings():
    world = Worlds(0, 2, seed=1)
    table = Table(Sequences(3), Fifo(), capacity=100)
    rollout = world.rollout(8)
    assert table.insert(rollout) and table.waiting == 6
    (found,) = table.sample(6).rollouts
    begins = [0, 0, 3, 3, 5, 5]
    for item, begin in enumerate(begins):
        slot = item % 2
        np.testing.assert_array_equal(found.rewards[:, item], rollout.rewards[begin : begin + 3, slot])
        np.testing.assert_array_equal(
            found.observations["obs"][:3, item], rollout.observations["obs"][begin : begin + 3, slot]
        )
        np.testing.assert_array_equal(found.first[:3, item], rollout.first[begin : begin + 3, slot])


def test_sequences_leave_with_their_first_step():
    world = Worlds(0, 1, seed=1)
    table = Table(Sequences(2), Fifo(), capacity=7)
    for _ in range(5):
        table.insert(world.rollout(4))
    (found,) = table.sample(table.waiting).rollouts
    told = {tuple(step["now"][0]) for step in world.told[-7:]}
    assert table.waiting == 3 and {tuple(row) for row in found.observations["obs"][0]} <= told
    with pytest.raises(ConfigError, match=r"raise actor\.unroll"):
        table.insert(world.rollout(1))


@pytest.mark.parametrize("select, expected", [(Fifo(), [3, 4, 5]), (Lifo(), [7, 6, 5])])
def test_the_oldest_or_the_newest_come_first(select, expected):
    world = Worlds(0, 1, seed=0)
    table = Table(transitions(), select, capacity=5)
    for _ in range(8):
        table.insert(world.rollout(1))
    assert table.sample(3).keys.tolist() == expected


def test_uniform_picks_all_alike():
    world = Worlds(0, 1, seed=0)
    table = Table(transitions(), Uniform(), capacity=10, rng=np.random.default_rng(0))
    for _ in range(13):
        table.insert(world.rollout(1))
    counts = np.bincount(table.sample(50_000).keys - 3, minlength=10)
    assert len(counts) == 10 and abs(counts - 5_000).max() < 400


def test_steps_in_which_nothing_happened_are_never_picked():
    for select in (Uniform(), Prioritised()):
        world = Worlds(0, 2, seed=3, resets=True)
        table = Table(transitions(), select, capacity=64, rng=np.random.default_rng(0))
        blank = sum(
            int((~rollout.valid).sum()) for rollout in (world.rollout(4) for _ in range(20)) if table.insert(rollout)
        )
        assert blank > 5
        assert table.sample(5_000).rollouts[0].valid.all()


def test_prioritised_picks_in_proportion_and_says_how_much_each_counts():
    world = Worlds(0, 1, seed=0)
    table = Table(transitions(), Prioritised(0.5, 1.0), capacity=4, rng=np.random.default_rng(0))
    for _ in range(4):
        table.insert(world.rollout(1))
    table.reprioritise(np.arange(4), np.array([1.0, 4.0, 9.0, 16.0]))  # chances 1, 2, 3, 4 of 10
    sample = table.sample(20_000)
    shares = np.bincount(sample.keys, minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.01)
    by_key = {key: float(weight) for key, weight in zip(sample.keys.tolist(), sample.weights, strict=True)}
    np.testing.assert_allclose([by_key[key] for key in range(4)], [1, 1 / 2, 1 / 3, 1 / 4], rtol=1e-5)
    table.insert(world.rollout(1))  # as likely as the likeliest; the first is gone
    table.reprioritise(np.array([0, 1]), np.array([1e9, 0.0]))
    keys = table.sample(10_000).keys
    assert set(keys.tolist()) == {2, 3, 4} and abs(np.mean(keys == 4) - 4 / 11) < 0.02


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf")])
def test_a_wrong_priority_is_refused_and_changes_nothing(wrong):
    table = Table(transitions(), Prioritised(), capacity=4)
    world = Worlds(0, 1, seed=0)
    for _ in range(4):
        table.insert(world.rollout(1))
    total = table.select.tree.total
    with pytest.raises(ConfigError, match="a priority is a number from 0 on"):
        table.reprioritise(np.array([1, 2]), np.array([1.0, wrong]))
    with pytest.raises(ConfigError, match="as many priorities"):
        table.reprioritise(np.array([1, 2]), np.array([1.0]))
    assert table.select.tree.total == total


def test_another_kind_of_rollout_is_refused_by_name_and_nothing_is_half_written():
    table = Table(transitions(), Fifo(), capacity=50)
    table.insert(Worlds(0, 2, seed=0).rollout(3))
    before = table.sample(6).rollouts[0]
    for other, word in ((Worlds(1, 2, 0, image=True), "obs"), (Worlds(1, 2, 0, stack=2), "frames")):
        with pytest.raises(ConfigError, match=word):
            table.insert(other.rollout(3))
    after = table.sample(6).rollouts[0]
    assert table.waiting == 6 and table.inserted == 6
    np.testing.assert_array_equal(before.observations["obs"], after.observations["obs"])


def test_bad_settings_say_what_to_do():
    with pytest.raises(ConfigError, match="at least 1 item"):
        Table(transitions(), capacity=0)
    with pytest.raises(ConfigError, match="whole rollouts"):
        Table(transitions(), Fifo(), Used())
    with pytest.raises(ConfigError, match="does not fit into a table of 4"):
        Table(transitions(), capacity=4).insert(Worlds(0, 1, 0).rollout(5))
    with pytest.raises(ConfigError, match="ratio"):
        SamplesPerInsert(0.0)
    with pytest.raises(ConfigError, match="exponent"):
        Prioritised(exponent=-1)
    with pytest.raises(ConfigError, match="at least 1 step"):
        n_step(0)


def test_samples_per_insert_holds_both_sides_back():
    table = Table(transitions(), limit=SamplesPerInsert(4.0, least=10, slack=5), capacity=1_000)
    world, inserted, sampled = Worlds(0, 1, 0), 0, 0
    assert table.sample(1) is None
    while table.insert(world.rollout(1)):
        inserted += 1
    assert inserted == 15  # what must be there, and the slack
    while table.sample(4):
        sampled += 4
    assert sampled == 4 * 10  # as far ahead as it was behind
    for _ in range(200):
        progress = table.insert(world.rollout(1)), table.sample(4) is not None
        assert any(progress)
    assert abs(table.sampled / (table.inserted - 10) - 4.0) < 0.2


def test_a_queue_is_a_table():
    table = queue(2)
    assert isinstance(table, Table) and isinstance(table.cut, Whole) and isinstance(table.evict, Used)
    whole = Table(Whole(), Fifo(), Oldest(), Free(), 2)
    world = Worlds(0, 1, 0)
    made = [world.rollout(1) for _ in range(3)]
    assert [whole.insert(each) for each in made] == [True] * 3
    assert (
        [each.stamp.sequence for each in whole.sample(2).rollouts]
        == [1, 2]
        == [each.stamp.sequence for each in itertools.islice(whole.sample(2).rollouts, 2)]
    )


@settings(max_examples=40, deadline=None)
@given(
    image=st.booleans(), stack=st.integers(1, 3), cut=st.sampled_from([n_step(1), n_step(3), Sequences(2)]),
    prioritised=st.booleans(), turns=st.integers(0, 12), more=st.integers(0, 6), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_table_that_was_kept_goes_on_as_the_one_that_was_not(image, stack, cut, prioritised, turns, more, seed):
    def made():
        select = Prioritised() if prioritised else Uniform()
        return Table(cut, select, capacity=25, rng=np.random.default_rng(seed))

    world, one, other = Worlds(0, 2, seed, image, stack), made(), made()
    for turn in range(turns):
        one.insert(world.rollout(3))
        if prioritised and turn % 2:
            sample = one.sample(5)
            one.reprioritise(sample.keys, np.random.default_rng(turn).random(5))
    arrays, skeleton = tree.flatten(one.snapshot())
    other.restore(tree.unflatten(arrays, json.loads(json.dumps(skeleton))))  # as a checkpoint writes and reads it
    for _ in range(more):
        rollout = world.rollout(3)
        assert one.insert(rollout) == other.insert(rollout)
        mine, theirs = one.sample(7), other.sample(7)
        np.testing.assert_array_equal(mine.keys, theirs.keys)
        for name in ("actions", "rewards", "terminated", "truncated", "first", "valid", "final_at"):
            np.testing.assert_array_equal(getattr(mine.rollouts[0], name), getattr(theirs.rollouts[0], name))
        np.testing.assert_array_equal(mine.rollouts[0].observations["obs"], theirs.rollouts[0].observations["obs"])
    assert (one.inserted, one.sampled, one.waiting) == (other.inserted, other.sampled, other.waiting)


def test_a_window_does_not_run_from_an_actor_that_died_into_the_one_that_replaced_it():
    for opened in (True, False):  # started anew, or resumed where it was
        table = Table(n_step(2), Fifo(), capacity=20)
        for sequence in range(2):
            made = Worlds(0, 1, seed=0).rollout(1)
            made.terminated[...] = made.truncated[...] = False
            made.first[0] = opened
            stamp = replace(made.stamp, epoch=sequence, sequence=sequence)
            none = {"obs": made.finals["obs"][:0]}
            table.insert(replace(made, stamp=stamp, finals=none, final_at=made.final_at[:0]))
        assert table.sample(2).rollouts[0].valid[1].tolist() == [not opened, False]
