"""Stable-Baselines3 trains CartPole-v1 with the settings that its zoo has for it."""

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

STEPS = 100_000


def zoo() -> PPO:
    """Its agent, ready to learn."""
    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=1),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
        seed=1,
        device="cpu",
    )


if __name__ == "__main__":
    zoo().learn(STEPS)
