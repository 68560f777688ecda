"""What is not usable is refused with its name, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.core import native
from millstream.core.errors import ConfigError, EnvError
from millstream.replay.cut import Sequences, n_step, transitions
from millstream.replay.limit import Free
from millstream.replay.pool import Pool
from millstream.replay.select import Prioritised
from millstream.replay.table import Table
from tests.replay.making import Worlds


@pytest.fixture(params=["c", "numpy"], autouse=True)
def way(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "LIBRARY", None)
    elif native.LIBRARY is None:
        pytest.skip("no compiler was there when Millstream was installed")


def spoilt(name, number, stack=1):
    """A rollout with one number that is none."""
    made = next(
        each for each in (Worlds(3, 2, seed, stack=stack).rollout(4) for seed in range(99)) if len(each.final_at)
    )
    array = {"rewards": made.rewards, "observations": made.observations["obs"], "finals": made.finals["obs"]}[name]
    array[(-1,) * array.ndim] = number
    return made


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["rewards", "observations", "finals"])
@pytest.mark.parametrize("stack", [1, 2])
def test_numbers_that_are_none_are_refused_before_anything_is_kept(name, number, stack):
    table = Table(transitions(), capacity=9, rng=np.random.default_rng(0))
    table.insert(Worlds(0, 2, 1, stack=stack).rollout(4))
    before = table.snapshot()
    with pytest.raises(EnvError, match=rf"{name}.* of rollout 0 of actor 3 is {number}"):
        table.insert(spoilt(name, number, stack))
    after = table.snapshot()
    assert (before["inserted"], before["store"]["rows"]) == (after["inserted"], after["store"]["rows"])
    for column, kept in before["store"]["columns"].items():
        np.testing.assert_array_equal(kept, after["store"]["columns"][column])
    assert np.isfinite(table.sample(64).rollouts[0].rewards).all()


def test_a_pool_that_refuses_goes_on():
    pool = Pool(transitions(), Prioritised(), capacity=9, shards=2)
    with pytest.raises(EnvError, match="nothing of it was kept"):
        pool.insert(spoilt("rewards", np.nan))
    assert pool.waiting == 0 and pool.sample(1) is None
    assert pool.insert(Worlds(0, 2, 1).rollout(4)) and pool.waiting == 8 and pool.inserted == 8


def test_endings_that_are_nowhere_are_refused():
    for wrong in ([[4, 0]], [[0, 2]], [[-1, 0]]):
        made = Worlds(0, 2, 1).rollout(4)
        finals = {"obs": np.zeros((1, 4), np.float32)}
        with pytest.raises(ConfigError, match="endings that are not among its steps"):
            Table(transitions(), capacity=9).insert(replace(made, final_at=np.array(wrong), finals=finals))


def test_arrays_of_different_sizes_are_refused():
    made = Worlds(0, 2, 1).rollout(4)
    table = Table(transitions(), capacity=50)
    for wrong in (
        {"valid": made.valid[:-1]}, {"first": made.first[:-1]}, {"actions": made.actions[:, :1]},
        {"observations": {"obs": made.observations["obs"][:-1]}}, {"observations": {}},
        {"finals": {"obs": np.zeros((99, 4), np.float32)}, "final_at": np.zeros((1, 2), np.int64)},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="does not fit into this table"):
            table.insert(made)
            table.insert(replace(made, **wrong))


def test_arrays_with_gaps_or_that_may_not_be_written_come_in_as_they_are():
    one, other = (Table(n_step(2), capacity=50, rng=np.random.default_rng(0)) for _ in range(2))
    made = Worlds(0, 3, 1).rollout(4)
    wide = replace(
        made,
        rewards=np.asfortranarray(made.rewards),
        valid=np.repeat(made.valid, 2, axis=1)[:, ::2],
        observations={"obs": np.frombuffer(made.observations["obs"].tobytes(), np.float32).reshape(5, 3, 4)},
        final_at=made.final_at.astype(np.int32),
    )
    one.insert(made)
    other.insert(wide)
    mine, theirs = one.sample(40).rollouts[0], other.sample(40).rollouts[0]
    np.testing.assert_array_equal(mine.rewards, theirs.rewards)
    np.testing.assert_array_equal(mine.observations["obs"], theirs.observations["obs"])
    np.testing.assert_array_equal(mine.finals["obs"], theirs.finals["obs"])


def test_what_is_not_there_yet_is_not_now():
    for made in (Table(transitions(), limit=Free(least=5), capacity=9), Pool(transitions(), limit=Free(least=5))):
        assert made.sample(1) is None
        made.insert(Worlds(0, 1, 0).rollout(4))
        assert made.sample(1) is None and made.waiting == 4
        made.insert(Worlds(0, 1, 0).rollout(1))
        assert made.sample(64) is not None and made.sample(0) is None


@pytest.mark.parametrize("wrong", [float("nan"), -1.0, float("inf")])
def test_a_wrong_priority_is_refused_by_a_pool_too(wrong):
    pool = Pool(transitions(), Prioritised(), capacity=9, shards=2)
    pool.insert(Worlds(0, 1, 0).rollout(4))
    keys, total = pool.sample(2).keys, pool.select.tree.total
    with pytest.raises(ConfigError, match="a priority is a number from 0 on"):
        pool.reprioritise(keys, np.array([1.0, wrong]))
    assert pool.select.tree.total == total


@pytest.mark.parametrize("cut", [transitions(), Sequences(2)])
def test_keys_of_a_shard_that_is_gone_name_nothing_even_when_there_is_another_in_its_place(cut):
    world = Worlds(0, 1, 0)
    pool = Pool(cut, Prioritised(1.0), capacity=20, shards=2, rng=np.random.default_rng(0))
    for _ in range(4):
        pool.insert(world.rollout(2))
    keys = np.unique(pool.sample(400).keys)
    gone = keys[keys >> 40 == 1]
    assert len(gone)
    pool.resize(1)
    total = pool.select.tree.total
    pool.reprioritise(gone, np.full(len(gone), 1e6))
    assert pool.select.tree.total == total
    pool.resize(2)
    for _ in range(4):
        pool.insert(world.rollout(2))
    total = pool.select.tree.total
    pool.reprioritise(gone, np.full(len(gone), 1e6))
    pool.reprioritise(np.array([-1, 1 << 62]), np.ones(2))
    assert pool.select.tree.total == total and pool.sample(9) is not None
