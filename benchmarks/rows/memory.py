"""Memory of one whole training of CartPole-v1, all processes: `make train` beside Stable-Baselines3's zoo settings."""

from measure import HERE, OURS, Side, alternate, figure, table
from venvs import SB3

TRAIN = ("train", "CartPole-v1", "--capture-video")  # what `make train` says to `mill`


def row(repeats: int) -> str:
    sides = [
        Side("millstream, as `make train` starts it", OURS, "ours/memory.py", (str(OURS.with_name("mill")), *TRAIN)),
        Side("Stable-Baselines3", OURS, "ours/memory.py", (str(SB3.ready()), str(HERE / "peers/sb3_train.py"))),
    ]
    found = alternate(sides, repeats)
    told = table("Memory of a whole training, CartPole-v1: peak of proportional set sizes", "megabytes", "MiB", found)
    counts = ", ".join(f"{name}: {figure(each, 'processes').median:.0f}" for name, each in found.items() if each)
    return f"{told}\n\nMost processes at once: {counts}."
