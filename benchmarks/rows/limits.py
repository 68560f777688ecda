"""What bounds PPO on CartPole-v1 on this machine: each part alone, and all of them sharing the cores."""

import os

from measure import OURS, Figure, Side, alternate, figure

from rows.ppo import SETTINGS, STEPS, WARM

SECONDS = 3.0
WHOLE = "end to end, processes"


def row(repeats: int) -> str:
    parts = {
        threads: Side(f"the parts, learner threads: {threads}", OURS, "ours/limits.py",
                      (*SETTINGS, f"learner.threads={threads}", "--seconds", str(SECONDS)))
        for threads in (1, 2)
    }  # fmt: skip
    whole = Side(WHOLE, OURS, "ours/task.py", (*SETTINGS, "--warm", str(WARM), "--steps", str(STEPS)))
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
    return f"### Limits: PPO, CartPole-v1, environment steps a second\n\n{_table(rates)}\n\n{_verdict(rates, cores)}"


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
