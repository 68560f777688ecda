"""IMPALA on CartPole-v1: unroll 20, 64 environments, each step learnt from once; beside the peers' nearest kin."""

from measure import OURS, Side, alternate, table
from venvs import RLLIB, SAMPLE_FACTORY

COLUMNS = {"samples a step": "samples_per_step", "policy lag": "lag", "best mean of 100 episodes": "best"}


def row(repeats: int) -> str:
    sides = [
        Side("millstream, IMPALA", OURS, "ours/impala.py"),
        Side("RLlib, IMPALA", RLLIB.ready(), "peers/rllib_impala.py", ("impala",), limit=300),
        Side("RLlib, APPO", RLLIB.ready(), "peers/rllib_impala.py", ("appo",), limit=300),
        Side("Sample Factory, APPO", SAMPLE_FACTORY.ready(), "peers/sample_factory_impala.py", limit=300),
        Side("Sample Factory, APPO, vectorised environment", SAMPLE_FACTORY.ready(), "peers/sample_factory_impala.py",
             ("--batched",), limit=300),
    ]  # fmt: skip
    found = alternate(sides, repeats)
    title = "IMPALA, CartPole-v1, environment steps a second"
    return table(title, "steps_per_second", "steps/s", found, more=COLUMNS)
