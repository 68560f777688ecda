"""What presets reach: as measured here by `make learn`, and beside it what others have published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.agents import presets

MEASURED = Path(__file__).with_name("measured.json")
"""Written by `make learn`, by nobody else."""
FIRST_SEED, SEEDS = 101, 5
"""Presets are measured on seeds that had no say in choosing them."""


@dataclass(frozen=True)
class Source:
    """Who published a figure, and what kind of figure it is."""

    name: str
    url: str
    about: str


@dataclass(frozen=True)
class Published:
    """A return that somebody else reached."""

    source: Source
    value: float
    spread: float | None
    steps: int
    """Environment steps of the training behind it."""


SB3_ZOO = Source(
    "SB3 zoo",
    "https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md",
    "one run; mean and standard deviation over its evaluation episodes",
)
CLEANRL = Source(
    "CleanRL",
    "https://docs.cleanrl.dev/rl-algorithms/ppo/",
    "mean and spread over three seeds, of returns while training",
)
TIANSHOU = Source(
    "Tianshou",
    "https://github.com/thu-ml/tianshou/blob/master/examples/atari/README.md",
    "the best evaluation of one run",
)
SOURCES = (SB3_ZOO, CLEANRL, TIANSHOU)

_PUBLISHED: dict[tuple[str, str], tuple[Published, ...]] = {
    ("a2c", "CartPole-v1"): (Published(SB3_ZOO, 500.0, 0.0, 500_000),),
    ("a2c", "Acrobot-v1"): (Published(SB3_ZOO, -83.353, 17.213, 500_000),),
    ("ppo", "CartPole-v1"): (
        Published(SB3_ZOO, 500.0, 0.0, 100_000),
        Published(CLEANRL, 490.04, 6.12, 500_000),
    ),
    ("ppo", "Acrobot-v1"): (
        Published(SB3_ZOO, -73.506, 18.201, 1_000_000),
        Published(CLEANRL, -86.36, 1.32, 500_000),
    ),
    ("ppo", "MountainCar-v0"): (
        Published(SB3_ZOO, -110.423, 19.473, 1_000_000),
        Published(CLEANRL, -200.0, 0.0, 500_000),
    ),
    ("ppo", "LunarLander-v2"): (Published(SB3_ZOO, 242.119, 31.823, 1_000_000),),
    ("ppo", "Pendulum-v1"): (Published(SB3_ZOO, -172.225, 104.159, 100_000),),
    ("dqn", "CartPole-v1"): (Published(SB3_ZOO, 500.0, 0.0, 50_000),),
    ("dqn", "Acrobot-v1"): (Published(SB3_ZOO, -76.639, 11.752, 100_000),),
    ("dqn", "MountainCar-v0"): (Published(SB3_ZOO, -100.849, 9.925, 120_000),),
    ("dqn", "LunarLander-v2"): (Published(SB3_ZOO, 154.382, 79.241, 100_000),),
    ("sac", "Pendulum-v1"): (Published(SB3_ZOO, -156.995, 88.714, 20_000),),
    ("sac", "LunarLanderContinuous-v2"): (Published(SB3_ZOO, 260.390, 65.467, 500_000),),
    ("td3", "Pendulum-v1"): (Published(SB3_ZOO, -151.855, 90.227, 20_000),),
    ("td3", "LunarLanderContinuous-v2"): (Published(SB3_ZOO, 207.451, 67.562, 300_000),),
    ("ppo", "BreakoutNoFrameskip-v4"): (Published(SB3_ZOO, 398.033, 33.328, 10_000_000),),
    ("ppo", "RoadRunnerNoFrameskip-v4"): (Published(SB3_ZOO, 40680.645, 6675.058, 10_000_000),),
    ("ppo", "PongNoFrameskip-v4"): (
        Published(SB3_ZOO, 20.989, 0.105, 10_000_000),
        Published(CLEANRL, 20.36, 0.20, 10_000_000),
        Published(TIANSHOU, 20.1, None, 10_000_000),
    ),
}
"""By the environment that it was published for."""

_STANDS_FOR = {
    "ALE/Breakout-v5": "BreakoutNoFrameskip-v4",
    "LunarLander-v3": "LunarLander-v2",
    "LunarLanderContinuous-v3": "LunarLanderContinuous-v2",
    "ALE/Pong-v5": "PongNoFrameskip-v4",
    "ALE/RoadRunner-v5": "RoadRunnerNoFrameskip-v4",
    "envpool:Pong-v5": "PongNoFrameskip-v4",
}
"""Environments for which only an older version has published figures."""


def published(env: str, algo: str) -> list[dict[str, Any]]:
    """What others report for this pair, each with the name of the environment that they used."""
    used = _STANDS_FOR.get(env, env)
    return [
        {
            "source": each.source.name,
            "url": each.source.url,
            "about": each.source.about,
            "env": used,
            "value": each.value,
            "spread": each.spread,
            "steps": each.steps,
        }
        for each in _PUBLISHED.get((algo, used), ())
    ]


def entries() -> list[dict[str, Any]]:
    """Every measurement on file."""
    return list(json.loads(MEASURED.read_text(encoding="utf-8"))["presets"])


def measured(env: str, algo: str) -> Mapping[str, Any] | None:
    """The measurement of a preset; None where there is none, or only one of settings that it no longer has."""
    found = [each for each in entries() if (each["env"], each["algo"]) == (env, algo)]
    return next((each for each in found if each["settings"] == presets.fingerprint(env, algo)), None)


def command(env: str, algo: str, seeds: int = SEEDS) -> str:
    """What to type to measure a preset."""
    return f"mill train {env} --algo {algo} --seed {FIRST_SEED} --seeds {seeds}"
