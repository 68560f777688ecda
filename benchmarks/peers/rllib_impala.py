"""RLlib's IMPALA or APPO on CartPole-v1: unroll 20, 64 environments, two 64 x 64 tanh networks."""

import argparse
import json
import time

from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from rllib_run import NETWORKS, Best, build, sampled, trained

CONFIGS = {"impala": IMPALAConfig, "appo": APPOConfig}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("algo", choices=CONFIGS)
    parser.add_argument("--warm", type=float, default=10.0, help="seconds that are not timed")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds after those")
    arguments = parser.parse_args()
    algo = build(
        CONFIGS[arguments.algo]()
        .env_runners(num_env_runners=2, num_envs_per_env_runner=32, rollout_fragment_length=20)
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=64 * 20,
            lr=5e-4,
            vf_loss_coeff=0.05,
            entropy_coeff=0.0,
            timeout_s_sampler_manager=0.1,  # or it asks for samples without a pause, and needs a core for that
        )
        .rl_module(model_config=NETWORKS)
        .reporting(min_time_s_per_iteration=1)
    )
    marks, best, start = [], Best(), 0.0
    while not marks or marks[-1][0] < arguments.warm + arguments.seconds:
        result = algo.train()
        best.take(result)
        start = start or time.perf_counter()
        marks.append((time.perf_counter() - start, sampled(result), trained(result)))
    first, last = next(mark for mark in marks if mark[0] >= arguments.warm), marks[-1]
    rate = (last[1] - first[1]) / (last[0] - first[0])
    print(json.dumps({"steps_per_second": rate, "samples_per_step": last[2] / last[1], "best": best.mean}))


if __name__ == "__main__":
    main()
