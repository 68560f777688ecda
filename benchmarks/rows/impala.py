"""IMPALA on CartPole-v1: unroll 20, 64 environments, each step learnt from once; beside the peers' nearest kin."""

from typing import Any

from measure import OURS, Side, alternate, table
from venvs import RLLIB, SAMPLE_FACTORY

COLUMNS = {"samples a step": "samples_per_step", "policy lag": "lag", "best mean of 100 episodes": "best"}


FIRST_SEED = 101  # ours was tuned on others


def row(repeats: int) -> str:
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(repeats):
        for name, results in alternate(_sides(FIRST_SEED + turn), 1).items():
            found.setdefault(name, []).extend(results)
    title = "IMPALA, CartPole-v1, environment steps a second"
    return table(title, "steps_per_second", "steps/s", found, more=COLUMNS)


def _sides(seed: int) -> list[Side]:
    return [
        Side("millstream, IMPALA", OURS, "ours/impala.py", ("--seed", str(seed))),
        Side("RLlib, IMPALA", RLLIB.ready(), "peers/rllib_impala.py", ("impala",), limit=300),
        Side("RLlib, APPO", RLLIB.ready(), "peers/rllib_impala.py", ("appo",), limit=300),
        Side("Sample Factory, APPO", SAMPLE_FACTORY.ready(), "peers/sample_factory_impala.py", limit=300),
        Side("Sample Factory, APPO, vectorised environment", SAMPLE_FACTORY.ready(), "peers/sample_factory_impala.py",
             ("--batched",), limit=300),
    ]  # fmt: skip
