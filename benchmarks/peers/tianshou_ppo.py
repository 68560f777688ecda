"""The same in Tianshou."""

import json
import time

import torch
from tianshou.trainer import OnPolicyTrainerParams
from tianshou_agent import build

ROLLOUT, WARM, STEPS = 64 * 128, 2, 12


def main() -> None:
    torch.set_num_threads(2)
    algorithm, collector = build(
        envs=64, seed=1, activation=torch.nn.Tanh, shared=False, learning_rate=3e-4, gamma=0.99, gae_lambda=0.95,
        ent_coef=0.0, max_grad_norm=0.5, max_batchsize=ROLLOUT,
    )  # fmt: skip
    trainer = algorithm.create_trainer(
        OnPolicyTrainerParams(
            training_collector=collector,
            epoch_num_steps=ROLLOUT,
            collection_step_num_env_steps=ROLLOUT,
            batch_size=2048,
            update_step_num_repetitions=4,
            show_progress=False,
            verbose=False,
        )
    )
    trainer.reset()
    for _ in range(WARM):
        trainer.execute_epoch()
    start = time.perf_counter()
    for _ in range(STEPS):
        trainer.execute_epoch()
    print(json.dumps({"steps_per_second": STEPS * ROLLOUT / (time.perf_counter() - start)}))


if __name__ == "__main__":
    main()
