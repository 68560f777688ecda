"""PPO on CartPole-v1 with equal settings: 64 x 128 steps, minibatch 2048, 4 epochs, two 64 x 64 tanh networks."""

from measure import OURS, Side, alternate, table
from venvs import CLEANRL, REJAX, RLLIB, SAMPLE_FACTORY, SB3, TIANSHOU

SETTINGS = ("CartPole-v1", "actor.envs=64", "actor.unroll=128", "minibatch=2048", "epochs=4")
"""What `ours/task.py` is told; step size, discount and trace are the defaults of PPO."""
WARM, STEPS = 81_920, 1_638_400
PEER_WARM, PEER_STEPS = 16_384, 163_840
COLUMNS = {"samples a step": "samples_per_step", "policy lag": "lag"}


def row(repeats: int) -> str:
    steps = ("--warm", str(WARM), "--steps", str(STEPS))
    sides = [
        Side("millstream, processes", OURS, "ours/task.py", (*SETTINGS, "topology=processes", *steps)),
        Side("millstream, inline strict", OURS, "ours/task.py", (*SETTINGS, "topology=inline", *steps)),
        Side("rejax", REJAX.ready(), "peers/rejax_ppo.py"),
        Side("Stable-Baselines3", SB3.ready(), "peers/sb3_task.py",
             ("CartPole-v1", "--warm", str(PEER_WARM), "--steps", str(PEER_STEPS))),
        Side("CleanRL", CLEANRL.ready(), "peers/cleanrl_ppo.py", limit=300),
        Side("Tianshou", TIANSHOU.ready(), "peers/tianshou_ppo.py", limit=300),
        Side("RLlib", RLLIB.ready(), "peers/rllib_ppo.py", limit=300),
        Side("Sample Factory", SAMPLE_FACTORY.ready(), "peers/sample_factory_ppo.py", limit=300),
    ]  # fmt: skip
    found = alternate(sides, repeats)
    title = "PPO, CartPole-v1, environment steps a second"
    return table(title, "steps_per_second", "steps/s", found, more=COLUMNS)
