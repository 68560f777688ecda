"""TorchRL: a buffer of tensordicts over a tensor storage.

Its priorities need a tree in C++ that its wheels do not load beside every torch; without it they are left out.
"""

import sys

import torch
from replay_work import BATCH, BLOCK, IMAGES, NUMBERS, ROOM, ROOM_IMAGES, block, fill, rate, told
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer, TensorDictReplayBuffer


def main() -> None:
    torch.set_num_threads(1)
    measured = {}
    for prefix, about, room in (("", NUMBERS, ROOM), ("image_", IMAGES, ROOM_IMAGES)):
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(room), batch_size=BATCH)
        given = steps(about)

        def add(buffer=buffer, given=given):
            buffer.extend(given)

        fill(add, room)
        measured[f"{prefix}add"], measured[f"{prefix}sample"] = rate(add, BLOCK), rate(buffer.sample, BATCH)
    try:
        measured["prioritised"] = by_priority()
    except RuntimeError as error:
        print(error, file=sys.stderr)
    told(measured)


def by_priority() -> float:
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=0.6, beta=0.4, storage=LazyTensorStorage(ROOM), batch_size=BATCH, priority_key="priority"
    )
    given, priorities = steps(NUMBERS), torch.rand(BATCH)
    fill(lambda: buffer.extend(given), ROOM)

    def surprised():
        picked = buffer.sample()
        picked["priority"] = priorities
        buffer.update_tensordict_priority(picked)

    return rate(surprised, BATCH)


def steps(about):
    return TensorDict({name: torch.from_numpy(array) for name, array in block(about).items()}, batch_size=[BLOCK])


if __name__ == "__main__":
    main()
