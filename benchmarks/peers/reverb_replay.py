"""Reverb: a server in this process and a client of it, as one machine would use it. Images are left out."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import reverb
from replay_work import BATCH, BLOCK, NUMBERS, block, rate, told

ROOM = 20_000


def main() -> None:
    tables = [
        reverb.Table(name, picked, reverb.selectors.Fifo(), ROOM, reverb.rate_limiters.MinSize(1))
        for name, picked in (("even", reverb.selectors.Uniform()), ("by_priority", reverb.selectors.Prioritized(0.6)))
    ]
    server = reverb.Server(tables)
    client = reverb.Client(f"localhost:{server.port}")
    given = block(NUMBERS)
    steps = [{name: array[i] for name, array in given.items()} for i in range(BLOCK)]
    writer = client.trajectory_writer(num_keep_alive_refs=1)

    def add(table="even"):
        for step in steps:
            writer.append(step)
            writer.create_item(table, 1.0, {name: column[-1:] for name, column in writer.history.items()})
        writer.flush()

    for _ in range(ROOM // BLOCK):
        add("by_priority")
        add()
    measured = {"add": rate(add, BLOCK), "sample": rate(lambda: picked(client, "even"), BATCH)}
    priorities = np.random.default_rng(1).random(BATCH).tolist()

    def surprised():
        found = picked(client, "by_priority")
        client.mutate_priorities("by_priority", dict(zip(found, priorities, strict=True)))

    measured["prioritised"] = rate(surprised, BATCH)
    told(measured)


def picked(client, table):
    """Keys of what was read, array by array."""
    return [sample[0].info.key for sample in client.sample(table, BATCH)]


if __name__ == "__main__":
    main()
