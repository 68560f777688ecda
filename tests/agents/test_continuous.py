"""SAC and TD3 against their losses as papers print them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millstream.agents.registry import make
from millstream.agents.sac import SACHyper
from millstream.agents.td3 import TD3Hyper
from millstream.core.errors import ConfigError, Diverged
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.replay.cut import n_step
from millstream.replay.table import Table
from tests.agents.rollouts import play
from tests.agents.written_out import mlp_outputs, tensors

torch = pytest.importorskip("torch")
SPEC = EnvSpec("arm", {"obs": Box((3,))}, Box((2,), low=(-1.0, 0.0), high=(3.0, 0.5)))
WEIGHTS = ("player", "judge", "target_player", "target_judge")
EVERY_TIME = {"sac": {}, "td3": {"delay": 1}}
HYPERS = {"sac": SACHyper(discount=0.9, n_step=2), "td3": TD3Hyper(discount=0.9, n_step=2)}


KINDS = ("mlp", "torch")


@pytest.fixture(params=HYPERS)
def algorithm(request):
    return request.param


def agent_for(algorithm, spec=SPEC, kind="mlp", activation="relu"):
    return make(algorithm, spec, {"kind": kind, "hidden": (8, 7), "activation": activation})


def tensor(array):
    return array.clone() if isinstance(array, torch.Tensor) else torch.as_tensor(array.copy())


def prepared(agent, hyper, seed=0, rows=24):
    """A state whose targets are not what they follow, and a batch."""
    state, other = agent.init(seed), agent.init(seed + 1)
    state.target_judge, state.target_player = other.judge, other.player
    table = Table(n_step(hyper.n_step), capacity=500, rng=np.random.default_rng(seed))
    params = agent.policy(state, hyper)
    for sequence in range(4):
        made = play(agent, params, steps=8, seed=seed + sequence)
        table.insert(replace(made, stamp=replace(made.stamp, sequence=sequence)))
    return agent.prepare(state, table.sample(rows).rollouts, hyper)


def normal(outputs):
    mean, log_std = outputs.chunk(2, -1)
    squash = torch.distributions.TanhTransform(cache_size=1)
    base = torch.distributions.Normal(mean, log_std.exp())
    return torch.distributions.TransformedDistribution(base, [squash]), mean, log_std.exp()


def critics(agent, flat, x, actions):
    outputs = mlp_outputs(agent.network.judge, flat, torch.cat([x, actions], -1))
    return outputs["policy"][:, 0], outputs["value"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_the_written_out_losses(algorithm, kind, activation, weighted):
    agent, hyper = (
        agent_for(algorithm, kind=kind, activation=activation),
        replace(HYPERS[algorithm], **EVERY_TIME[algorithm]),
    )
    state, batch = prepared(agent, hyper)
    importance = torch.rand(24, generator=torch.Generator().manual_seed(0)) if weighted else torch.ones(24)
    if weighted:
        batch = {**batch, "importance": agent.network.place(importance.numpy())}
    found, lesson = agent.gradients(state, batch, hyper)
    rows, network = tensors(batch), agent.network
    x, after = rows["in/vector"], rows["next/vector"]
    state = replace(state, **{name: tensor(getattr(state, name)) for name in WEIGHTS})
    player, judge = state.player.clone().requires_grad_(), state.judge.clone().requires_grad_()
    if algorithm == "sac":
        with torch.no_grad():
            law, mean, std = normal(mlp_outputs(network.player, state.player, after)["policy"])
            actions = torch.tanh(mean + std * rows["next_noise"])
            worth = torch.minimum(*critics(agent, state.target_judge, after, actions))
            goal = rows["returns"] + rows["discounts"] * (worth - law.log_prob(actions).sum(-1))
        factor = 0.5
    else:
        with torch.no_grad():
            actions = torch.tanh(mlp_outputs(network.player, state.target_player, after)["policy"])
            actions = (actions + (rows["next_noise"] * 0.2).clamp(-0.5, 0.5)).clamp(-1, 1)
            worth = torch.minimum(*critics(agent, state.target_judge, after, actions))
            goal = rows["returns"] + rows["discounts"] * worth
        factor = 1.0
    one, other = critics(agent, judge, x, rows["actions"])
    critic_loss = (factor * ((one - goal) ** 2 + (other - goal) ** 2) * importance).mean()
    critic_loss.backward()
    if algorithm == "sac":
        law, mean, std = normal(mlp_outputs(network.player, player, x)["policy"])
        actions = torch.tanh(mean + std * rows["noise"])
        log_prob = law.log_prob(actions).sum(-1)
        policy_loss = (log_prob - torch.minimum(*critics(agent, state.judge, x, actions))).mean()
        assert float(found[-1]) == pytest.approx(float(-log_prob.detach().mean() + 2), rel=1e-3)
        assert lesson["entropy"] == pytest.approx(float(-log_prob.detach().mean()), rel=1e-3)
    else:
        actions = torch.tanh(mlp_outputs(network.player, player, x)["policy"])
        policy_loss = -critics(agent, state.judge, x, actions)[0].mean()
    policy_loss.backward()
    mine = network.parts(np.asarray(found)[:-1])
    np.testing.assert_allclose(mine[0], player.grad.numpy(), rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(mine[1], judge.grad.numpy(), rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(lesson["loss"], float(critic_loss.detach()), rtol=1e-4)
    np.testing.assert_allclose(
        agent.priorities(prepared(agent, hyper)[0], batch, hyper),
        (one - goal).detach().abs().numpy() + 1e-6,
        rtol=1e-3,
        atol=1e-5,
    )


def test_actions_stay_within_bounds_and_are_any_before_learning_begins(algorithm):
    agent, hyper = agent_for(algorithm), HYPERS[algorithm]
    state, rng, slots = agent.init(0), np.random.default_rng(0), 2_000
    seen, first = {"obs": rng.normal(size=(slots, 3)).astype(np.float32) * 5}, np.zeros(slots, bool)
    before = agent.act(agent.policy(state, hyper), seen, {}, first, None, rng)[0].actions
    low, high = np.array([-1, 0]), np.array([3, 0.5])
    np.testing.assert_allclose(before.mean(0), (low + high) / 2, atol=0.1)
    np.testing.assert_allclose(before.std(0), (high - low) / 12**0.5, rtol=0.05)
    state = agent.apply(state, 0.1 * rng.standard_normal(agent.network.size + 1, np.float32), hyper)
    params = agent.policy(state, hyper)
    greedy = agent.act(params, seen, {}, first, None, None)[0].actions
    noisy = agent.act(params, seen, {}, first, None, rng)[0].actions
    for actions in (before, greedy, noisy):
        assert actions.shape == (slots, 2) and (actions >= low - 1e-6).all() and (actions <= high + 1e-6).all()
    assert not np.allclose(greedy, noisy)
    outputs = mlp_outputs(agent.network.player, tensor(state.player), torch.as_tensor(seen["obs"]))["policy"].numpy()
    expected = np.tanh(outputs[:, :2])
    np.testing.assert_allclose(greedy, (low + high) / 2 + (high - low) / 2 * expected, rtol=1e-4, atol=1e-5)


def test_what_was_done_is_judged_on_a_scale_of_minus_one_to_one(algorithm):
    agent, hyper = agent_for(algorithm), replace(HYPERS[algorithm], n_step=1)
    table = Table(n_step(1), capacity=500)
    made = play(agent, agent.policy(agent.init(0), hyper), steps=8)
    made.actions[...] = [3.0, 0.0]  # the upper bound of the first, the lower of the second
    table.insert(made)
    _, batch = agent.prepare(agent.init(0), table.sample(5).rollouts, hyper)
    np.testing.assert_allclose(batch["actions"], np.tile([1.0, -1.0], (5, 1)), atol=1e-6)


def test_noise_is_drawn_anew_for_each_update_and_is_the_same_in_a_resumed_run(algorithm):
    agent, hyper = agent_for(algorithm), HYPERS[algorithm]
    state, one = prepared(agent, hyper)
    other, again = prepared(agent, hyper)
    assert np.array_equal(one["noise"], again["noise"]) and not np.array_equal(one["noise"], one["next_noise"])
    _, following = agent.prepare(state, rollouts_of(agent, hyper), hyper)
    assert not np.array_equal(following["noise"], one["noise"]) and state.draws == other.draws + 1


def rollouts_of(agent, hyper):
    table = Table(n_step(hyper.n_step), capacity=500, rng=np.random.default_rng(0))
    table.insert(play(agent, agent.policy(agent.init(0), hyper), steps=8))
    return table.sample(24).rollouts


def test_sac_moves_its_temperature_towards_the_entropy_that_is_wanted():
    agent = agent_for("sac")
    hyper = replace(HYPERS["sac"], learning_rate=1e-2)
    for wanted, colder in ((-50.0, True), (50.0, False)):
        state, batch = prepared(agent, replace(hyper, entropy_goal=wanted))
        for _ in range(3):
            gradients, _ = agent.gradients(state, batch, replace(hyper, entropy_goal=wanted))
            state = agent.apply(state, gradients, hyper)
        assert (float(state.log_temperature[0]) < 0) is colder
    state, batch = prepared(agent, hyper)
    assert agent.gradients(state, batch, replace(hyper, temperature=0.3))[1]["temperature"] == 0.3


def test_td3_moves_its_policy_and_targets_every_other_time():
    agent, hyper = agent_for("td3"), replace(HYPERS["td3"], delay=2, target_rate=0.5)
    state, batch = prepared(agent, hyper)
    player, judge, target = state.player.copy(), state.judge.copy(), state.target_judge.copy()
    target_player = state.target_player.copy()
    first, _ = agent.gradients(state, batch, hyper)
    assert not agent.network.parts(first[:-1])[0].any()
    state = agent.apply(state, first, hyper)
    assert np.array_equal(state.player, player) and np.array_equal(state.target_judge, target)
    assert not np.array_equal(state.judge, judge)
    state = agent.apply(state, agent.gradients(state, batch, hyper)[0], hyper)
    assert not np.array_equal(state.player, player)
    np.testing.assert_allclose(state.target_judge, target + 0.5 * (state.judge - target), rtol=1e-5, atol=1e-7)
    expected = target_player + 0.5 * (state.player - target_player)
    np.testing.assert_allclose(state.target_player, expected, rtol=1e-5, atol=1e-7)


def test_what_they_cannot_do_they_say(algorithm):
    for action in (Discrete(3), Box((2,))):
        with pytest.raises(ConfigError, match=r"numbers between bounds.*--algo: a2c,.* ppo"):
            agent_for(algorithm, EnvSpec("other", SPEC.observations, action))
    agent = agent_for(algorithm)
    state = agent.init(0)
    with pytest.raises(Diverged, match="smaller learning_rate"):
        agent.apply(state, np.full(agent.network.size + 1, np.nan, np.float32), HYPERS[algorithm])
    assert np.isfinite(state.judge).all() and np.isfinite(state.player).all()
    with pytest.raises(ConfigError, match="mlp or torch, got the network 'lstm'"):
        agent_for(algorithm, kind="lstm")


def test_what_actors_are_given_has_names_for_the_policy_alone(algorithm):
    agent = agent_for(algorithm)
    state = agent.init(0)
    named = agent.network.names(agent.policy(state, HYPERS[algorithm]).tensors["weights"])
    assert named and all(name.startswith("player.") for name in named)
    whole = agent.network.names(np.concatenate([state.player, state.judge]))
    assert named.keys() < whole.keys() and sum(view.size for view in whole.values()) == agent.network.size
