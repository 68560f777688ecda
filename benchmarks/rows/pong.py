"""PPO on Atari's Pong: 8 x 128 steps, minibatch 256, 4 epochs, the Nature CNN, 1,687,719 weights on every side.

All sides see four grey frames of 84 x 84, skip four, clip rewards and end episodes with a life.
"""

from measure import OURS, Side, alternate, table
from venvs import CLEANRL_ENVPOOL, SB3_WORLDS

WARM, STEPS = 1_024, 8_192
GAMES = {
    "ALE": ("ALE/Pong-v5", "env.args.clip_rewards=true", "env.args.terminal_on_life_loss=true",
            "env.args.repeat_action_probability=0"),
    "EnvPool": ("envpool:Pong-v5", "env.args.reward_clip=true", "env.args.episodic_life=true"),
}  # fmt: skip
SHAPES = ("actor.envs=8", "actor.unroll=128", "minibatch=256", "epochs=4", "network.hidden=[]")
LEARNING = ("learning_rate=2.5e-4", "clip=0.1", "entropy=0.01")


def row(repeats: int) -> str:
    steps = ("--warm", str(WARM), "--steps", str(STEPS))
    sides = [
        Side(f"millstream, {topology}, {maker}", OURS, "ours/task.py",
             (*GAMES[maker], *SHAPES, *LEARNING, f"topology={topology}", *steps))
        for topology, maker in (("processes", "ALE"), ("processes", "EnvPool"), ("inline", "ALE"))
    ]  # fmt: skip
    sides += [
        Side(f"Stable-Baselines3, ALE, {vector}", SB3_WORLDS.ready(), "peers/sb3_pong.py", (*steps, "--vector", vector))
        for vector in ("dummy", "subproc")
    ]
    sides.append(Side("CleanRL, EnvPool", CLEANRL_ENVPOOL.ready(), "peers/cleanrl_pong.py", steps, limit=300))
    found = alternate(sides, repeats)
    return table("PPO, Atari Pong, environment steps a second", "steps_per_second", "steps/s", found)
