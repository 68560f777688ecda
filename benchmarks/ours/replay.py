"""Tables and pools of Millstream: how fast they take steps in and give them out, and how much memory they need."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import Rollout, Stamp, Version
from millstream.replay.cut import transitions
from millstream.replay.pool import Pool
from millstream.replay.select import Prioritised
from millstream.replay.table import Table

sys.path.append(str(Path(__file__).parents[1] / "peers"))
from replay_work import BATCH, BLOCK, IMAGES, NUMBERS, ROOM, ROOM_IMAGES, block, fill, rate, told

CAPACITIES = (10_000, 100_000, 1_000_000, 10_000_000)
SHARDS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="steps of a rollout of 64 transitions")
    parser.add_argument("--frames", action="store_true", help="images alone, as frames that whoever reads them stacks")
    parser.add_argument("--more", action="store_true", help="measure what no peer is measured for, instead")
    arguments = parser.parse_args()
    told(more() if arguments.more else framed(arguments.steps) if arguments.frames else measured(arguments.steps))


def measured(steps: int) -> dict[str, float]:
    """What peers are measured for too."""
    found = {}
    for prefix, about, room in (("", NUMBERS, ROOM), ("image_", IMAGES, ROOM_IMAGES)):
        table, rollout = Table(transitions(), capacity=room), rollout_of(about, steps)
        fill(_insert(table, rollout), room)
        found[f"{prefix}add"] = rate(_insert(table, rollout), BLOCK)
        found[f"{prefix}sample"] = rate(_sample(table), BATCH)
    found["prioritised"] = rate(_surprised(filled(Table, ROOM, Prioritised())), BATCH)
    return found


def more() -> dict[str, float]:
    """Sampling from small to large, from one table and from shards, and bytes of a step of images."""
    found = {
        f"sample_{capacity}": 1e6 * BATCH / rate(_sample(filled(Table, capacity)), BATCH) for capacity in CAPACITIES
    }
    for name, work, select in (("uniform", _sample, None), ("prioritised", _surprised, Prioritised())):
        found[f"{name}_table"] = 1e6 * BATCH / rate(work(filled(Table, 1_000_000, select)), BATCH)
        found[f"{name}_pool"] = 1e6 * BATCH / rate(work(filled(Pool, 1_000_000 // SHARDS, select)), BATCH)
    return found | {"image_bytes": image_bytes(100_000)}


def framed(steps: int) -> dict[str, float]:
    """The same images as frames of 84 x 84, each kept once; a sample has the five that two stacks of four show."""
    table, rollout = Table(transitions(), capacity=ROOM_IMAGES), frames_of(steps, BLOCK // steps)
    fill(_insert(table, rollout), ROOM_IMAGES)
    return {"image_add": rate(_insert(table, rollout), BLOCK), "image_sample": rate(_sample(table), BATCH)}


def image_bytes(room: int) -> float:
    """Bytes for each transition of 84 x 84 pixels, four frames stacked, in rollouts of 32 steps of 8 slots."""
    table = Table(transitions(), capacity=room)
    table.insert(frames_of(32, 8))
    return float(table.store.memory.size / room)


def frames_of(steps: int, slots: int) -> Rollout:
    """A rollout whose observations are single frames, with the three that came before."""
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 255, (steps + 1, slots, 84, 84)).astype(np.uint8)
    carry = {"frames/obs": rng.integers(0, 255, (slots, 3, 84, 84)).astype(np.uint8)}
    ends = np.zeros((2, steps, slots), bool)
    return assembled(seen, np.zeros((steps, slots), np.int64), np.zeros((steps, slots), np.float32), ends, carry)


def filled(kind: Any, capacity: int, select: Any = None) -> Any:
    """A table, or a pool, that has no more room."""
    rollout = rollout_of(NUMBERS, 8)
    made = kind(transitions(), select, capacity=capacity, **({"shards": SHARDS} if kind is Pool else {}))
    fill(_insert(made, rollout), capacity * (SHARDS if kind is Pool else 1))
    return made


def rollout_of(about: tuple[tuple[int, ...], Any], steps: int) -> Rollout:
    """The same 64 transitions as a rollout of so many steps."""
    given, slots = block(about), BLOCK // steps
    seen = given["obs"].reshape(steps, slots, *about[0])
    seen = np.concatenate([seen, given["next_obs"][:slots][None]])
    ends = np.array([given["terminated"], given["truncated"]]).reshape(2, steps, slots)
    return assembled(seen, given["action"].reshape(steps, slots), given["reward"].reshape(steps, slots), ends, {})


def assembled(seen: Any, actions: Any, rewards: Any, ends: Any, carry: dict[str, Any]) -> Rollout:
    """A rollout whose episodes end with the observation that is next in it."""
    steps, slots = rewards.shape
    over = ends.any(axis=0)
    first = np.concatenate([np.zeros((1, slots), bool), over])
    stamp = Stamp("replay", 0, 0, 0, Version(0, 0), 0.0)
    return Rollout(
        {"obs": seen}, {"obs": seen[1:][over]}, np.argwhere(over), actions, rewards, ends[0], ends[1], first,
        np.ones((steps, slots), bool), carry, {}, stamp,
    )  # fmt: skip


def _insert(table: Any, rollout: Rollout) -> Callable[[], object]:
    return lambda: table.insert(rollout)


def _sample(table: Any) -> Callable[[], object]:
    return lambda: table.sample(BATCH)


def _surprised(table: Any) -> Callable[[], object]:
    priorities = np.random.default_rng(1).random(BATCH)

    def work() -> None:
        table.reprioritise(table.sample(BATCH).keys, priorities)

    return work


if __name__ == "__main__":
    main()
