"""A learning agent in a user's hands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millstream import AgentEnsemble, DistributedAgent, DistributedEnvironment, ParameterServer, ReplayBufferPool
from millstream.agents.ensemble import Ensemble
from millstream.agents.ppo import PPO
from millstream.core.data import Decision, Params, Rollout, Version
from millstream.core.errors import CheckpointError, ConfigError, MillError, RunError
from millstream.core.spec import EnvSpec
from millstream.learner.pushing import Pushing, shares


def rollout_for(agent: Any, environment: DistributedEnvironment) -> Rollout:
    environment.connect(agent, ParameterServer(agent.parameters()))
    return environment.generate()[0]


@pytest.fixture
def environment() -> DistributedEnvironment:
    return DistributedEnvironment(envs_per_worker=6, unroll=16)


def test_the_preset_of_its_environment_is_taken_unless_told_otherwise(environment: DistributedEnvironment) -> None:
    assert DistributedAgent(environment).hyper.discount == 0.98
    assert DistributedAgent(environment, discount=0.5).hyper.discount == 0.5
    plain = DistributedEnvironment("Acrobot-v1")
    assert DistributedAgent(plain, "impala").hyper.discount == 0.99


def test_it_computes_gradients_and_applies_them(environment: DistributedEnvironment) -> None:
    agent = DistributedAgent(environment)
    before = agent.parameters().tensors["weights"]
    gradients, lesson = agent.compute_gradients([rollout_for(agent, environment)])
    assert gradients.shape == before.shape and np.isfinite(lesson["policy_loss"])
    assert np.array_equal(agent.parameters().tensors["weights"], before)
    agent.apply_gradients(gradients)
    moved = before - agent.parameters().tensors["weights"]
    assert np.array_equal(np.sign(moved[gradients != 0]), np.sign(gradients[gradients != 0]))


def test_learning_from_the_same_rollout_lowers_its_loss(environment: DistributedEnvironment) -> None:
    agent = DistributedAgent(environment, learning_rate=1e-2)
    rollout = rollout_for(agent, environment)
    losses = [agent.learn([rollout])["value_loss"] for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


def test_it_goes_on_from_weights_that_fit_and_refuses_others(environment: DistributedEnvironment) -> None:
    one, other = DistributedAgent(environment, seed=1), DistributedAgent(environment, seed=2)
    other.set_parameters(one.parameters())
    assert np.array_equal(one.parameters().tensors["weights"], other.parameters().tensors["weights"])
    with pytest.raises(CheckpointError, match="weights"):
        one.set_parameters(Params({"weights": np.zeros(3, np.float32)}))


def test_a_servers_optimiser_does_what_the_agents_own_does(environment: DistributedEnvironment) -> None:
    agent = DistributedAgent(environment)
    server = ParameterServer(agent.parameters(), optimiser=agent.optimiser())
    rollout = rollout_for(agent, environment)
    for number in range(3):
        gradients, _ = agent.compute_gradients([rollout])
        assert server.push_gradients("me", Version(0, number), gradients).accepted
        agent.apply_gradients(gradients)
        assert np.array_equal(server.get().params.tensors["weights"], agent.parameters().tensors["weights"])


def test_a_worker_of_it_pushes_gradients_and_takes_the_weights_that_come_back(
    environment: DistributedEnvironment,
) -> None:
    agent = DistributedAgent(environment)
    server = ParameterServer(agent.parameters(), optimiser=agent.optimiser())
    worker = agent.worker(0, server)
    rollout = rollout_for(worker, environment)
    gradients, _ = worker.compute_gradients([rollout])
    worker.apply_gradients(gradients)
    assert server.version == Version(0, 1)
    assert np.array_equal(worker.parameters().tensors["weights"], server.get().params.tensors["weights"])
    assert not np.array_equal(agent.parameters().tensors["weights"], server.get().params.tensors["weights"])


def test_the_steps_of_an_update_are_shared_out_among_its_pushes() -> None:
    assert list(shares(100, 3)) == [33, 33, 34]
    assert list(shares(2, 4)) == [1, 1, 1, 1]


def test_an_algorithm_that_cannot_take_weights_cannot_learn_with_others(environment: DistributedEnvironment) -> None:
    class Stubborn:
        pass

    with pytest.raises(MillError, match="Stubborn cannot learn with others"):
        Pushing(Stubborn(), ParameterServer(), "worker")  # type: ignore[arg-type]


def test_bad_input_is_named(environment: DistributedEnvironment) -> None:
    with pytest.raises(ConfigError, match="learning_rate"):
        DistributedAgent(environment, learning_rate=-1.0)
    with pytest.raises(ConfigError, match="wings"):
        DistributedAgent(environment, wings=2)
    with pytest.raises(MillError, match="ppo"):
        DistributedAgent(environment, "pppo")
    with pytest.raises(ConfigError, match="made for an environment"):
        DistributedAgent("CartPole-v1")
    with pytest.raises(RunError, match="connect"):
        DistributedAgent(environment).step()


# --- ensembles -------------------------------------------------------------------------------------------------------


class Says:
    """A member that always says the same."""

    Hyper, window, max_lag, sequences, network = PPO.Hyper, 2, 1, False, None

    def __init__(self, spec: EnvSpec, actions: Any):
        self.spec, self.actions = spec, np.asarray(actions)

    def act(self, params: Any, observations: Any, carry: Any, first: Any, mask: Any, rng: Any) -> Any:
        return Decision(self.actions[: len(first)], {}), {}


def decide(spec: EnvSpec, *said: Any) -> Decision:
    ensemble = Ensemble([Says(spec, each) for each in said])  # type: ignore[list-item]
    return ensemble.act(Params({}), {}, {}, np.zeros(len(said[0]), bool), None, None)[0]


def test_members_vote_and_the_first_of_equals_wins() -> None:
    spec = DistributedEnvironment("CartPole-v1").spec
    decision = decide(spec, [0, 1, 0], [1, 1, 0], [1, 0, 0])
    assert decision.actions.tolist() == [1, 1, 0]
    assert decision.extras["disagreement"] == pytest.approx([1 / 3, 1 / 3, 0])
    assert decide(spec, [1], [0]).actions.tolist() == [1]


def test_of_continuous_actions_the_mean_is_taken_and_the_spread_told() -> None:
    spec = DistributedEnvironment("Pendulum-v1").spec
    decision = decide(spec, np.float32([[1.0], [0.0]]), np.float32([[0.0], [0.0]]))
    assert decision.actions.tolist() == [[0.5], [0.0]]
    assert decision.extras["disagreement"] == pytest.approx([0.5, 0.0])


def test_each_member_learns_from_the_slots_that_it_led(environment: DistributedEnvironment) -> None:
    ensemble = AgentEnsemble(environment, "ppo", 3)
    rollout = rollout_for(ensemble, environment)
    gradients, _ = ensemble.compute_gradients([rollout])
    for index, part in enumerate(np.split(gradients, 3)):
        alone = DistributedAgent(environment, seed=1 + 1_000 * index)
        mine, _ = alone.compute_gradients([ensemble.algorithm._led(rollout, index)])
        assert np.allclose(part, mine, atol=1e-6)


def test_members_that_learn_from_a_table_say_together_what_surprised_them() -> None:
    environment = DistributedEnvironment(envs_per_worker=4, unroll=8)
    ensemble = AgentEnsemble(environment, "dqn", 2, prioritised=True, learning_starts=32, minibatch=8, gradients=2)
    pool, server = ReplayBufferPool(1_000), ParameterServer(ensemble.parameters())
    told: list[np.ndarray] = []
    environment.connect(ensemble, server)
    pool.connect(environment, ensemble)
    ensemble.connect(environment, pool, server)
    pool.reprioritise = lambda keys, values: told.append(values)  # type: ignore[method-assign]
    while not told:
        if not ensemble.step():
            for rollout in environment.generate():
                pool.insert(rollout)
                environment.release(rollout.stamp)
    assert len(told[0]) == 16 and (told[0] > 0).all()


def test_slots_must_be_shared_out_evenly(environment: DistributedEnvironment) -> None:
    ensemble = AgentEnsemble(environment, "ppo", 4)
    with pytest.raises(ConfigError, match="multiple of that, got 6"):
        ensemble.compute_gradients([rollout_for(ensemble, environment)])
    with pytest.raises(ConfigError, match="at least 2"):
        AgentEnsemble(environment, "ppo", 1)
