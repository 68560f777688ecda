"""What every environment promises, whoever wrote it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
import pytest

from millstream.core.ports import Env, Snapshots
from millstream.core.spec import SINGLE, EnvSpec
from millstream.envs.cartpole import CartPole
from millstream.envs.gymnasium import Gymnasium
from millstream.envs.promises import actions_for
from millstream.envs.registry import make
from millstream.envs.snake import Snake
from millstream.testing import DictEnv, EndlessEnv, HiddenVelocityCartPole, ImageGrid, MaskedEnv

SLOTS = 4


def _sync(mode: str) -> Env:
    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    makers = [lambda: gymnasium.make("CartPole-v1")] * SLOTS
    return Gymnasium(SyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode)), "CartPole-v1")


def _native_vector() -> Env:
    import gymnasium

    return Gymnasium(gymnasium.make_vec("CartPole-v1", SLOTS, vectorization_mode="vector_entry_point"), "CartPole-v1")


def _envpool() -> Env:
    if not find_spec("envpool") and os.environ.get("CI") != "true":
        pytest.skip("envpool is not installed")
    return make("envpool:CartPole-v1", SLOTS)


ENVS: dict[str, Callable[[], Env]] = {
    "cartpole": lambda: CartPole(SLOTS),
    "hidden cartpole": lambda: HiddenVelocityCartPole(SLOTS),
    "snake": lambda: Snake(SLOTS, size=7, vision=2),
    "snakes on one board": lambda: Snake(SLOTS, size=8, vision=2, snakes=2),
    "snake images": lambda: Snake(SLOTS, size=7, vision=2, view="image"),
    "gymnasium same step": lambda: make("CartPole-v1", SLOTS, vector="sync"),
    "gymnasium next step": lambda: _sync("NextStep"),
    "gymnasium disabled": lambda: _sync("Disabled"),
    "gymnasium own vector": _native_vector,
    "gymnasium processes": lambda: make("CartPole-v1", SLOTS, vector="process"),
    "gymnasium tuple": lambda: make("Blackjack-v1", SLOTS),
    "envpool": _envpool,
    "dictionary": lambda: DictEnv(SLOTS),
    "masked": lambda: MaskedEnv(SLOTS),
    "images": lambda: ImageGrid(SLOTS, size=4),
    "endless same step": lambda: Gymnasium(EndlessEnv(SLOTS, "SameStep"), "Endless"),
    "endless next step": lambda: Gymnasium(EndlessEnv(SLOTS, "NextStep"), "Endless"),
    "endless disabled": lambda: Gymnasium(EndlessEnv(SLOTS, "Disabled"), "Endless"),
}
CARTPOLES = [
    "cartpole",
    "gymnasium same step",
    "gymnasium next step",
    "gymnasium disabled",
    "gymnasium own vector",
    "gymnasium processes",
    "envpool",
]
KEEPERS = ["cartpole", "hidden cartpole", "snake", "snakes on one board", "snake images"]
"""Those that can be set back to where they were."""


@pytest.fixture(params=ENVS)
def env(request: pytest.FixtureRequest) -> Iterator[Env]:
    made = ENVS[request.param]()
    yield made
    made.close()


@pytest.fixture(params=CARTPOLES)
def cartpole(request: pytest.FixtureRequest) -> Iterator[Env]:
    made = ENVS[request.param]()
    yield made
    made.close()


def walk(env: Env, steps: int, seed: int = 5):
    """Copies of what random legal actions give."""
    rng = np.random.default_rng(seed)
    step = env.reset(seed)
    for _ in range(steps):
        step = env.step(actions_for(env.spec.action, env.slots, rng, step.masks))
        yield step


def trace(env: Env, steps: int, seed: int) -> list[bytes]:
    arrays = ([*step.observations.values(), step.rewards, step.first] for step in walk(env, steps, seed))
    return [b"".join(array.tobytes() for array in step) for step in arrays]


def assert_matches(spec: EnvSpec, arrays, count: int) -> None:
    assert list(arrays) == list(spec.observations)
    for name, space in spec.observations.items():
        assert arrays[name].shape == (count, *space.shape)
        assert arrays[name].dtype == space.dtype


def test_reset_opens_an_episode_in_every_slot(env: Env) -> None:
    step = env.reset(0)
    assert step.first.all()
    assert_matches(env.spec, step.observations, env.slots)


def test_a_step_is_what_the_spec_says(env: Env) -> None:
    for step in walk(env, 40):
        assert_matches(env.spec, step.observations, env.slots)
        assert_matches(env.spec, step.finals, len(step.ended))
        assert step.rewards.dtype == np.float32
        for flags in (step.terminated, step.truncated, step.valid, step.first):
            assert flags.shape == (env.slots,)
            assert flags.dtype == bool
        assert (step.masks is not None) == env.spec.masked


def test_ended_names_exactly_the_slots_that_terminated_or_were_truncated(env: Env) -> None:
    ends = 0
    for step in walk(env, 60):
        assert step.ended.tolist() == (step.terminated | step.truncated).nonzero()[0].tolist()
        ends += len(step.ended)
    assert ends > 0


def test_an_episode_opens_once_after_each_end_and_nowhere_else(env: Env) -> None:
    waiting = np.zeros(env.slots, bool)
    for step in walk(env, 60):
        done = step.terminated | step.truncated
        assert (step.first <= (waiting | done)).all()
        assert (waiting <= step.first).all()  # at the latest one step after the end
        waiting = done & ~step.first


def test_a_step_is_invalid_only_where_it_opened_an_episode_and_then_pays_nothing(env: Env) -> None:
    for step in walk(env, 60):
        assert (~step.valid <= step.first).all()
        assert not step.rewards[~step.valid].any()
        assert not (step.terminated | step.truncated)[~step.valid].any()


def test_the_same_seed_and_actions_give_the_same_steps(env: Env) -> None:
    assert trace(env, 40, seed=3) == trace(env, 40, seed=3)


def test_another_seed_gives_other_steps(env: Env) -> None:
    if env.spec.id == "Endless":
        return  # nothing is left to chance in it
    assert trace(env, 40, seed=3) != trace(env, 40, seed=4)


def test_a_spec_survives_json(env: Env) -> None:
    assert EnvSpec.from_json(json.loads(json.dumps(env.spec.to_json()))) == env.spec


@pytest.mark.parametrize("name", KEEPERS)
def test_a_snapshot_continues_exactly_where_it_was_taken(name: str) -> None:
    env = ENVS[name]()
    assert isinstance(env, Snapshots)
    for _ in walk(env, 25):
        pass
    kept = env.snapshot()
    rng = np.random.default_rng(1)
    actions = [actions_for(env.spec.action, env.slots, rng) for _ in range(60)]
    there = [
        (env.step(chosen).observations[SINGLE].tobytes(), env.step(chosen).rewards.tobytes()) for chosen in actions
    ]
    env.reset(99)
    env.restore(kept)
    again = [
        (env.step(chosen).observations[SINGLE].tobytes(), env.step(chosen).rewards.tobytes()) for chosen in actions
    ]
    assert there == again


def test_finals_are_where_cartpole_fell_not_where_it_starts_again(cartpole: Env) -> None:
    fallen = 0
    for step in walk(cartpole, 80):
        for final in step.finals[SINGLE]:
            assert abs(final[0]) > 2.4 or abs(final[2]) > 0.2094
            fallen += 1
        assert (np.abs(step.observations[SINGLE][step.first]) <= 0.05).all()
    assert fallen > 3


def test_valid_steps_and_rewards_agree_in_cartpole(cartpole: Env) -> None:
    returns, lengths = np.zeros(cartpole.slots), np.zeros(cartpole.slots)
    for step in walk(cartpole, 60):
        returns += step.rewards
        lengths += step.valid
        assert np.array_equal(returns, lengths)


@pytest.mark.parametrize("mode", ["same step", "next step", "disabled"])
def test_a_truncated_episode_shows_its_last_observation_and_has_ten_valid_steps(mode: str) -> None:
    env = ENVS[f"endless {mode}"]()
    lengths: list[int] = []
    length = np.arange(SLOTS) % 10  # a seeded reset opens slot i at that age
    for step in walk(env, 50):
        length = length + step.valid
        assert not step.terminated.any()
        assert step.truncated[step.ended].all()
        assert (step.finals[SINGLE] == 1.0).all()
        lengths += length[step.ended].tolist()
        length[step.ended] = 0
    assert lengths
    assert set(lengths) == {10}
