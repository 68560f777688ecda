"""RLlib on CartPole-v1: what its scripts share."""

import os
from collections import deque
from collections.abc import Mapping
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy
import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

NETWORKS = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
"""Two networks of 64 x 64 tanh."""


def build(config: AlgorithmConfig) -> Algorithm:
    """The algorithm, ready to train, in a Ray of its own that says nothing."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    config.env_runners(gym_env_vectorize_mode="vector_entry_point")  # Gymnasium's vectorised CartPole
    return config.environment("CartPole-v1").callbacks(on_episode_end=_tell).build_algo()


def _tell(*, episode: Any, metrics_logger: Any, **_: Any) -> None:
    """Log the length of a whole episode, which is its return here; `get_return` is that of its last piece alone."""
    metrics_logger.log_value("lengths", episode.t, reduce="item_series")


def sampled(result: Mapping[str, Any]) -> int:
    """Environment steps made until then; none before the first samples came."""
    return int(result["env_runners"].get("num_env_steps_sampled_lifetime", 0))


def trained(result: Mapping[str, Any]) -> int:
    """Steps learnt from until then, each as often as it was; none before the first update."""
    return int(result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0))


class Best:
    """The best mean of 100 training episodes in a row."""

    def __init__(self) -> None:
        self.mean = 0.0
        self._returns: deque[float] = deque(maxlen=100)

    def take(self, result: Mapping[str, Any]) -> float:
        """The best so far, with the episodes of one more result."""
        lengths = numpy.ravel(result["env_runners"].get("lengths", ()))  # one alone comes without its list, none as nan
        for length in lengths[numpy.isfinite(lengths)]:
            self._returns.append(float(length))
            self.mean = max(self.mean, sum(self._returns) / 100)
        return self.mean
