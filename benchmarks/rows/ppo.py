"""PPO on CartPole-v1 with equal settings: 64 x 128 steps, minibatch 2048, 4 epochs, two 64 x 64 tanh networks."""

from measure import OURS, Side, alternate, table
from venvs import REJAX, SB3


def row(repeats: int) -> str:
    sides = [
        Side("millstream, processes", OURS, "ours/ppo.py", ("--topology", "processes")),
        Side("millstream, inline strict", OURS, "ours/ppo.py", ("--topology", "inline")),
        Side("rejax", REJAX.ready(), "peers/rejax_ppo.py"),
        Side("Stable-Baselines3", SB3.ready(), "peers/sb3_ppo.py"),
    ]
    found = alternate(sides, repeats)
    return table("PPO, CartPole-v1, environment steps a second", "steps_per_second", "steps/s", found)
