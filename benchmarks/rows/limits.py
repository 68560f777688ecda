"""What bounds PPO on CartPole-v1 and Pong on this machine: each part alone, and all of them sharing the cores."""

import os

from measure import OURS, Figure, Side, alternate, figure

from rows import pong, ppo

SECONDS = 3.0
TASKS = {
    "CartPole-v1": (ppo.SETTINGS, ppo.WARM, ppo.STEPS),
    "Atari Pong": ((*pong.GAMES["ALE"], *pong.SHAPES, *pong.LEARNING), pong.WARM, pong.STEPS),
}
WHOLE = "end to end, processes"


def row(repeats: int) -> str:
    return "\n\n".join(_task(name, *task, repeats) for name, task in TASKS.items())


def _task(name: str, settings: tuple[str, ...], warm: int, steps: int, repeats: int) -> str:
    parts = {
        threads: Side(f"{name}, the parts, learner threads: {threads}", OURS, "ours/limits.py",
                      (*settings, f"learner.threads={threads}", "--seconds", str(SECONDS)))
        for threads in (1, 2)
    }  # fmt: skip
    whole = Side(WHOLE, OURS, "ours/task.py", (*settings, "--warm", str(warm), "--steps", str(steps)))
    found = alternate([*parts.values(), whole], repeats)
    one, two = found[parts[1].name], found[parts[2].name]
    cores = len(os.sched_getaffinity(0))
    rates = {
        "environment alone": figure(one, "environment"),
        "inference alone": figure(one, "inference"),
        "learner alone, one thread": figure(one, "learning"),
        "learner alone, two threads": figure(two, "learning"),
        "the actor: environment, inference, writing down": figure(one, "acting"),
        f"all of it, sharing {cores} cores": Figure(tuple(shared(each, cores) for each in one)),
        WHOLE: figure(found[WHOLE], "steps_per_second"),
    }
    return f"### Limits: PPO, {name}, environment steps a second\n\n{_table(rates)}\n\n{_verdict(rates, cores)}"


def shared(parts: dict[str, float], cores: int) -> float:
    """The bound when every core is always busy with one part or another, and a step needs all three."""
    return cores / sum(1 / parts[name] for name in ("environment", "inference", "learning"))


def _table(rates: dict[str, Figure]) -> str:
    lines = ["| part | median steps/s | spread | end to end / this |", "|---|---|---|---|"]
    for name, each in rates.items():
        low, high = each.spread
        share = rates[WHOLE].median / each.median
        lines.append(f"| {name} | {each.median:,.0f} | {low:,.0f} to {high:,.0f} | {share:.0%} |")
    return "\n".join(lines)


def _verdict(rates: dict[str, Figure], cores: int) -> str:
    stages = ("environment alone", "inference alone", "learner alone, two threads")
    tightest = min(stages, key=lambda name: rates[name].median)
    whole, bound = rates[WHOLE].median, rates[f"all of it, sharing {cores} cores"].median
    return (
        f"The tightest stage is the {tightest}: the whole reaches {whole / rates[tightest].median:.0%} of it, "
        f"and {whole / bound:.0%} of what all stages could do on {cores} cores that never wait."
    )
