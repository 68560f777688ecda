"""PPO of Stable-Baselines3 on Atari's Pong: its own preprocessing, its Nature CNN, settings of the row."""

import argparse
import json
import time

import ale_py
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

VECTORS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--warm", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--vector", choices=VECTORS, default="dummy")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    gymnasium.register_envs(ale_py)
    worlds = make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=1, vec_env_cls=VECTORS[arguments.vector],
                            env_kwargs={"disable_env_checker": True})  # fmt: skip
    env = VecFrameStack(worlds, n_stack=4)
    model = PPO(
        "CnnPolicy",
        env,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        seed=1,
        device="cpu",
    )
    model.learn(arguments.warm)
    before, start = model.num_timesteps, time.perf_counter()
    model.learn(arguments.steps, reset_num_timesteps=False)
    rate = (model.num_timesteps - before) / (time.perf_counter() - start)
    weights = sum(each.numel() for each in model.policy.parameters())
    print(json.dumps({"steps_per_second": rate, "weights": weights}))
    env.close()


if __name__ == "__main__":
    main()
