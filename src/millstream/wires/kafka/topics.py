"""The topics of a run: their names, how they are made, and whose they are."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from millstream.core.errors import ConfigError, RunError, Unavailable
from millstream.core.topics import COMMANDS, EXPERIENCES, METRICS_ACTORS, METRICS_TRAINING, MODEL_UPDATES
from millstream.wires.kafka.cluster import PART_BYTES, PATIENCE, Cluster, words
from millstream.wires.kafka.looking import Looking

LANES = 16
"""Partitions of the experience: as many as a run has actors at most."""
OWNER = b"run"
"""The key of the record that says whose a prefix is."""
_DAY = 24 * 3600 * 1000
_ROOM = PART_BYTES + (64 << 10)
_SHARED = (COMMANDS.name, METRICS_TRAINING.name, METRICS_ACTORS.name)


@dataclass(frozen=True)
class Names:
    """Topic names of one experiment. Commands and metrics are everybody's, keyed by run."""

    prefix: str = ""

    @property
    def experiences(self) -> str:
        """Rollouts."""
        return self.prefix + EXPERIENCES.name

    @property
    def model_updates(self) -> str:
        """Weights and credit; compacted."""
        return self.prefix + MODEL_UPDATES.name

    @property
    def dead(self) -> str:
        """Messages that could not be learnt from, and why."""
        return f"{self.experiences}.dead"

    @property
    def all(self) -> tuple[str, ...]:
        """Those of the experiment, then those that are shared."""
        return self.experiences, self.model_updates, self.dead, *_SHARED


