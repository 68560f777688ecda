"""Tianshou: 64 buffers side by side, one for each environment, that add a step at once."""

import numpy as np
from replay_work import BATCH, BLOCK, IMAGES, NUMBERS, ROOM, ROOM_IMAGES, block, fill, rate, told
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer


def main() -> None:
    measured = {}
    for prefix, about, room in (("", NUMBERS, ROOM), ("image_", IMAGES, ROOM_IMAGES)):
        buffer, given = VectorReplayBuffer(room, BLOCK), steps(about)

        def add(buffer=buffer, given=given):
            buffer.add(given)

        def sample(buffer=buffer):
            return buffer.sample(BATCH)

        fill(add, room)
        measured[f"{prefix}add"], measured[f"{prefix}sample"] = rate(add, BLOCK), rate(sample, BATCH)
    buffer, given = PrioritizedVectorReplayBuffer(ROOM, BLOCK, alpha=0.6, beta=0.4), steps(NUMBERS)
    priorities = np.random.default_rng(1).random(BATCH)
    fill(lambda: buffer.add(given), ROOM)

    def surprised():
        _, indices = buffer.sample(BATCH)
        buffer.update_weight(indices, priorities)

    measured["prioritised"] = rate(surprised, BATCH)
    told(measured)


def steps(about):
    given = block(about)
    return Batch(
        obs=given["obs"], act=given["action"], rew=given["reward"], terminated=given["terminated"],
        truncated=given["truncated"], obs_next=given["next_obs"], info=Batch(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
