"""Replay buffers: transitions a second in and out, and what it costs when a table is large, or is many."""

from measure import OURS, Side, alternate, figure, table
from venvs import CPPRB, REVERB, SB3, TIANSHOU, TORCHRL

WORKS = {
    "add": "add, float32[4], blocks of 64",
    "sample": "sample 256, uniform, float32[4]",
    "prioritised": "sample 256 by priority and give priorities back, float32[4]",
    "image_add": "add, uint8[84, 84, 4], blocks of 64",
    "image_sample": "sample 256, uniform, uint8[84, 84, 4]",
}
CAPACITIES = {10_000: "10 thousand", 100_000: "100 thousand", 1_000_000: "1 million", 10_000_000: "10 million"}
NAIVE = 2 * 84 * 84 * 4
ALONE = "millstream, tables of every size, pools and bytes"


def row(repeats: int) -> str:
    ours = {
        f"millstream, {words}": Side(f"millstream, {words}", OURS, "ours/replay.py", arguments)
        for words, arguments in (
            ("rollouts of 8 steps x 8 slots", ("--steps", "8")),
            ("rollouts of 1 step x 64 slots", ("--steps", "1")),
            ("8 x 8, frames kept apart", ("--steps", "8", "--frames")),
        )
    }
    peers = [
        Side("Stable-Baselines3", SB3.ready(), "peers/sb3_replay.py"),
        Side("cpprb", CPPRB.ready(), "peers/cpprb_replay.py"),
        Side("TorchRL", TORCHRL.ready(), "peers/torchrl_replay.py"),
        Side("Tianshou", TIANSHOU.ready(), "peers/tianshou_replay.py"),
        Side("Reverb", REVERB.ready(), "peers/reverb_replay.py"),
    ]
    found = alternate([*ours.values(), *peers, Side(ALONE, OURS, "ours/replay.py", ("--more",))], repeats)
    alone = found.pop(ALONE)
    parts = []
    for key, words in WORKS.items():
        able = {name: [each for each in results if key in each] for name, results in found.items()}
        results = {name: each for name, each in able.items() if each or not found[name]}
        parts.append(table(f"Replay: {words}, transitions a second", key, "transitions/s", results))
    return "\n\n".join([*parts, _sizes(alone), _shards(alone), _bytes(alone)])


def _sizes(alone: list[dict[str, float]]) -> str:
    lines = ["### Replay: a sample of 256 by the size of its table, microseconds", ""]
    lines += ["| transitions in the table | median µs | spread | to the smallest |", "|---|---|---|---|"]
    smallest = figure(alone, f"sample_{min(CAPACITIES)}").median
    for capacity, words in CAPACITIES.items():
        each = figure(alone, f"sample_{capacity}")
        low, high = each.spread
        lines.append(f"| {words} | {each.median:.1f} | {low:.1f} to {high:.1f} | {each.median / smallest:.2f} |")
    return "\n".join(lines)


def _shards(alone: list[dict[str, float]]) -> str:
    lines = ["### Replay: a pool of 8 shards beside one table of the same size (a million), microseconds", ""]
    lines += ["| sample of 256 | one table | pool of 8 | pool / table |", "|---|---|---|---|"]
    for key, words in (("uniform", "uniform"), ("prioritised", "by priority, and priorities given back")):
        one, pool = figure(alone, f"{key}_table").median, figure(alone, f"{key}_pool").median
        lines.append(f"| {words} | {one:.1f} | {pool:.1f} | {pool / one:.2f} |")
    return "\n".join(lines)


def _bytes(alone: list[dict[str, float]]) -> str:
    each = figure(alone, "image_bytes").median
    return (
        f"A million transitions of 84 x 84 x 4 bytes take {each / 1e3:.2f} GB with frames kept once, "
        f"{each / NAIVE:.0%} of the {NAIVE / 1e3:.1f} GB of observations written twice."
    )
