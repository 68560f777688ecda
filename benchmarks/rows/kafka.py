"""Training over Kafka, with the broker on the same machine: beside processes, and beside the plain design."""

from brokers import started
from measure import OURS, Side, alternate, table

from rows.ppo import COLUMNS, SETTINGS, STEPS, WARM

ACTING_STEPS = 1_228_800


def row(repeats: int) -> str:
    with started() as address:
        kafka = ("topology=kafka", f"kafka.bootstrap={address}")
        words = ("--topology", "kafka", "--set", kafka[1])
        parts = (_training(kafka, repeats), _transport(address, repeats), _acting(kafka, repeats))
        return "\n\n".join((*parts, _large(address, repeats), _restart(words, repeats)))


def _training(kafka: tuple[str, ...], repeats: int) -> str:
    steps = ("--warm", str(WARM), "--steps", str(STEPS))
    found = _both("ours/task.py", (*SETTINGS, *steps), kafka, ("topology=processes",), repeats)
    title = "PPO over Kafka, CartPole-v1, environment steps a second"
    return table(title, "steps_per_second", "steps/s", found, more=COLUMNS)


def _transport(address: str, repeats: int) -> str:
    sides = [
        Side("millstream, a message a rollout", OURS, "ours/kafka_transport.py", (address,), limit=120),
        Side("plain design, a JSON message a transition", OURS, "peers/kafka_json.py", (address,), limit=120),
    ]
    title = "Experience through Kafka, transitions a second"
    return table(title, "transitions_per_second", "transitions/s", alternate(sides, repeats))


def _acting(kafka: tuple[str, ...], repeats: int) -> str:
    arguments = (*SETTINGS, "--steps", str(ACTING_STEPS))
    found = _both("ours/kafka_acting.py", arguments, kafka, ("topology=processes",), repeats)
    title = "From a policy of the learner to an actor that acts with it, while training, milliseconds"
    return table(title, "p99", "99th percentile", found, 1, {"50th percentile": "p50", "policies": "policies"})


def _large(address: str, repeats: int) -> str:
    side = Side("millstream, kafka", OURS, "ours/kafka_weights.py", (address,), limit=120)
    title = "A policy of 40 MB, from the learner to an actor, seconds"
    return table(title, "seconds", "s", alternate([side], repeats), 2, {"slowest": "slowest"})


def _restart(words: tuple[str, ...], repeats: int) -> str:
    found = _both("ours/kafka_restart.py", (), words, ("--topology", "processes"), repeats)
    more = {"slowest": "slowest", "from kill -9": "killed"}
    return table("From the start of a killed learner's successor to its first gradient", "started", "s", found, 2, more)


def _both(
    script: str, arguments: tuple[str, ...], kafka: tuple[str, ...], processes: tuple[str, ...], repeats: int
) -> dict[str, list[dict[str, float]]]:
    """The same work over Kafka and through shared memory."""
    sides = [
        Side("millstream, kafka", OURS, script, (*arguments, *kafka), limit=300),
        Side("millstream, processes", OURS, script, (*arguments, *processes), limit=300),
    ]
    return alternate(sides, repeats)
