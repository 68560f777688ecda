"""Stable-Baselines3's replay buffer: 64 environments add a step at once. It has no priorities."""

import numpy as np
from gymnasium.spaces import Box, Discrete
from replay_work import BATCH, BLOCK, IMAGES, NUMBERS, ROOM, ROOM_IMAGES, block, fill, rate, told
from stable_baselines3.common.buffers import ReplayBuffer


def main() -> None:
    measured = {}
    for prefix, about, room in (("", NUMBERS, ROOM), ("image_", IMAGES, ROOM_IMAGES)):
        space = Box(0, 255, about[0], about[1])
        buffer = ReplayBuffer(room, space, Discrete(6), "cpu", n_envs=BLOCK)
        given = block(about)
        # it is told of time limits as its environments tell it
        infos = [{"TimeLimit.truncated": True} if cut else {} for cut in given["truncated"]]
        done = np.logical_or(given["terminated"], given["truncated"])
        steps = given["obs"], given["next_obs"], given["action"][:, None], given["reward"], done, infos

        def add(buffer=buffer, steps=steps):
            buffer.add(*steps)

        def sample(buffer=buffer):
            return buffer.sample(BATCH)

        fill(add, room)
        measured[f"{prefix}add"], measured[f"{prefix}sample"] = rate(add, BLOCK), rate(sample, BATCH)
    told(measured)


if __name__ == "__main__":
    main()
