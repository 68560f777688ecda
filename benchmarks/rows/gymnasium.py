"""PPO on plain Python environments of Gymnasium: 8192 steps an update, minibatch 2048, 4 epochs on all sides."""

from measure import OURS, Side, alternate, figure, table
from venvs import SB3_WORLDS

ENVS = ("LunarLander-v3", "Acrobot-v1")
WARM, STEPS = 8_192, 40_960
LEARNING = ("minibatch=2048", "epochs=4")
OUR_SHAPES = {1: 64, 2: 32}  # actors: environments in each
PEER_SHAPES = (("dummy", 8), ("dummy", 16), ("dummy", 64), ("subproc", 8))  # more processes are slower on few cores
LIMIT = "limit: two processes, random actions, no learning"


def row(repeats: int) -> str:
    return "\n\n".join(_env(env, repeats) for env in ENVS)


def _env(env: str, repeats: int) -> str:
    steps = ("--warm", str(WARM), "--steps", str(STEPS))
    ours = [
        Side(f"millstream, actors: {actors}, environments: {envs} each", OURS, "ours/task.py",
             (env, *steps, f"actor.count={actors}", f"actor.envs={envs}", "actor.unroll=128", *LEARNING))
        for actors, envs in OUR_SHAPES.items()
    ]  # fmt: skip
    peers = [
        Side(f"Stable-Baselines3, {vector}, environments: {envs}", SB3_WORLDS.ready(), "peers/sb3_task.py",
             (env, *steps, "--envs", str(envs), "--vector", vector))
        for vector, envs in PEER_SHAPES
    ]  # fmt: skip
    limit = Side(LIMIT, OURS, "ours/world.py", (env,))
    found = alternate([*ours, *peers, limit], repeats)
    rates = {name: figure(results, "steps_per_second").median for name, results in found.items() if results}
    best = max((side.name for side in ours if side.name in rates), key=rates.__getitem__)
    first = {best: found[best], **found}  # the side that ratios are of stands first
    told = table(f"PPO, {env}, environment steps a second", "steps_per_second", "steps/s", first)
    beaten = rates[best] / max(rates[side.name] for side in peers if side.name in rates)
    return (
        f"{told}\n\nThe faster of ours is {beaten:.2f} times as fast as the fastest of Stable-Baselines3, "
        f"and reaches {rates[best] / rates[LIMIT]:.0%} of the limit."
    )