@dataclass(frozen=True)
class Keep:
    """How long the log of experience is kept."""

    hours: float | None = None
    bytes: int | None = None

    def settings(self) -> dict[str, str]:
        """As the broker says it."""
        share = -1 if self.bytes is None else max(1 << 20, self.bytes // LANES)
        milliseconds = -1 if self.hours is None else int(self.hours * 3600 * 1000)
        settings = {"retention.ms": str(milliseconds), "retention.bytes": str(share)}
        if share > 0:  # only whole segments go
            settings["segment.bytes"] = str(max(1 << 20, min(1 << 30, share // 4)))
        if milliseconds > 0:
            settings["segment.ms"] = str(max(1000, milliseconds // 4))
        return settings


ALL = Keep()


@dataclass(frozen=True)
class Owner:
    """Whose a prefix is, and what it runs."""

    run: str
    config: Mapping[str, Any]
    created_at: float


def create(cluster: Cluster, names: Names, keep: Keep = ALL, replication: int = 1) -> list[str]:
    """Make the topics that are missing; which they were. What is there stays as it is."""
    there = cluster.check()
    missing = [name for name in names.all if name not in there]
    if missing:
        admin = cluster.admin()  # held until all is done
        made = [_new(name, names, keep, replication) for name in missing]
        for name, future in admin.create_topics(made, operation_timeout=PATIENCE).items():
            _wait(future, f"the topic {name} could not be made", fine=KafkaError.TOPIC_ALREADY_EXISTS)
        _see(cluster, missing)
    return missing


def _see(cluster: Cluster, made: list[str]) -> None:
    """Wait until the brokers tell of topics that they have made."""
    ends = time.monotonic() + PATIENCE
    while not cluster.check().keys() >= set(made):
        if time.monotonic() > ends:
            raise Unavailable(f"the topics {', '.join(made)} were made, and the brokers do not tell of them")


def set_retention(cluster: Cluster, names: Names, keep: Keep) -> None:
    """A run that is resumed with another wish gets it."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in keep.settings().items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, names.experiences, incremental_configs=entries)
    admin = cluster.admin()  # held until it is done
    for future in admin.incremental_alter_configs([resource]).values():
        _wait(future, f"the retention of {names.experiences} could not be set")


def require(cluster: Cluster, names: Names) -> None:
    """One clear error when a topic is missing, or is not ours."""
    there = cluster.check()
    missing = [name for name in names.all if name not in there]
    if missing:
        raise ConfigError(
            f"the brokers at {cluster.bootstrap} have no topic {', '.join(missing)}; make them first: mill kafka init"
            + (f" --prefix {names.prefix}" if names.prefix else "")
        )
    if there[names.experiences] != LANES:
        raise ConfigError(
            f"the topic {names.experiences} has {there[names.experiences]} partitions, not {LANES}: "
            "it was not made by mill kafka init; choose another prefix: kafka.prefix"
        )


def claim(
    cluster: Cluster,
    run: str,
    config: Mapping[str, Any],
    now: float,
    *,
    prefix: str | None = None,
    keep: Keep = ALL,
    replication: int = 1,
) -> Names:
    """The topics of a run, made where they are missing: bare names for a broker's first, `<run>.` for every other."""
    for each in ("", f"{run}.") if prefix is None else (prefix,):
        names = Names(each)
        if owned_by(cluster, names) not in (None, run):
            continue  # nothing of another run is touched
        missing = create(cluster, names, keep, replication)
        if _claim(cluster, names, Owner(run, config, now)) == run:
            if names.experiences not in missing:
                set_retention(cluster, names, keep)
            return names
    raise ConfigError(
        f"the topic prefix {prefix!r} belongs to {owned_by(cluster, names)}; choose another: kafka.prefix"
    )


def find(cluster: Cluster, run: str | None, prefix: str | None = None) -> tuple[Names, Owner]:
    """The topics of a run that has claimed some; with no name, of the run that has the bare ones."""
    there = cluster.check()
    tried = [prefix] if prefix is not None else ["", f"{run}."] if run else [""]
    for each in tried:
        names = Names(each)
        owner = read_owner(cluster, names) if names.model_updates in there else None
        if owner is not None and run in (None, owner.run):
            return names, owner
    raise RunError(
        f"the brokers at {cluster.bootstrap} know no run {run or ''}".rstrip()
        + "; its learner makes it known: mill role learner, or mill train --topology kafka"
    )


def owned_by(cluster: Cluster, names: Names) -> str | None:
    """The run that has these topics."""
    there = names.model_updates in cluster.check()
    owner = read_owner(cluster, names) if there else None
    return owner.run if owner else None


def read_owner(cluster: Cluster, names: Names) -> Owner | None:
    """The record that the first learner wrote; compaction never moves it from its place at the beginning."""
    with Looking(cluster, names.model_updates) as looking:
        for message in looking.read(*looking.bounds()):
            if message.key() == OWNER:
                return Owner(**json.loads(message.value()))
    return None


def _claim(cluster: Cluster, names: Names, owner: Owner) -> str:
    """Write the record unless there is one; whose it is. Of two at once the transaction lets one through."""
    for _ in range(5):
        producer = cluster.producer({"transactional.id": f"{names.model_updates}.owner", "message.timeout.ms": 10_000})
        try:
            producer.init_transactions(PATIENCE)
            found = read_owner(cluster, names)
            if found is not None:
                return found.run
            producer.begin_transaction()
            about = {"run": owner.run, "config": owner.config, "created_at": owner.created_at}
            producer.produce(names.model_updates, json.dumps(about).encode(), OWNER)
            producer.commit_transaction(PATIENCE)
            return owner.run
        except KafkaException as error:
            last = error
    raise Unavailable(f"the topic {names.model_updates} could not be claimed: {words(last)}") from last


def _new(name: str, names: Names, keep: Keep, replication: int) -> NewTopic:
    settings = {"max.message.bytes": str(_ROOM)}
    partitions = 1
    if name == names.experiences:
        partitions, settings = LANES, {**settings, **keep.settings(), "cleanup.policy": "delete"}
    elif name == names.model_updates:
        settings |= {
            "cleanup.policy": "compact",
            "segment.bytes": str(128 << 20),
            "segment.ms": str(10 * 60 * 1000),
            "min.cleanable.dirty.ratio": "0.2",
        }
    elif name in (names.dead, COMMANDS.name):
        settings |= {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    else:
        settings |= {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY)}
    return NewTopic(name, num_partitions=partitions, replication_factor=replication, config=settings)


def _wait(future: Any, trouble: str, fine: int | None = None) -> None:
    try:
        future.result(PATIENCE)
    except KafkaException as error:
        if error.args[0].code() != fine:
            raise Unavailable(f"{trouble}: {words(error)}") from error
    except TimeoutError as error:
        raise Unavailable(f"{trouble}: the broker does not answer") from error
