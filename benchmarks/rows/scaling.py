"""How the throughput of PPO on CartPole-v1 grows with actors and environments: 128 steps, minibatch 2048, 4 epochs."""

from typing import Any

from measure import OURS, Side, alternate, figure

ACTORS, ENVS = (1, 2, 3), (16, 64, 256)
WARM, STEPS = 98_304, 786_432


def row(repeats: int) -> str:
    sides = {(actors, envs): _side(actors, envs) for actors in ACTORS for envs in ENVS}
    found = alternate(list(sides.values()), repeats)
    lines = [
        "### Scaling: PPO, CartPole-v1, environment steps a second",
        "",
        "| actors | " + " | ".join(f"{envs} environments each" for envs in ENVS) + " |",
        "|---" * (len(ENVS) + 1) + "|",
    ]
    for actors in ACTORS:
        cells = (_cell(found[sides[actors, envs].name]) for envs in ENVS)
        lines.append(f"| {actors} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(results: list[dict[str, Any]]) -> str:
    if not results:
        return "failed"
    rate = figure(results, "steps_per_second")
    return f"{rate.median:,.0f} ({rate.spread[0]:,.0f} to {rate.spread[1]:,.0f})"


def _side(actors: int, envs: int) -> Side:
    shape = (f"actor.count={actors}", f"actor.envs={envs}", "actor.unroll=128", "minibatch=2048", "epochs=4")
    steps = ("--warm", str(WARM), "--steps", str(STEPS))
    return Side(f"actors: {actors}, environments: {envs}", OURS, "ours/task.py", ("CartPole-v1", *shape, *steps))
