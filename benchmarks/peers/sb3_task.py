"""PPO of Stable-Baselines3 on a task of Gymnasium: so many environments, in one process or in one each."""

import argparse
import json
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

VECTORS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("env")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--vector", choices=VECTORS, default="dummy")
    parser.add_argument("--rollout", type=int, default=8192, help="steps of all environments in one update")
    parser.add_argument("--minibatch", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--warm", type=int, default=0, help="steps that are not timed")
    parser.add_argument("--steps", type=int, required=True, help="steps after those")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    env = make_vec_env(
        arguments.env,
        arguments.envs,
        seed=arguments.seed,
        vec_env_cls=VECTORS[arguments.vector],
        env_kwargs={"disable_env_checker": True},
    )
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=arguments.rollout // arguments.envs,
        batch_size=arguments.minibatch,
        n_epochs=arguments.epochs,
        seed=arguments.seed,
        device="cpu",
    )
    if arguments.warm:
        model.learn(arguments.warm)
    before, start = model.num_timesteps, time.perf_counter()
    model.learn(arguments.steps, reset_num_timesteps=False)
    rate = (model.num_timesteps - before) / (time.perf_counter() - start)
    episodes = model.ep_info_buffer
    mean = sum(episode["r"] for episode in episodes) / len(episodes) if episodes else None
    print(json.dumps({"steps_per_second": rate, "train_return": mean}))
    env.close()


if __name__ == "__main__":
    main()
