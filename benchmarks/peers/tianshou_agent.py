"""PPO for CartPole-v1 in Tianshou, and what collects for it: the parts that its two scripts share."""

import gymnasium
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic


def build(
    *, envs: int, seed: int, activation: type[torch.nn.Module], shared: bool, learning_rate: float, **hyper: float
) -> tuple[PPO, Collector]:
    """An agent and its collector; all environments are in one process."""
    torch.manual_seed(seed)
    worlds = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * envs)
    worlds.seed(seed)
    bodies = [Net(state_shape=4, hidden_sizes=(64, 64), activation=activation) for _ in range(2)]
    actor = DiscreteActor(preprocess_net=bodies[0], action_shape=2, softmax_output=False)
    critic = DiscreteCritic(preprocess_net=bodies[0 if shared else 1])
    for layer in (*actor.modules(), *critic.modules()):
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.orthogonal_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
    policy = DiscreteActorPolicy(actor=actor, action_space=gymnasium.spaces.Discrete(2))
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=learning_rate), **hyper)
    return algorithm, Collector(algorithm, worlds, VectorReplayBuffer(20_000, envs))
