"""Episodes put together from rollouts are those that were played."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from millstream.actor.evaluation import Evaluation, whole_episodes
from millstream.actor.splicing import Splicer, episodes
from millstream.core.data import Episode, Rollout
from tests.actor.making import SLOTS, UNROLL, WORLDS, Counting, Stage, alike, policy, record, told, world


def made(name: str, rollouts: int, **changes: Any) -> list[Rollout]:
    stage = Stage(world(name), **changes)
    stage.policies.publish(policy(0))
    return stage.make(rollouts)


def played(name: str, steps: int) -> list[dict[str, Any]]:
    env = world(name)
    return record(env, Counting(env.spec), policy(0).params, 5, steps)


@pytest.mark.parametrize("name", WORLDS)
def test_rollouts_give_back_the_episodes_that_were_cut_into_them(name: str) -> None:
    splicer, found = Splicer(), {slot: [] for slot in range(SLOTS)}
    for rollout in made(name, 40):
        for slot, episode in splicer.take(rollout):
            found[slot].append(episode)
    entries = played(name, 40 * UNROLL)
    for slot, mine in found.items():
        expected = told(entries, slot)
        assert len(expected) > 1 and len(mine) == len(expected)
        assert all(alike(one, other) for one, other in zip(mine, expected, strict=True))


def test_an_episode_with_a_gap_in_it_is_passed_over_and_the_next_is_not() -> None:
    rollouts = made("CartPole-v1", 30)
    whole = list(episodes(rollouts))
    some = list(episodes([*rollouts[:9], *rollouts[10:]]))
    assert 0 < len(some) < len(whole)
    assert all(any(alike(one, other) for other in whole) for one in some)


def test_what_an_actor_did_in_another_life_is_not_joined_to_this_one() -> None:
    rollouts = made("CartPole-v1", 30)
    later = [replace(rollout, stamp=replace(rollout.stamp, epoch=1)) for rollout in rollouts[9:]]
    whole = list(episodes(rollouts))
    some = list(episodes([*rollouts[:9], *later]))
    assert 0 < len(some) < len(whole)
    assert all(any(alike(one, other) for other in whole) for one in some)


def test_actors_are_told_apart() -> None:
    one, other = made("CartPole-v1", 20), made("CartPole-v1", 20, index=1, seed=6)
    turns = [rollout for pair in zip(one, other, strict=True) for rollout in pair]
    found, expected = list(episodes(turns)), [*episodes(one), *episodes(other)]
    assert len(found) == len(expected) > 4
    assert all(any(alike(each, wanted) for each in found) for wanted in expected)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("count", [5, 6])
def test_an_evaluation_gives_the_episodes_that_it_counts(name: str, count: int) -> None:
    env = world(name)
    evaluation = Evaluation(env, Counting(env.spec), policy(0), count, seed=5, stochastic=True)
    evaluation.rng = np.random.default_rng(5)
    found = list(whole_episodes(evaluation))
    assert sorted(total(each) for each in found) == pytest.approx(sorted(evaluation.finished), abs=1e-4)
    entries = played(name, 2000)
    expected = [told(entries, slot)[turn] for turn in range(2) for slot in range(SLOTS)][:count]
    assert len(found) == count
    assert all(any(alike(each, wanted) for each in found) for wanted in expected)


def total(episode: Episode) -> float:
    return float(episode.rewards.sum(dtype=np.float64))
