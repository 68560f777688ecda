"""Experience through the bus on Kafka: one process sends as an actor does, one takes as a learner does."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time

import numpy as np

from millstream.core.clock import SystemClock
from millstream.core.codec import Layout, rollout_of
from millstream.core.data import Rollout, Stamp, Version
from millstream.core.ports import Bus, Subscription
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import EXPERIENCES
from millstream.hosts import shell
from millstream.wires.kafka.bus import KafkaBus
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.policies import KafkaPolicies
from millstream.wires.kafka.topics import Names, claim

STEPS, SLOTS, WINDOW = 128, 64, 4
WARM, COUNT = 409_600, 4_096_000
SPEC = EnvSpec("CartPole-v1", {"obs": Box((4,))}, Discrete(2))
SAID = {name: np.zeros(SLOTS, np.float32) for name in ("log_prob", "values")}
LAYOUT = Layout.of(SPEC, STEPS, SLOTS, {}, SAID)


class Sender:
    """Writes a rollout into the memory that the bus gives, again and again."""

    def __init__(self, bus: Bus, run: str) -> None:
        self.bus, self.run, self.sequence, self.epoch = bus, run, 0, time.time_ns() // 1000
        rng = np.random.default_rng(0)
        self.made = {
            path: rng.standard_normal(shape).astype(dtype) if dtype == "<f4" else np.zeros(shape, dtype)
            for path, (dtype, shape, _) in LAYOUT.arrays.items()
            if "final" not in path  # no episode ends
        }
        self.made["valid"][:] = True
        self.made["actions"][:] = rng.integers(0, 2, (STEPS, SLOTS))

    def step(self) -> int:
        memory = self.bus.claim(EXPERIENCES, 0, LAYOUT.size)
        if memory is None:
            return 0
        arrays = LAYOUT.views(memory)
        for path, array in self.made.items():
            arrays[path][...] = array
        stamp = Stamp(self.run, 0, self.epoch, self.sequence, Version(0, 0), time.time())
        sent = self.bus.publish(EXPERIENCES, rollout_of(arrays, STEPS, 0, stamp))
        self.sequence += sent
        return int(sent)


class Taker:
    """Takes rollouts and gives credit back at once."""

    def __init__(self, subscription: Subscription[Rollout]) -> None:
        self.subscription = subscription
        self.seen = self.warm = 0
        self.start = self.end = 0.0

    @property
    def rate(self) -> float:
        return (self.seen - self.warm) / (self.end - self.start)

    @property
    def done(self) -> bool:
        return bool(self.start) and self.seen >= self.warm + COUNT

    def step(self) -> int:
        deliveries = self.subscription.poll(WINDOW)
        for delivery in deliveries:
            self.seen += delivery.message.count
            self.subscription.release(delivery.message.stamp)
        if deliveries:
            self.end = time.perf_counter()
        if not self.start and self.seen >= WARM:
            self.start, self.warm = time.perf_counter(), self.seen
        return len(deliveries)


def send(address: str, names: Names, run: str) -> None:
    cluster = Cluster(address)
    sender = Sender(KafkaBus(cluster, names, run, KafkaPolicies(cluster, names, run), WINDOW), run)
    shell.run([sender], SystemClock(), stopping=lambda: False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    address = parser.parse_args().address
    run, cluster = f"transport-{time.time_ns()}", Cluster(address)
    names = claim(cluster, run, {}, time.time(), prefix=f"{run}.")
    policies = KafkaPolicies(cluster, names, run)
    policies.take_over()
    taker = Taker(KafkaBus(cluster, names, run, policies).subscribe(EXPERIENCES, "learner"))
    sender = multiprocessing.get_context("spawn").Process(target=send, args=(address, names, run), daemon=True)
    sender.start()
    shell.run([taker], SystemClock(), stopping=lambda: taker.done)
    sender.kill()
    print(json.dumps({"transitions_per_second": taker.rate}))


if __name__ == "__main__":
    main()
