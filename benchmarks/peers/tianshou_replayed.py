"""The same in Tianshou."""

import argparse
import json
import time

import gymnasium
import torch
from tianshou.algorithm import DQN, SAC, TD3
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.exploration import GaussianNoise
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic

ENVS = {"dqn": "CartPole-v1", "sac": "Pendulum-v1", "td3": "Pendulum-v1"}
MINIBATCH = {"dqn": 64, "sac": 256, "td3": 256}
HIDDEN = (256, 256)


def q_learning(world: gymnasium.Env) -> DQN:
    net = Net(state_shape=world.observation_space.shape, action_shape=world.action_space.n, hidden_sizes=HIDDEN)
    policy = DiscreteQLearningPolicy(model=net, action_space=world.action_space, eps_training=0.1)
    optim = AdamOptimizerFactory(lr=2.3e-3)
    return DQN(policy=policy, optim=optim, gamma=0.99, target_update_freq=10, is_double=False, huber_loss_delta=1.0)


def continuous(world: gymnasium.Env, soft: bool) -> SAC | TD3:
    state, action = world.observation_space.shape, world.action_space.shape
    body = Net(state_shape=state, hidden_sizes=HIDDEN)
    first, second = (
        ContinuousCritic(preprocess_net=Net(state_shape=state, action_shape=action, hidden_sizes=HIDDEN, concat=True))
        for _ in range(2)
    )
    optim = AdamOptimizerFactory(lr=1e-3)
    parts = {"policy_optim": optim, "critic": first, "critic_optim": optim, "critic2": second, "critic2_optim": optim}
    if soft:
        actor = ContinuousActorProbabilistic(
            preprocess_net=body, action_shape=action, unbounded=True, conditioned_sigma=True
        )
        policy = SACPolicy(actor=actor, action_space=world.action_space)
        return SAC(policy=policy, alpha=AutoAlpha(-1.0, 0.0, optim), tau=0.005, gamma=0.99, **parts)
    decided = ContinuousActorDeterministic(preprocess_net=body, action_shape=action, max_action=1.0)
    policy = ContinuousDeterministicPolicy(
        actor=decided, action_space=world.action_space, exploration_noise=GaussianNoise(sigma=0.1)
    )
    return TD3(policy=policy, tau=0.005, gamma=0.99, **parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("algo", choices=ENVS)
    parser.add_argument("--warm", type=int, required=True, help="steps that are not timed")
    parser.add_argument("--steps", type=int, required=True, help="steps after those")
    parser.add_argument("--last", type=int, required=True, help="episodes whose mean return is told")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    name, algo = ENVS[arguments.algo], arguments.algo
    world = gymnasium.make(name)
    returns: list[float] = []

    class Told(gymnasium.wrappers.RecordEpisodeStatistics):
        def step(self, action):
            found = super().step(action)
            if "episode" in found[4]:
                returns.append(float(found[4]["episode"]["r"]))
            return found

    envs = DummyVectorEnv([lambda: Told(gymnasium.make(name, disable_env_checker=True))])
    envs.seed(1)
    algorithm = q_learning(world) if algo == "dqn" else continuous(world, soft=algo == "sac")
    collector = Collector(algorithm, envs, VectorReplayBuffer(100_000 if algo == "dqn" else 1_000_000, 1))
    piece, often, random = (256, 0.5, 1000) if algo == "dqn" else (1, 1.0, 100)
    collector.reset()
    collector.collect(n_step=random, random=True)
    epoch = piece * max(1, 100 // piece)
    trainer = algorithm.create_trainer(
        OffPolicyTrainerParams(
            training_collector=collector, epoch_num_steps=epoch, collection_step_num_env_steps=piece,
            batch_size=MINIBATCH[algo], update_step_num_gradient_steps_per_sample=often, max_epochs=1_000_000,
            show_progress=False, verbose=False,
        )
    )  # fmt: skip
    trainer.reset()
    done = random
    while done < arguments.warm:
        trainer.execute_epoch()
        done += epoch
    before, start = done, time.perf_counter()
    while done < arguments.warm + arguments.steps:
        trainer.execute_epoch()
        done += epoch
    rate = (done - before) / (time.perf_counter() - start)
    last = returns[-arguments.last :]
    told = {
        "steps_per_second": rate,
        "samples_per_step": often * MINIBATCH[algo],
        "train_return": sum(last) / len(last) if last else None,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
