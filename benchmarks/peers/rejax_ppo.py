"""The same in rejax: environment and learning compiled into one program by JAX. Compiling is not counted."""

import json
import time

import jax
from rejax import PPO

STEPS = 1_638_400


def main() -> None:
    algo = PPO.create(
        env="CartPole-v1",
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
        num_envs=64,
        num_steps=128,
        num_minibatches=4,
        num_epochs=4,
        learning_rate=3e-4,
        max_grad_norm=0.5,
        ent_coef=0.0,
        total_timesteps=STEPS,
        eval_freq=STEPS,
        skip_initial_evaluation=True,
    )
    algo = algo.replace(eval_callback=lambda algo, state, key: ())  # only training is measured
    start = time.perf_counter()
    train = jax.jit(algo.train).lower(jax.random.PRNGKey(0)).compile()
    compiled = time.perf_counter() - start
    start = time.perf_counter()
    jax.block_until_ready(train(jax.random.PRNGKey(1)))
    print(json.dumps({"steps_per_second": STEPS / (time.perf_counter() - start), "compile_seconds": compiled}))


if __name__ == "__main__":
    main()
