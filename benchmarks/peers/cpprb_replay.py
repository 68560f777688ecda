"""cpprb: blocks of 64 transitions into its buffer in C++."""

import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from replay_work import BATCH, BLOCK, IMAGES, NUMBERS, ROOM, ROOM_IMAGES, block, fill, rate, told


def made(kind, about, room):
    shape, dtype = about
    columns = {
        "obs": {"shape": shape, "dtype": dtype}, "next_obs": {"shape": shape, "dtype": dtype},
        "action": {"dtype": np.int64}, "reward": {"dtype": np.float32},
        "terminated": {"dtype": np.bool_}, "truncated": {"dtype": np.bool_},
    }  # fmt: skip
    return kind(room, columns)


def main() -> None:
    measured = {}
    for prefix, about, room in (("", NUMBERS, ROOM), ("image_", IMAGES, ROOM_IMAGES)):
        buffer, given = made(ReplayBuffer, about, room), block(about)

        def add(buffer=buffer, given=given):
            buffer.add(**given)

        def sample(buffer=buffer):
            return buffer.sample(BATCH)

        fill(add, room)
        measured[f"{prefix}add"], measured[f"{prefix}sample"] = rate(add, BLOCK), rate(sample, BATCH)
    buffer, given = made(PrioritizedReplayBuffer, NUMBERS, ROOM), block(NUMBERS)
    priorities = np.random.default_rng(1).random(BATCH)
    fill(lambda: buffer.add(**given), ROOM)

    def surprised():
        picked = buffer.sample(BATCH)
        buffer.update_priorities(picked["indexes"], priorities)

    measured["prioritised"] = rate(surprised, BATCH)
    told(measured)


if __name__ == "__main__":
    main()
