"""The plain design: one JSON message a transition, (state, action, reward, next_state, done), through the same client.

Acknowledged by all replicas and idempotent as ours is; all else as the client does it by itself, which sends and
fetches in batches. The values are plain numbers before the clock starts, and are left as they are when they arrive.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from itertools import cycle
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WARM, COUNT = 20_000, 200_000
PARTITIONS, BATCH = 16, 500


def transitions() -> list[dict[str, Any]]:
    """As CartPole shows them: float32, which JSON writes in full."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((4097, 4)).astype(np.float32).tolist()
    actions = rng.integers(0, 2, 4096).tolist()
    return [
        {"state": state, "action": action, "reward": 1.0, "next_state": following, "done": index % 200 == 199}
        for index, (state, action, following) in enumerate(zip(states, actions, states[1:], strict=False))
    ]


def send(address: str, topic: str) -> None:
    """An actor that has nothing else to do."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True})
    for transition in cycle(transitions()):
        body = json.dumps(transition)
        while not _taken(producer, topic, body):
            producer.poll(0.01)
        producer.poll(0)


def _taken(producer: Producer, topic: str, body: str) -> bool:
    try:
        producer.produce(topic, body, key="actor-0")
    except BufferError:  # as many wait as the client lets wait
        return False
    return True


def receive(address: str, topic: str) -> float:
    """A learner that has nothing else to do: transitions a second."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen, start, warm = 0, 0.0, 0
    while not start or seen < warm + COUNT:
        found = [json.loads(message.value()) for message in consumer.consume(BATCH, timeout=1.0)]
        seen += len(found)
        if not start and seen >= WARM:
            start, warm = time.perf_counter(), seen
    seconds = time.perf_counter() - start
    consumer.close()
    return (seen - warm) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    address = parser.parse_args().address
    topic = f"json-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": address})  # it must outlive what it was asked for
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    sender = multiprocessing.get_context("spawn").Process(target=send, args=(address, topic), daemon=True)
    sender.start()
    rate = receive(address, topic)
    sender.kill()
    print(json.dumps({"transitions_per_second": rate}))


if __name__ == "__main__":
    main()
