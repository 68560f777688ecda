"""DQN against its loss as papers print it, and its returns against a loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents.dqn import DQNHyper
from millstream.core.errors import ConfigError, Diverged
from millstream.replay.cut import n_step
from millstream.replay.table import Table
from tests.agents.rollouts import SPECS, agent_for, disturbed, play

torch = pytest.importorskip("torch")

from tests.agents.written_out import outputs_of, slow_projection, tensors  # noqa: E402

HYPER = DQNHyper(minibatch=16, discount=0.9)


def picked(agent, params, hyper, size=32, seed=0, **how):
    """Windows as a table gives them."""
    table = Table(n_step(hyper.n_step), capacity=1_000, rng=np.random.default_rng(seed))
    for sequence in range(4):
        made = play(agent, params, steps=8, seed=seed + sequence, **how)
        table.insert(replace(made, stamp=replace(made.stamp, sequence=sequence)))
    return table.sample(size).rollouts


@pytest.mark.parametrize("kind", ["mlp", "torch"])
@pytest.mark.parametrize("spec", ["discrete", "masked", "stacked", "dictionary"])
@pytest.mark.parametrize("shape", [{}, {"double": False}, {"dueling": True}, {"n_step": 3}])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_the_written_out_loss(kind, spec, shape, weighted):
    hyper, agent = replace(HYPER, **shape), agent_for("dqn", spec, kind)
    state, other = agent.init(1), agent.init(2)
    state.target[...] = other.weights
    state, batch = agent.prepare(state, picked(agent, agent.policy(state, hyper), hyper), hyper)
    if weighted:
        batch = {**batch, "importance": np.random.default_rng(0).random(32, np.float32)}
        batch["importance"] = agent.network.place(batch["importance"])
    found, lesson = agent.gradients(state, batch, hyper)
    rows = tensors(batch)
    flat = torch.as_tensor(np.asarray(state.weights)).clone().requires_grad_()

    def q(weights, prefix):
        inputs = {f"in/{name[len(prefix) :]}": array for name, array in rows.items() if name.startswith(prefix)}
        outputs = outputs_of(agent, weights, inputs, False)
        policy = outputs["policy"]
        return policy - policy.mean(1, keepdim=True) + outputs["value"][:, None] if hyper.dueling else policy

    with torch.no_grad():
        target = q(torch.as_tensor(np.asarray(state.target)), "next/")
        judge = q(flat, "next/") if hyper.double else target
        if "mask" in rows:
            judge = judge.masked_fill(~rows["mask"], -torch.inf)
        goal = rows["returns"] + rows["discounts"] * target.gather(1, judge.argmax(1, keepdim=True))[:, 0]
    chosen = q(flat, "in/").gather(1, rows["actions"][:, None])[:, 0]
    losses = torch.nn.functional.smooth_l1_loss(chosen, goal, reduction="none")
    ((losses * rows["importance"]) if weighted else losses).mean().backward()
    np.testing.assert_allclose(np.asarray(found), flat.grad.numpy(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(lesson["loss"], float(losses.detach().mean()), rtol=1e-4)
    np.testing.assert_allclose(
        agent.priorities(state, batch, hyper), (chosen - goal).detach().abs().numpy() + 1e-6, rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["mlp", "torch"])
@pytest.mark.parametrize("spec", ["discrete", "masked", "stacked"])
@pytest.mark.parametrize("shape", [{}, {"double": False}, {"dueling": True}, {"dueling": True, "n_step": 3}])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_distributions_are_those_of_the_written_out_cross_entropy(kind, spec, shape, weighted):
    chosen = {"atoms": 11, "v_min": -3.0, "v_max": 2.0, **shape}
    hyper = replace(HYPER, **chosen)
    agent = agent_for("dqn", spec, kind, hyper=chosen)
    state, other = disturbed(agent.init(1)), disturbed(agent.init(2), 1)
    state.target[...] = other.weights
    state, batch = agent.prepare(state, picked(agent, agent.policy(state, hyper), hyper), hyper)
    if weighted:
        importance = np.random.default_rng(0).random(32, np.float32)
        batch = {**batch, "importance": agent.network.place(importance)}
    found, lesson = agent.gradients(state, batch, hyper)
    rows, support = tensors(batch), torch.linspace(-3, 2, 11)
    flat = torch.as_tensor(np.asarray(state.weights)).clone().requires_grad_()

    def logits(weights, prefix):
        inputs = {f"in/{name[len(prefix) :]}": array for name, array in rows.items() if name.startswith(prefix)}
        said = outputs_of(agent, weights, inputs, False)["policy"].reshape(32, -1, 11)
        if not hyper.dueling:
            return said
        state_, advantages = said[:, 4:], said[:, :4]
        return state_ + advantages - advantages.mean(1, keepdim=True)

    with torch.no_grad():
        target = logits(torch.as_tensor(np.asarray(state.target)), "next/")
        judge = (logits(flat, "next/") if hyper.double else target).softmax(-1) @ support
        if "mask" in rows:
            judge = judge.masked_fill(~rows["mask"], -torch.inf)
        following = target.softmax(-1)[torch.arange(32), judge.argmax(1)].numpy()
        goal = slow_projection(following, rows["returns"].numpy(), rows["discounts"].numpy(), -3.0, 2.0)
        goal = torch.as_tensor(goal.astype(np.float32))
    log_p = logits(flat, "in/")[torch.arange(32), rows["actions"]].log_softmax(-1)
    losses = -(goal * log_p).sum(-1)
    ((losses * rows["importance"]) if weighted else losses).mean().backward()
    np.testing.assert_allclose(np.asarray(found), flat.grad.numpy(), rtol=1e-3, atol=2e-6)
    np.testing.assert_allclose(lesson["loss"], float(losses.detach().mean()), rtol=1e-4)
    worth = (log_p.detach().exp() @ support).mean()
    np.testing.assert_allclose(lesson["q_values"], float(worth), rtol=1e-3, atol=1e-5)
    surprise = torch.nn.functional.kl_div(log_p.detach(), goal, reduction="none").sum(-1)
    np.testing.assert_allclose(agent.priorities(state, batch, hyper), surprise.numpy() + 1e-6, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dueling", [False, True])
def test_an_actor_chooses_by_the_means_of_distributions(dueling):
    chosen = {"atoms": 7, "v_min": -1.0, "v_max": 4.0, "dueling": dueling}
    agent, hyper = agent_for("dqn", "masked", hyper=chosen), replace(HYPER, **chosen)
    state, rng = disturbed(agent.init(0), size=1.0), np.random.default_rng(0)
    seen, mask = {"obs": rng.normal(size=(50, 3)).astype(np.float32)}, rng.random((50, 4)) < 0.7
    mask[:, 2] = True
    acted, _ = agent.act(agent.policy(state, hyper), seen, {}, np.zeros(50, bool), mask, None)
    said = torch.as_tensor(agent.network.act(state.weights, {"vector": seen["obs"]}, {}, None)[0]["policy"].copy())
    said = said.reshape(50, -1, 7)
    logits = said[:, 4:] + said[:, :4] - said[:, :4].mean(1, keepdim=True) if dueling else said
    means = (logits.softmax(-1) @ torch.linspace(-1, 4, 7)).numpy()
    assert np.array_equal(acted.actions, np.where(mask, means, -np.inf).argmax(1))
    assert len(set(acted.actions.tolist())) > 1


def test_bounds_of_returns_that_are_no_bounds_are_refused():
    with pytest.raises(ConfigError, match=r"v_min should be below hyper.v_max, got 3 and 1"):
        DQNHyper(atoms=51, v_min=3.0, v_max=1.0)


def test_returns_sum_the_steps_that_count_and_endings_are_two_facts():
    agent, hyper = agent_for("dqn"), replace(HYPER, n_step=3)
    rollouts = picked(agent, agent.policy(agent.init(0), hyper), hyper, size=200, ends=0.3)
    (rollout,) = rollouts
    _, batch = agent.prepare(agent.init(0), rollouts, hyper)
    kinds = set()
    for slot in range(200):
        total, steps = 0.0, 0
        while steps < 3 and rollout.valid[steps, slot]:
            total += 0.9**steps * rollout.rewards[steps, slot]
            steps += 1
        over = rollout.terminated[steps - 1, slot]
        kinds.add((steps, bool(over), bool(rollout.truncated[steps - 1, slot])))
        assert batch["returns"][slot] == pytest.approx(total, rel=1e-5, abs=1e-6)
        assert batch["discounts"][slot] == pytest.approx(0.0 if over else 0.9**steps, rel=1e-5)
    assert {(1, True, False), (1, False, True), (3, False, False)} <= kinds


def test_epsilon_says_how_often_an_action_is_any_legal_one():
    agent = agent_for("dqn", "masked")
    slots, rng = 4_000, np.random.default_rng(0)
    seen = {"obs": np.tile(rng.normal(size=(1, 3)).astype(np.float32), (slots, 1))}
    mask = np.tile([True, False, True, True], (slots, 1))
    params = agent.policy(agent.init(0), replace(HYPER, epsilon=0.3))
    first = np.zeros(slots, bool)
    best = agent.act(params, seen, {}, first, mask, None)[0].actions
    assert len(set(best.tolist())) == 1 and mask[0, best[0]]
    shares = np.bincount(agent.act(params, seen, {}, first, mask, rng)[0].actions, minlength=4) / slots
    assert shares[1] == 0 and shares[best[0]] == pytest.approx(0.8, abs=0.03)
    others = [action for action in (0, 2, 3) if action != best[0]]
    np.testing.assert_allclose(shares[others], 0.1, atol=0.03)


def test_epsilon_and_step_size_fall_in_straight_lines():
    hyper = DQNHyper(learning_rate=1e-3, learning_rate_end=0.0, epsilon=1.0, epsilon_end=0.1, exploration=0.5)
    assert [round(hyper.at(done).epsilon, 6) for done in (0, 0.25, 0.5, 1, 2)] == [1.0, 0.55, 0.1, 0.1, 0.1]
    assert hyper.at(0.5).learning_rate == pytest.approx(5e-4)
    assert DQNHyper().at(1.0).learning_rate == DQNHyper().learning_rate


@pytest.mark.parametrize(("every", "rate"), [(3, 1.0), (1, 0.1)])
def test_the_target_network_follows(every, rate):
    agent, hyper = agent_for("dqn"), replace(HYPER, target_every=every, target_rate=rate)
    state = agent.init(0)
    target, rng = state.target.copy(), np.random.default_rng(0)
    assert target is not state.weights
    for step in range(1, 8):
        state = agent.apply(state, rng.normal(size=state.weights.shape).astype(np.float32), hyper)
        if step % every == 0:
            target += rate * (state.weights - target)
        np.testing.assert_allclose(state.target, target, rtol=1e-5, atol=1e-7)


def test_what_it_cannot_do_it_says():
    with pytest.raises(ConfigError, match=r"one of several actions.*--algo"):
        agent_for("dqn", "continuous")
    with pytest.raises(ConfigError, match="memory"):
        agent_for("dqn", "discrete", "lstm")
    agent = agent_for("dqn")
    with pytest.raises(Diverged, match="smaller learning_rate"):
        agent.apply(agent.init(0), np.full(agent.network.size, np.nan, np.float32), HYPER)


def test_specs_of_the_zoo_are_read(spec="image"):
    agent, hyper = agent_for("dqn", SPECS[spec], "torch"), replace(HYPER, n_step=2)
    state = agent.init(0)
    state, batch = agent.prepare(state, picked(agent, agent.policy(state, hyper), hyper), hyper)
    gradients, _ = agent.gradients(state, batch, hyper)
    assert torch.isfinite(gradients).all() and float(gradients.abs().max()) > 0
