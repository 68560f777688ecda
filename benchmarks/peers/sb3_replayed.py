"""DQN, SAC and TD3 of Stable-Baselines3: a gradient for each step, or what its zoo has for CartPole-v1."""

import argparse
import json
import time

import gymnasium
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.monitor import Monitor

DISCRETE = {
    "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "gamma": 0.99,
    "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
}  # fmt: skip
CONTINUOUS = {"learning_rate": 1e-3, "batch_size": 256, "buffer_size": 1_000_000, "learning_starts": 100}
TASKS = {
    "dqn": (DQN, "CartPole-v1", DISCRETE),
    "sac": (SAC, "Pendulum-v1", CONTINUOUS),
    "td3": (TD3, "Pendulum-v1", CONTINUOUS),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("algo", choices=TASKS)
    parser.add_argument("--warm", type=int, required=True, help="steps that are not timed")
    parser.add_argument("--steps", type=int, required=True, help="steps after those")
    parser.add_argument("--last", type=int, required=True, help="episodes whose mean return is told")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    kind, env, settings = TASKS[arguments.algo]
    shape = {"net_arch": [256, 256], "activation_fn": torch.nn.ReLU}
    if kind is TD3:  # its usual exploration; without any it would not learn
        from stable_baselines3.common.noise import NormalActionNoise

        settings = {**settings, "action_noise": NormalActionNoise(torch.zeros(1).numpy(), 0.1 * torch.ones(1).numpy())}
    world = Monitor(gymnasium.make(env, disable_env_checker=True))
    model = kind("MlpPolicy", world, policy_kwargs=shape, seed=1, device="cpu", **settings)
    whole = arguments.warm + arguments.steps
    marks: list[tuple[float, int, int]] = []

    def watch(inner: dict, outer: dict) -> bool:
        if model.num_timesteps > arguments.warm and not marks:  # what belongs to the step before is learnt
            marks.append((time.perf_counter(), model.num_timesteps, model._n_updates))
        return True

    model.learn(whole, callback=watch)
    (began, steps, updates), ended = marks[0], time.perf_counter()
    returns = world.get_episode_rewards()[-arguments.last :]
    told = {
        "steps_per_second": (model.num_timesteps - steps) / (ended - began),
        "samples_per_step": (model._n_updates - updates) * settings["batch_size"] / (model.num_timesteps - steps),
        "train_return": sum(returns) / len(returns),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
