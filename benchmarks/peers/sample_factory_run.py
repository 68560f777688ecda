"""Sample Factory on CartPole-v1: what its scripts share."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

NETWORKS = {"encoder_mlp_layers": (64, 64), "nonlinearity": "tanh", "actor_critic_share_weights": False}
"""Two networks of 64 x 64 tanh."""
PLAIN = {"num_workers": 2, "num_envs_per_worker": 32}
"""64 environments, as its examples have them: two processes, and each environment a Python object that steps alone."""
BATCHED = {"batched_sampling": True, "num_workers": 1, "num_envs_per_worker": 1, "worker_num_splits": 1}
"""The same 64 in one process that steps them together; faster, but it takes the adapter below."""


@dataclass(frozen=True)
class Mark:
    """How far training was at some time."""

    at: float
    steps: int
    mean: float  # of the last 100 training episodes
    episodes: int  # how many those are
    lag: float  # of the policy, in gradients


class Worlds(gymnasium.Env):
    """Gymnasium's vectorised CartPole as the batched sampler wants it: a step of all of them is one call."""

    is_multiagent = True
    num_agents = 64

    def __init__(self) -> None:
        self.worlds = gymnasium.make_vec("CartPole-v1", num_envs=self.num_agents, vectorization_mode="custom")
        self.observation_space = self.worlds.single_observation_space
        self.action_space = self.worlds.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.worlds.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return *self.worlds.step(action)[:4], {}


def make(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> gymnasium.Env:
    """A single environment, or all of them where they are stepped together."""
    return Worlds() if cfg.batched_sampling else gymnasium.make(name, render_mode=render_mode)


class Watch(AlgoObserver):
    """Notes after each step of training how far it is, and ends it when that is enough or time is over."""

    def __init__(self, deadline: float, enough: Callable[[Mark], bool]) -> None:
        self.deadline = deadline
        self.enough = enough
        self.marks: list[Mark] = []

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Called by the runner."""
        returns = list(runner.policy_avg_stats.get("reward", [[]])[0])[-100:]
        mean, lag = sum(returns) / max(1, len(returns)), runner.policy_lag[0].get("version_diff_avg", 0.0)
        mark = Mark(time.time(), runner.env_steps.get(0, 0), mean, len(returns), lag)
        self.marks.append(mark)
        if self.enough(mark) or mark.at > self.deadline:
            runner.cfg.train_for_env_steps = 0


def train(settings: Mapping[str, Any], seconds: float, enough: Callable[[Mark], bool]) -> list[Mark]:
    """Train with these settings until it is enough, or for so many seconds."""
    register_env("CartPole-v1", make)
    watch = Watch(time.time() + seconds, enough)
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"env": "CartPole-v1", "experiment": "bench", "train_dir": folder, "device": "cpu", "use_rnn": False}
        words: list[str] = []
        for name, value in {**fixed, **settings}.items():
            words += [f"--{name}", *(str(each) for each in (value if isinstance(value, tuple) else (value,)))]
        parser, _ = parse_sf_args(argv=words)
        _, runner = make_runner(parse_full_cfg(parser, words))
        runner.register_observer(watch)
        if runner.init() != ExperimentStatus.SUCCESS:
            raise SystemExit("Sample Factory does not take these settings")
        runner.run()
    return watch.marks


def rate(marks: Sequence[Mark], warm: int) -> float:
    """Environment steps a second after so many steps."""
    first, last = next(mark for mark in marks if mark.steps >= warm), marks[-1]
    return (last.steps - first.steps) / (last.at - first.at)
