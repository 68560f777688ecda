"""Stable-Baselines3 trains CartPole-v1 with the settings that its zoo has for it."""

from collections.abc import Callable

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

STEPS = 100_000


def zoo(seed: int = 1, stretch: float = 1.0) -> PPO:
    """Its agent, ready to learn; where it is told to learn `stretch` times as long, step size and clip fall as ever."""

    def falling(first: float) -> Callable[[float], float]:
        return lambda left: first * max(0.0, 1 - (1 - left) * stretch)

    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed, env_kwargs={"disable_env_checker": True}),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=falling(1e-3),
        clip_range=falling(0.2),
        seed=seed,
        device="cpu",
    )


if __name__ == "__main__":
    zoo().learn(STEPS)
