"""A pool gives what its shards hold, whatever their number does meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import ConfigError
from millstream.replay.cut import Sequences, Whole, n_step, transitions
from millstream.replay.pool import Pool
from millstream.replay.select import Fifo, Prioritised, Uniform
from tests.replay.making import Worlds


def filled(worlds, turns, **how):
    pool = Pool(transitions(), rng=np.random.default_rng(0), **how)
    for turn in range(turns):
        assert pool.insert(worlds[turn % len(worlds)].rollout(2))
    return pool


def seen(rollout):
    return {tuple(row) for row in rollout.observations["obs"][0].reshape(rollout.slots, -1)[:, :4]}


@pytest.mark.parametrize(
    ("balance", "counts"), [("round_robin", [8, 8, 8]), ("least_loaded", [8, 8, 8]), ("by_actor", [12, 12, 0])]
)
def test_rollouts_are_spread(balance, counts):
    worlds = [Worlds(actor, 2, 0) for actor in range(2)]
    pool = filled(worlds, 6, capacity=20, shards=3, balance=balance)
    assert pool.statistics()["by_shard"] == counts and pool.waiting == 24


def test_every_item_is_as_likely_wherever_it_stands():
    worlds = [Worlds(0, 1, 0), Worlds(1, 3, 0)]
    pool = Pool(transitions(), capacity=1_000, shards=2, balance="by_actor", rng=np.random.default_rng(0))
    for world in worlds:
        pool.insert(world.rollout(4))  # 4 items beside 12
    keys, counts = np.unique(pool.sample(40_000).keys, return_counts=True)
    assert len(keys) == 16 and abs(counts - 2_500).max() < 250


def test_what_is_sampled_is_as_it_happened():
    worlds = [Worlds(actor, 2, 5, image=True, stack=3) for actor in range(3)]
    pool = filled(worlds, 9, capacity=100, shards=2)
    (found,) = pool.sample(300).rollouts
    told = {(*step["now"][-1][:, 0].tolist(), int(step["action"])): step for world in worlds for step in world.told}
    for slot in range(300):
        step = told[(*found.observations["obs"][0, slot][:, 0].tolist(), int(found.actions[0, slot]))]
        np.testing.assert_array_equal(found.observations["obs"][1, slot], step["after"][-1])
        if not found.first[0, slot]:
            np.testing.assert_array_equal(found.carry["frames/obs"][slot], step["now"][:-1])
        assert found.rewards[0, slot] == step["reward"]


def test_priorities_belong_to_items_of_any_shard():
    worlds = [Worlds(actor, 1, 0) for actor in range(2)]
    pool = Pool(
        transitions(), Prioritised(1.0, 1.0), capacity=8, shards=2, balance="by_actor", rng=np.random.default_rng(0)
    )
    for world in worlds:
        pool.insert(world.rollout(3))
    keys = np.unique(pool.sample(1_000).keys)
    assert len(keys) == 6
    pool.reprioritise(keys, np.array([0.0, 0.0, 1.0, 0.0, 3.0, 0.0]))
    sample = pool.sample(4_000)
    found, counts = np.unique(sample.keys, return_counts=True)
    assert found.tolist() == [keys[2], keys[4]] and abs(counts[1] / 4_000 - 0.75) < 0.03
    np.testing.assert_allclose(sample.weights[sample.keys == keys[4]], 1 / 3, rtol=1e-5)
    with pytest.raises(ConfigError, match="a priority is a number"):
        pool.reprioritise(keys[:1], np.array([np.nan]))
    for _ in range(3):
        pool.insert(worlds[0].rollout(3))  # the first of shard 0 have left
    pool.reprioritise(keys[:1], np.array([1e9]))
    assert pool.select.tree.total < 1e6


@pytest.mark.parametrize("select", [Uniform(), Prioritised()])
def test_it_grows_and_shrinks_while_in_use(select):
    worlds = [Worlds(actor, 2, actor) for actor in range(2)]
    pool = Pool(transitions(), select, capacity=40, shards=2, rng=np.random.default_rng(0))
    for turn in range(6):
        pool.insert(worlds[turn % 2].rollout(3))
    everything = seen(pool.sample(2_000).rollouts[0])
    assert len(everything) == 36
    pool.resize(4)
    assert seen(pool.sample(2_000).rollouts[0]) == everything
    for turn in range(4):
        pool.insert(worlds[turn % 2].rollout(3))
    more = seen(pool.sample(3_000).rollouts[0])
    assert len(more) == 60 and everything < more and min(pool.statistics()["by_shard"]) > 0
    pool.resize(2)
    assert seen(pool.sample(3_000).rollouts[0]) == more and pool.dropped == 0 and pool.waiting == 60
    pool.resize(1)
    assert pool.waiting == 40 and pool.dropped == 20 and seen(pool.sample(2_000).rollouts[0]) < more
    assert pool.insert(worlds[0].rollout(3)) and pool.waiting == 40


@settings(max_examples=25, deadline=None)
@given(
    cut=st.sampled_from([transitions(), n_step(3), Sequences(2)]), image=st.booleans(), stack=st.integers(1, 3),
    moves=st.lists(st.integers(1, 5), min_size=1, max_size=8), prioritised=st.booleans(), seed=st.integers(0, 50),
)  # fmt: skip
def test_nothing_is_made_up_however_it_is_resized(cut, image, stack, moves, prioritised, seed):
    select = Prioritised() if prioritised else Uniform()
    pool = Pool(cut, select, capacity=30, shards=2, rng=np.random.default_rng(seed))
    worlds = [Worlds(actor, 2, seed, image, stack) for actor in range(2)]
    for turn, shards in enumerate(moves):
        for world in worlds:
            pool.insert(world.rollout(2 + turn % 3))
        pool.resize(shards)
        told = {}
        for world in worlds:
            for step in world.told:
                told[tuple(np.asarray(step["now"][-1]).reshape(4, -1)[:, 0].tolist())] = step
        (found,) = pool.sample(64).rollouts
        for slot in range(64):
            if not found.valid[0, slot]:
                continue
            step = told[tuple(found.observations["obs"][0, slot].reshape(4, -1)[:, 0].tolist())]
            assert found.rewards[0, slot] == step["reward"] and found.terminated[0, slot] == step["terminated"]
            if found.steps == 1:
                np.testing.assert_array_equal(found.observations["obs"][1, slot], step["after"][-1])


def test_bad_settings_say_what_to_do():
    for how, words in (
        ({"cut": Whole()}, "for the rest there is Table"), ({"select": Fifo()}, "for the rest there is Table"),
        ({"balance": "fair"}, "round_robin"), ({"shards": 0}, "at least 1 shard"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            Pool(**{"cut": transitions(), **how})
    with pytest.raises(ConfigError, match="at least 1 shard"):
        Pool(transitions()).resize(0)
    assert Pool(transitions()).sample(1) is None
