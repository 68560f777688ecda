"""A policy of 40 MB on its way: seconds from the learner's publish until another process holds it."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import time

import numpy as np

from millstream.core.clock import SystemClock
from millstream.core.data import NONE, Params, Policy, Version
from millstream.hosts import shell
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.policies import KafkaPolicies
from millstream.wires.kafka.topics import Names, claim

NUMBERS = 10_000_000
"""Four bytes each."""
TIMES = 6


class Fetcher:
    """Looks for a newer policy, as an actor does before each rollout, and says when it has it."""

    def __init__(self, policies: KafkaPolicies, line: multiprocessing.connection.Connection) -> None:
        self.policies, self.line, self.version = policies, line, NONE

    def step(self) -> int:
        newer = self.policies.latest(self.version)
        if newer is None:
            return 0
        self.version = newer.version
        self.line.send((newer.version.number, time.monotonic(), float(newer.params.tensors["weights"][-1])))
        return 1


def fetch(address: str, names: Names, run: str, line: multiprocessing.connection.Connection) -> None:
    fetcher = Fetcher(KafkaPolicies(Cluster(address), names, run), line)
    shell.run([fetcher], SystemClock(), stopping=lambda: False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    address = parser.parse_args().address
    run, cluster = f"weights-{time.time_ns()}", Cluster(address)
    names = claim(cluster, run, {}, time.time(), prefix=f"{run}.")
    policies = KafkaPolicies(cluster, names, run)
    epoch = policies.take_over()
    spawn = multiprocessing.get_context("spawn")
    line, other = spawn.Pipe()
    fetcher = spawn.Process(target=fetch, args=(address, names, run, other), daemon=True)
    fetcher.start()
    weights, took = np.random.default_rng(0).standard_normal(NUMBERS).astype(np.float32), []
    for number in range(TIMES + 1):
        weights[-1] = number
        start = time.monotonic()
        policies.publish(Policy(Version(epoch, number), Params({"weights": weights})))
        arrived, at, last = line.recv()
        assert arrived == number == last
        took.append(at - start)
    fetcher.kill()
    policies.close()
    print(json.dumps({"seconds": float(np.median(took[1:])), "slowest": max(took[1:]), "first": took[0]}))


if __name__ == "__main__":
    main()
