"""From raw observations to inputs: what the learner rebuilds is what the actor saw."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.agents.features import Features
from millstream.core.spec import Box, Discrete, EnvSpec, MultiDiscrete
from tests.agents.rollouts import SPECS, agent_for, observe, play


class Watched:
    """Features that keep what they gave to the network, step by step."""

    def __init__(self, features):
        self.features, self.seen = features, []

    def observe(self, *arguments):
        inputs, carry = self.features.observe(*arguments)
        self.seen.append({name: array.copy() for name, array in inputs.items()})
        return inputs, carry

    def __getattr__(self, name):
        return getattr(self.features, name)


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("name", ["stacked", "image", "dictionary", "discrete"])
def test_the_learner_rebuilds_the_stacks_that_the_actor_saw(name, next_step):
    agent = agent_for("ppo", name, "torch")
    hyper = agent.Hyper()
    agent.features = Watched(agent.features)
    rollout = play(agent, agent.policy(agent.init(0), hyper), steps=9, warm=3, next_step=next_step)
    assert rollout.first[1:].any()
    assert not rollout.first[0].any()
    rebuilt = agent.features.inputs(agent.features.unroll(rollout), {})
    for t, seen in enumerate(agent.features.seen[-rollout.steps :]):
        assert set(seen) == set(rebuilt)
        for key, array in seen.items():
            assert np.array_equal(rebuilt[key][t], array), (key, t)


def test_the_first_frame_of_an_episode_fills_its_stack():
    features = Features(SPECS["stacked"])
    carry = {"frames/obs": np.full((2, 2, 3), 9, np.float32)}
    now = np.array([[1, 1, 1], [2, 2, 2]], np.float32)
    inputs, carry = features.observe({"obs": now}, carry, np.array([True, False]), {})
    assert inputs["vector"][0].tolist() == [1] * 9
    assert inputs["vector"][1].tolist() == [9] * 6 + [2] * 3
    assert carry["frames/obs"][0].tolist() == [[1] * 3] * 2
    assert carry["frames/obs"][1].tolist() == [[9] * 3, [2] * 3]


def test_a_final_frame_comes_after_the_frames_of_its_own_episode():
    agent = agent_for("ppo", "stacked")
    rollout = play(agent, agent.policy(agent.init(0), agent.Hyper()), steps=12, warm=3)
    stacked = agent.features.unroll(rollout)
    finals = agent.features.finals(rollout, stacked)["obs"]
    assert len(finals) > 2
    for (t, b), stack, last in zip(rollout.final_at, finals, rollout.finals["obs"], strict=True):
        assert np.array_equal(stack[-1], last)
        assert np.array_equal(stack[-2], rollout.observations["obs"][t, b])
        assert np.array_equal(stack[:-1], stacked["obs"][t, b, 1:])


def test_choices_become_one_hot_and_names_stand_in_order():
    spec = SPECS["dictionary"]
    features = Features(spec)
    raw = {"where": np.array([[[1, 2], [3, 4]]], np.float32), "what": np.array([2]), "which": np.array([[1, 0]])}
    vector = features.inputs(raw, {})["vector"]
    assert vector.tolist() == [[1, 2, 3, 4, 0, 0, 1, 0, 1, 1, 0, 0]]
    assert vector.dtype == np.float32
    assert vector.shape[-1] == features.width


@pytest.mark.parametrize("lead", [(5,), (4, 5)])
@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize(
    "space",
    [
        Box((3,)),
        Box(()),
        Box((2, 2), "float64"),
        Box((3,), "uint8"),
        Box((4, 4, 2), "uint8"),
        Discrete(3),
        MultiDiscrete((2, 3)),
    ],
)
def test_the_width_is_what_comes_out_whatever_the_space(space, stack, lead):
    spec = EnvSpec("x", {"obs": space}, Discrete(2), stack=stack)
    raw = observe(spec, int(np.prod(lead)) * stack, np.random.default_rng(0))["obs"]
    raw = raw.reshape(*lead, *((stack,) if stack > 1 else ()), *space.shape)
    vector = Features(spec).inputs({"obs": raw}, {})["vector"]
    assert vector.shape == (*lead, Features(spec).width)
    assert vector.dtype == np.float32


def test_stacked_choices_are_one_hot_frame_by_frame():
    spec = EnvSpec("x", {"obs": MultiDiscrete((2, 3))}, Discrete(2), stack=2)
    vector = Features(spec).inputs({"obs": np.array([[[0, 2], [1, 0]]])}, {})["vector"]
    assert vector.tolist() == [[1, 0, 0, 0, 1, 0, 1, 1, 0, 0]]


def test_images_stay_whole_for_convolutions_and_are_scaled_numbers_otherwise():
    spec = EnvSpec("x", {"obs": Box((4, 4), "uint8")}, Discrete(2))
    raw = np.full((2, 4, 4), 255, np.uint8)
    assert Features(spec, images=True).inputs({"obs": raw}, {})["image/obs"] is raw
    assert np.allclose(Features(spec).inputs({"obs": raw}, {})["vector"], 1)
    assert Features(spec, images=True).width == 0


def test_numbers_are_normalised_and_outliers_cut():
    features = Features(EnvSpec("x", {"obs": Box((2,))}, Discrete(2)))
    statistics = {"mean/obs": np.array([1, -1], np.float32), "scale/obs": np.array([2, 0.5], np.float32)}
    vector = features.inputs({"obs": np.array([[2, 3], [99, -1]], np.float32)}, statistics)["vector"]
    assert vector.tolist() == [[2, 2], [10, 0]]
    assert vector.dtype == np.float32


def test_every_frame_of_a_stack_is_normalised_alike():
    features = Features(SPECS["stacked"])
    statistics = {"mean/obs": np.arange(3, dtype=np.float32), "scale/obs": np.full(3, 2, np.float32)}
    raw = np.tile(np.arange(3, dtype=np.float32), (1, 3, 1)) + np.array([[[0.0], [1.0], [2.0]]], np.float32)
    assert features.inputs({"obs": raw}, statistics)["vector"].tolist() == [[0, 0, 0, 2, 2, 2, 4, 4, 4]]


def test_only_numbers_are_normalised():
    assert Features(SPECS["dictionary"]).normal == ["where"]
    assert Features(SPECS["image"], images=True).normal == ["speed"]
    assert Features(SPECS["image"]).normal == ["speed"]


def test_an_empty_carry_has_the_shape_of_the_frames_before():
    carry = Features(SPECS["image"], images=True).carry(3)
    assert {name: (array.shape, array.dtype) for name, array in carry.items()} == {
        "frames/board": ((3, 1, 5, 4, 2), np.uint8),
        "frames/speed": ((3, 1, 2), np.float32),
    }
    assert Features(SPECS["discrete"]).carry(3) == {}
