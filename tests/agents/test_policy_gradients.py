"""A2C and REINFORCE: the closed form of their gradient against autograd, and returns that are whole or not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents.a2c import A2CHyper
from millstream.agents.reinforce import ReinforceHyper
from millstream.core import tree
from tests.agents.rollouts import agent_for, disturbed, pick, play
from tests.agents.written_out import policy_gradient

ACTIONS = ["discrete", "masked", "multi", "multi-masked", "continuous"]
HYPERS = {
    "a2c": A2CHyper(entropy=0.03, value_weight=0.7),
    "reinforce": ReinforceHyper(entropy=0.03, value_weight=0.7),
    "reinforce with a baseline": ReinforceHyper(entropy=0.03, value_weight=0.7, baseline=True),
}


@pytest.fixture(params=HYPERS)
def hyper(request):
    return HYPERS[request.param]


def agent_of(hyper, spec="discrete", kind="mlp"):
    return agent_for("a2c" if isinstance(hyper, A2CHyper) else "reinforce", spec, kind)


def prepared(agent, hyper, rollouts=2):
    """A batch, and a state that has moved on since."""
    state = disturbed(agent.init(0))
    params = agent.policy(state, hyper)
    played = [play(agent, params, steps=8, slots=4, seed=n, next_step=True) for n in range(rollouts)]
    state, batch = agent.prepare(state, played, hyper)
    return disturbed(state, 1, 0.15), batch, played


@pytest.mark.parametrize("spec", ACTIONS)
@pytest.mark.parametrize("kind", ["mlp", "torch", "lstm"])
def test_the_gradient_equals_autograd_of_the_written_out_loss(hyper, kind, spec):
    agent = agent_of(hyper, spec, kind)
    state, batch, _ = prepared(agent, hyper)
    rows = np.random.default_rng(0).permutation(len(batch["actions"]))
    minibatch = pick(batch, rows[: len(rows) * 3 // 4])
    found, lesson = agent.gradients(state, minibatch, hyper)
    critic = getattr(hyper, "baseline", True)
    expected = policy_gradient(agent, state, minibatch, hyper, hyper.value_weight if critic else 0.0)
    assert np.allclose(found, expected, atol=2e-5)
    assert np.abs(expected).max() > 1e-3
    assert ("value_loss" in lesson) == critic


@pytest.mark.parametrize("spec", ["image", "dictionary", "stacked"])
def test_the_gradient_is_right_for_every_kind_of_observation(hyper, spec):
    agent = agent_of(hyper, spec, "torch" if spec == "image" else "mlp")
    state, batch, _ = prepared(agent, hyper)
    found, _ = agent.gradients(state, batch, hyper)
    weight = hyper.value_weight if getattr(hyper, "baseline", True) else 0.0
    # two ways to convolve are both as far as this from double precision, where tanh is nearly flat
    assert np.allclose(
        found, policy_gradient(agent, state, batch, hyper, weight), atol=3e-4 if spec == "image" else 2e-5
    )


def test_an_update_is_one_gradient_of_all_its_steps(hyper):
    assert (hyper.epochs, hyper.minibatch > 1_000_000_000) == (1, True)
    assert not {"epochs", "minibatch"} & set(vars(hyper))


def returns_of(rollout, hyper):
    """The return of each step that counts, by walking on to the end or the cut of its episode."""
    known = {}
    for t in range(rollout.steps):
        for b in range(rollout.slots):
            total, later = 0.0, t - 1
            while later < rollout.steps - 1:
                later += 1
                total += hyper.discount ** (later - t) * rollout.rewards[later, b]
                if rollout.terminated[later, b] or rollout.truncated[later, b]:
                    break
            beyond = 0.0 if rollout.terminated[later, b] else hyper.discount ** (later - t + 1)
            if rollout.valid[t, b] and beyond <= hyper.unseen:
                known[b, t] = total
    return known


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("unseen", [0.0, 0.4])
def test_without_a_baseline_only_steps_with_nearly_all_of_their_return_are_learnt_from(kind, next_step, unseen):
    hyper = ReinforceHyper(discount=0.8, normalise_advantages=False, unseen=unseen)
    agent = agent_of(hyper, kind=kind)
    state = agent.init(0)
    rollout = play(agent, agent.policy(state, hyper), steps=12, slots=5, ends=0.15, next_step=next_step)
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    expected = returns_of(rollout, hyper)
    _, batch = agent.prepare(state, [rollout], hyper)
    assert {(b, t) for b, t in zip(*np.nonzero(np.asarray(batch["valid"])), strict=True)} == set(expected)
    assert 0 < len(expected) < rollout.count
    for at, total in expected.items():
        assert float(batch["advantages"][at]) == pytest.approx(total, abs=1e-5)
    assert agent.digest(batch)["known"] == pytest.approx(len(expected) / rollout.rewards.size)


def test_what_a_cut_episode_was_given_changes_nothing_that_is_learnt():
    hyper = ReinforceHyper(discount=0.9, unseen=0.0)
    agent = agent_of(hyper)
    state = disturbed(agent.init(0))
    rollout = play(agent, agent.policy(state, hyper), steps=12, slots=5, ends=0.15)
    unknown = ~np.logical_or.accumulate((rollout.terminated | rollout.truncated)[::-1])[::-1]
    assert unknown.any()
    other = replace(rollout, rewards=np.where(unknown, 1e3, rollout.rewards).astype(np.float32))
    one, two = (agent.gradients(state, agent.prepare(state, [each], hyper)[1], hyper)[0] for each in (rollout, other))
    assert np.array_equal(one, two)


def test_a_batch_in_which_no_episode_ends_moves_nothing():
    hyper = HYPERS["reinforce"]
    agent = agent_of(hyper)
    state, batch, _ = prepared(agent, hyper)
    state = agent.apply(state, agent.gradients(state, batch, hyper)[0], hyper)  # Adam has moments by now
    before = {path: array.copy() for path, array in tree.flatten(state)[0].items()}
    endless = play(agent, agent.policy(state, hyper), ends=0.0)
    state, batch = agent.prepare(state, [endless], hyper)
    gradients, lesson = agent.gradients(state, batch, hyper)
    state = agent.apply(state, gradients, hyper)
    after = tree.flatten(state)[0]
    assert all(np.array_equal(after[path], array) for path, array in before.items())
    assert agent.digest(batch) == {"known": 0.0}
    assert all(np.isfinite(number) for number in lesson.values())


def test_a_baseline_stands_for_what_was_not_seen_and_every_step_counts():
    hyper = ReinforceHyper(discount=0.9, normalise_advantages=False, baseline=True)
    agent, critic = agent_of(hyper), agent_for("a2c")
    state = disturbed(agent.init(0))
    rollout = play(agent, agent.policy(state, hyper), steps=12, slots=5, ends=0.15)
    _, batch = agent.prepare(state, [rollout], hyper)
    _, same = critic.prepare(state, [rollout], A2CHyper(discount=0.9, trace=1.0))
    assert batch["valid"].all()
    for name in ("advantages", "returns"):
        assert np.allclose(np.swapaxes(batch[name], 0, 1).reshape(-1), same[name])


def test_returns_are_normalised_over_those_that_are_known():
    agent = agent_of(HYPERS["reinforce"])
    _, batch, _ = prepared(agent, HYPERS["reinforce"])
    known = batch["advantages"][batch["valid"]]
    assert known.mean() == pytest.approx(0, abs=1e-5)
    assert known.std() == pytest.approx(1, abs=1e-4)


def test_both_wait_for_the_newest_policy():
    for algorithm in ("a2c", "reinforce"):
        agent = agent_for(algorithm)
        assert (agent.window, agent.max_lag) == (1, 0)
