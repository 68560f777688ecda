"""What every agent promises, whatever its algorithm, its network and its actions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from millstream.agents import registry
from millstream.agents.actor_critic import ActorCritic
from millstream.core import tree
from millstream.core.codec import Layout, decode, decode_tensors, encode, encode_tensors
from millstream.core.errors import ConfigError
from millstream.core.spec import Box, Discrete, EnvSpec, MultiDiscrete
from tests.agents.rollouts import SPECS, agent_for, counted, disturbed, given, legal, observe, pick, play

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
SLOTS = 3
FRESH = {"normalise_observations": True, "normalise_rewards": True, "entropy": 0.01}
TABLE = {"minibatch": 8, "gradients": 3}
ATOMS = {"atoms": 7, "v_min": -3.0, "v_max": 3.0}
CASES = {
    "ppo": FRESH,
    "impala": FRESH,
    "a2c": FRESH,
    "reinforce": FRESH,
    "reinforce, baseline": {**FRESH, "baseline": True},
    "dqn": TABLE,
    "dqn, single": {**TABLE, "double": False},
    "dqn, dueling": {**TABLE, "dueling": True},
    "dqn, n-step": {**TABLE, "n_step": 3},
    "dqn, prioritised": {**TABLE, "prioritised": True},
    "dqn, atoms": {**TABLE, **ATOMS},
    "dqn, all": {**TABLE, **ATOMS, "dueling": True, "n_step": 3, "prioritised": True},
    "sac": {**TABLE, "prioritised": True},
    "td3": {**TABLE, "delay": 1},
    "cloning": {"minibatch": 8, "gradients": 3, "normalise_observations": True, "entropy": 0.01},
}
"""Every algorithm, and each of its options that changes what it computes."""
EVERY = ("discrete", "multi-masked", "continuous")
ACTIONS = {"dqn": ("discrete", "masked"), "sac": ("continuous",), "td3": ("continuous",)}
KINDS = {"dqn": ("mlp", "torch"), "sac": ("auto",), "td3": ("auto",), "cloning": ("mlp", "torch")}


def algorithm_of(case):
    return case.partition(",")[0]


def kinds_of(case):
    return KINDS.get(algorithm_of(case), ("mlp", "torch", "lstm"))


def built(case, spec, kind):
    return agent_for(algorithm_of(case), spec, kind, CASES[case])


PAIRS = [(case, kind) for case in CASES for kind in kinds_of(case)]
ALL = [(case, spec, kind) for case, kind in PAIRS for spec in ACTIONS.get(algorithm_of(case), EVERY)]


@pytest.fixture(params=ALL, ids="-".join)
def chosen(request):
    return request.param


@pytest.fixture
def kind(chosen):
    return chosen[2]


@pytest.fixture
def agent(chosen):
    return built(*chosen)


@pytest.fixture
def hyper(agent, chosen):
    return agent.Hyper(**CASES[chosen[0]])


def weights_of(agent, state, hyper):
    return agent.policy(state, hyper).tensors["weights"]


def same(one, other):
    return set(one) == set(other) and all(np.array_equal(one[name], other[name]) for name in one)


def learnt(agent, hyper, updates=2, seed=0):
    """A state some updates old, and its last minibatch."""
    state, batch = agent.init(seed), None
    for update in range(updates):
        params = agent.policy(state, hyper)
        rollouts = [play(agent, params, seed=10 * update + n, next_step=True) for n in range(2)]
        state, batch = agent.prepare(state, given(agent, hyper, rollouts, update), hyper)
        gradients, _ = agent.gradients(state, batch, hyper)
        state = agent.apply(state, gradients, hyper)
    return state, batch


def one_step(agent, params, rng, seed=0, carry=None, first=None):
    world = np.random.default_rng(seed)
    seen, mask = observe(agent.spec, SLOTS, world), legal(agent.spec, SLOTS, world)
    carry = agent.carry(params, SLOTS) if carry is None else carry
    first = np.ones(SLOTS, bool) if first is None else first
    return agent.act(params, seen, carry, first, mask, rng)


def test_a_seed_decides_the_first_weights(agent, hyper):
    one, other, third = (weights_of(agent, agent.init(seed), hyper) for seed in (4, 4, 5))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)


def test_a_policy_is_a_copy_that_later_learning_does_not_change(agent, hyper):
    state, batch = learnt(agent, hyper)
    policy = agent.policy(state, hyper)
    kept = {name: np.array(tensor) for name, tensor in policy.tensors.items()}
    assert all(isinstance(tensor, np.ndarray) for tensor in policy.tensors.values())
    gradients, _ = agent.gradients(state, batch, hyper)
    state = agent.apply(state, gradients, hyper)
    state, _ = agent.prepare(state, given(agent, hyper, [play(agent, policy, seed=99)]), hyper)
    assert same(policy.tensors, kept)
    assert not same(agent.policy(state, hyper).tensors, kept)


def test_without_a_generator_it_takes_the_same_best_action_each_time(agent, hyper):
    params = agent.policy(disturbed(agent.init(0)), hyper)
    decisions = [one_step(agent, params, None)[0] for _ in range(2)]
    assert np.array_equal(decisions[0].actions, decisions[1].actions)
    drawn = [one_step(agent, params, np.random.default_rng(seed))[0] for seed in range(40)]
    if "log_prob" in decisions[0].extras and not isinstance(agent.spec.action, Box):
        best = decisions[0].extras["log_prob"]
        assert all((each.extras["log_prob"] <= best + 1e-6).all() for each in drawn)
    assert any(not np.array_equal(each.actions, decisions[0].actions) for each in drawn)


def test_a_generator_decides_what_is_drawn(agent, hyper):
    params = agent.policy(agent.init(0), hyper)
    one, other = (one_step(agent, params, np.random.default_rng(3))[0] for _ in range(2))
    assert np.array_equal(one.actions, other.actions)
    assert same(one.extras, other.extras)


def test_a_decision_fits_the_slab_it_is_written_to(agent, hyper):
    params = agent.policy(agent.init(0), hyper)
    decision, carry = one_step(agent, params, np.random.default_rng(0))
    layout = Layout.of(agent.spec, 5, SLOTS, agent.carry(params, SLOTS), decision.extras).arrays
    dtype, shape, _ = layout["actions"]
    assert (decision.actions.dtype, decision.actions.shape) == (np.dtype(dtype), shape[1:])
    for name, array in carry.items():
        dtype, shape, _ = layout[f"carry/{name}"]
        assert (array.dtype, array.shape) == (np.dtype(dtype), shape), name
    assert set(carry) == set(agent.carry(params, SLOTS))
    for name, array in decision.extras.items():
        dtype, shape, _ = layout[f"extras/{name}"]
        assert (array.dtype, (5, *array.shape)) == (np.dtype(dtype), shape), name
    assert set(decision.extras) == ({"log_prob", "value"} if isinstance(agent, ActorCritic) else set())


def test_a_decision_stays_as_it_was_when_the_next_is_made(agent, hyper):
    params = agent.policy(disturbed(agent.init(0)), hyper)
    decision, carry = one_step(agent, params, np.random.default_rng(0))
    kept = [np.array(array) for array in (decision.actions, *decision.extras.values(), *carry.values())]
    one_step(agent, params, np.random.default_rng(1), seed=1)
    now = [decision.actions, *decision.extras.values(), *carry.values()]
    assert all(np.array_equal(one, other) for one, other in zip(kept, now, strict=True))


def test_what_is_remembered_is_cleared_where_an_episode_opens(agent, hyper, kind):
    params = agent.policy(disturbed(agent.init(0)), hyper)
    _, carry = one_step(agent, params, None, seed=5)
    fresh, _ = one_step(agent, params, None)
    opened, _ = one_step(agent, params, None, carry=carry, first=np.array([True, False, True]))
    said = [each.extras.get("value", each.actions).reshape(SLOTS, -1) for each in (opened, fresh)]
    equal = (said[0] == said[1]).all(axis=1)
    assert equal[[0, 2]].all()
    assert equal[1] == (kind != "lstm")


def test_an_update_changes_the_weights_and_keeps_them_finite(agent, hyper):
    before = weights_of(agent, agent.init(0), hyper)
    state, _ = learnt(agent, hyper, updates=3)
    after = weights_of(agent, state, hyper)
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)
    assert after.dtype == np.float32


def test_learning_is_repeatable_to_the_bit(agent, hyper):
    one, other = (weights_of(agent, learnt(agent, hyper)[0], hyper) for _ in range(2))
    assert np.array_equal(one, other)


def test_gradients_leave_the_state_and_the_batch_alone(agent, hyper):
    state, batch = learnt(agent, hyper)
    before = {path: array.copy() for path, array in tree.flatten((state, dict(batch)))[0].items()}
    first, lesson = agent.gradients(state, batch, hyper)
    first = np.array(first.tolist())
    again, _ = agent.gradients(state, batch, hyper)
    assert same(tree.flatten((state, dict(batch)))[0], before)
    assert np.array_equal(first, np.array(again.tolist()))
    assert all(isinstance(number, float) and np.isfinite(number) for number in lesson.values())


def test_the_gradient_of_a_minibatch_is_the_weighted_mean_over_its_shards(agent, hyper):
    state, batch = learnt(agent, hyper)
    state = disturbed(state, size=0.1)
    whole, lesson = agent.gradients(state, batch, hyper)
    rows = np.random.default_rng(0).permutation(len(batch["actions"]))
    mean, lessons, total = 0.0, {}, counted(batch)
    for part in np.array_split(rows, 3):
        shard = pick(batch, part)
        gradient, taught = agent.gradients(state, shard, hyper)
        share = counted(shard) / total
        mean = mean + share * np.asarray(gradient)
        for name, number in taught.items():
            lessons[name] = lessons.get(name, 0.0) + share * number
    assert np.allclose(whole, mean, atol=1e-5)
    assert lessons == pytest.approx(lesson, abs=1e-4)


def test_its_state_survives_a_file_and_learning_goes_on_as_if_nothing_had_happened(agent, hyper):
    state, batch = learnt(agent, hyper)
    arrays, skeleton = tree.flatten(state)
    file, text = encode_tensors(arrays), json.dumps(skeleton)
    back = tree.rebuild(agent.init(77), tree.unflatten(decode_tensors(file)[0], json.loads(text)))
    kinds = [{name: type(part) for name, part in vars(each).items()} for each in (back, state)]
    assert kinds[0] == kinds[1]
    again, _ = tree.flatten(back)
    assert same(arrays, again)
    for each in (state, back):
        rollout = play(agent, agent.policy(each, hyper), seed=50)
        each, batch = agent.prepare(each, given(agent, hyper, [rollout]), hyper)
        agent.apply(each, agent.gradients(each, batch, hyper)[0], hyper)
    assert same(tree.flatten(state)[0], tree.flatten(back)[0])


def test_a_state_can_be_put_over_one_that_has_already_learnt(agent, hyper):
    state, _ = learnt(agent, hyper)
    arrays, skeleton = tree.flatten(agent.init(3))
    back = tree.rebuild(state, tree.unflatten(arrays, skeleton))
    assert same(tree.flatten(back)[0], arrays)


def test_a_rollout_that_travelled_teaches_the_same(agent, hyper):
    rollout = play(agent, agent.policy(agent.init(0), hyper), next_step=True)
    travelled = decode(bytes(encode(rollout)))
    assert not travelled.rewards.flags.writeable
    batches = [agent.prepare(agent.init(0), given(agent, hyper, [each]), hyper)[1] for each in (rollout, travelled)]
    assert same(*({name: np.asarray(array) for name, array in batch.items()} for batch in batches))


def test_preparing_leaves_the_rollouts_alone(agent, hyper):
    rollout = play(agent, agent.policy(agent.init(0), hyper), next_step=True)
    rollouts = given(agent, hyper, [rollout])
    before = {path: array.copy() for path, array in tree.flatten(rollouts)[0].items()}
    state, batch = agent.prepare(agent.init(0), rollouts, hyper)
    agent.apply(state, agent.gradients(state, batch, hyper)[0], hyper)
    assert same(tree.flatten(rollouts)[0], before)


def test_every_column_of_a_batch_has_the_same_rows(agent, hyper):
    rollouts = [play(agent, agent.policy(agent.init(0), hyper), seed=n, slots=n + 2) for n in range(2)]
    _, batch = agent.prepare(agent.init(0), given(agent, hyper, rollouts), hyper)
    lengths = {name: len(array) for name, array in batch.items()}
    picked = hyper.minibatch * getattr(hyper, "gradients", 0)
    assert set(lengths.values()) == {picked or (5 if agent.sequences else 30)}, lengths


BANDITS = {
    "discrete": (Discrete(3), lambda actions: actions == 1),
    "multi": (MultiDiscrete((2, 3)), lambda actions: (actions == [0, 2]).all(axis=-1)),
    "continuous": (Box((1,), low=-3, high=3), lambda actions: -np.abs(actions[:, 0] - 1)),
}
QUICK = {
    "dqn": {"epsilon": 0.2, "epsilon_end": 0.2, "discount": 0.0, "minibatch": 64, "gradients": 1},
    "sac": {"temperature": 0.01, "discount": 0.0, "minibatch": 64, "gradients": 1},
    "td3": {"discount": 0.0, "delay": 1, "minibatch": 64, "gradients": 1},
}
ONES = {"dqn": ("discrete",), "sac": ("continuous",), "td3": ("continuous",), "cloning": ()}
"""Who copies what others did does not look at rewards."""


@pytest.mark.parametrize(
    ("case", "kind", "choice"),
    [(case, kind, choice) for case, kind in PAIRS for choice in ONES.get(algorithm_of(case), BANDITS)],
)
def test_learning_makes_the_rewarded_action_more_probable(case, kind, choice):
    space, reward = BANDITS[choice]
    agent = built(case, EnvSpec("bandit", {"obs": Box((1,))}, space), kind)
    hyper = replace(
        agent.Hyper(**{**CASES[case], **QUICK.get(algorithm_of(case), {"entropy": 0.0})}), learning_rate=0.01
    )
    if not hasattr(agent, "replayed"):
        hyper = replace(hyper, normalise_observations=False, normalise_rewards=False)
    state = agent.init(0)

    def worth(params):
        return play(agent, params, steps=20, slots=32, seed=123, rewards=reward).rewards.mean()

    before = worth(agent.policy(state, hyper))
    for update in range(12 if hasattr(agent, "replayed") else 8):
        rollout = play(agent, agent.policy(state, hyper), steps=4, slots=32, seed=update, ends=1.0, rewards=reward)
        for _ in range(6 if hasattr(agent, "replayed") else 1):
            state, batch = agent.prepare(state, given(agent, hyper, [rollout], update), hyper)
            for _ in range(3):
                gradients, _ = agent.gradients(state, batch, hyper)
                state = agent.apply(state, gradients, hyper)
    after = worth(agent.policy(state, hyper))
    assert after > before + 0.15


@pytest.mark.parametrize(("case", "kind"), [pair for pair in PAIRS if algorithm_of(pair[0]) not in ("sac", "td3")])
def test_a_mask_is_obeyed_while_acting_and_learning(case, kind):
    agent = built(case, "masked", kind)
    hyper = agent.Hyper(**CASES[case])
    state, batch = learnt(agent, hyper)
    rollout = play(agent, agent.policy(state, hyper), steps=30)
    chosen = np.take_along_axis(rollout.extras["mask"][:-1], rollout.actions[..., None], axis=-1)
    assert chosen.all()
    assert not rollout.extras["mask"].all()
    _, lesson = agent.gradients(state, batch, hyper)
    assert all(np.isfinite(number) for number in lesson.values())


UNBOUNDED = EnvSpec("unbounded", SPECS["discrete"].observations, Box((2,)))


@pytest.mark.parametrize("spec", [*SPECS.values(), UNBOUNDED], ids=lambda spec: spec.id)
def test_an_algorithm_learns_a_space_or_says_which_others_can(spec):
    able, refusals = [], []
    for name in registry.names():
        try:
            agent = agent_for(name, spec, "auto")
        except ConfigError as error:
            refusals.append(str(error))
            assert str(error).startswith(name) and str(spec.action) in str(error)
            continue
        if not hasattr(agent, "recorded"):  # who needs a dataset is offered to nobody
            able.append(name)
        hyper = agent.Hyper(**(TABLE if hasattr(agent, "replayed") else FRESH))
        state, _ = learnt(agent, hyper)
        assert np.isfinite(weights_of(agent, state, hyper)).all()
    assert {"a2c", "impala", "ppo", "reinforce"} <= set(able)
    assert len(able) < len(registry.names())
    assert all(refusal.endswith(f"try another --algo: {', '.join(able)}") for refusal in refusals)


def test_no_algorithm_is_left_out():
    assert {algorithm_of(case) for case in CASES} == set(registry.names())


def test_the_zoo_has_each_kind_of_action():
    assert {type(SPECS[name].action) for name in ("discrete", "multi-masked", "continuous")} == {
        Discrete,
        MultiDiscrete,
        Box,
    }
