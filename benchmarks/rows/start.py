"""From the command to the first training step, CartPole-v1: `mill train` beside Stable-Baselines3's zoo settings.

Ours is timed until a whole rollout of 1,024 steps is made, the peer until one step of its 8 environments is.
"""

from measure import OURS, Side, alternate, table
from venvs import SB3

CACHED = {"PYTHONDONTWRITEBYTECODE": ""}  # as on every machine where a program runs for the second time


def row(repeats: int) -> str:
    sides = [
        Side("millstream", OURS, "ours/start.py", environ=CACHED),
        Side("Stable-Baselines3", SB3.ready(), "peers/sb3_start.py", environ=CACHED),
    ]
    found = {name: results[1:] for name, results in alternate(sides, repeats + 1).items()}  # the first fills the caches
    return "\n\n".join(
        table(f"From the command to the {name}, CartPole-v1", key, "s", found, digits=2)
        for name, key in (("first environment steps", "first_steps"), ("end of the first update", "first_update"))
    )
