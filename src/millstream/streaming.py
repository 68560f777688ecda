"""A run on Kafka: its topics, and its workers, which need no root. They are the same roles as everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millstream import assembly
from millstream import config as configuration
from millstream.assembly import Wiring
from millstream.config import Experiment, LogConfig
from millstream.control.commands import Stop as StopCommand
from millstream.control.commands import as_request
from millstream.control.follower import Follower
from millstream.control.lock import RunLock
from millstream.control.state import Desired, beginning
from millstream.core.clock import SystemClock
from millstream.core.errors import Fenced, RunError
from millstream.core.ports import Bus, Clock, Role
from millstream.core.topics import COMMANDS
from millstream.crew import environment
from millstream.hosts.heartbeat import Heartbeat
from millstream.hosts.process import Brief, ProcessHost
from millstream.replay.admission import objection
from millstream.wires.channel import Channel
from millstream.wires.kafka import topics
from millstream.wires.kafka.bus import KafkaBus
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.policies import KafkaPolicies
from millstream.wires.kafka.topics import Keep, Names
from millstream.wires.memory import MemoryBus
from millstream.wires.shared import SharedBus

_LAST_WORDS = 20.0
"""Seconds that workers of an earlier root have to save and end."""


# --- topics ----------------------------------------------------------------------------------------------------------


def cluster_of(config: Experiment) -> Cluster:
    """The brokers of an experiment."""
    kafka = config.kafka
    return Cluster(kafka.bootstrap, kafka.client, kafka.compression)


def keep_of(log: LogConfig) -> Keep:
    """How long the log is kept."""
    return Keep(hours=log.hours if log.keep == "hours" else None, bytes=log.bytes if log.keep == "bytes" else None)


def claim(config: Experiment, run: str, clock: Clock) -> Names:
    """The topics of a run, made where they are missing."""
    kafka = config.kafka
    return topics.claim(
        cluster_of(config),
        run,
        configuration.to_plain(config),
        clock.now(),
        prefix=kafka.prefix,
        keep=keep_of(config.log),
        replication=kafka.replication,
    )


# --- workers ---------------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """A worker's connection to the brokers."""

    bus: KafkaBus
    policies: KafkaPolicies

    def close(self) -> None:
        """Send what is left, and let go."""
        self.policies.close()
        self.bus.close()


def connect(config: Experiment, names: Names, run: str, since: float | None = None) -> Line:
    """Bus and policies of a run whose topics are there."""
    cluster = cluster_of(config)
    policies = KafkaPolicies(cluster, names, run)
    window = assembly.window_of(config, timed=True)
    return Line(KafkaBus(cluster, names, run, policies, window, since=since), policies)


def run_worker(order: Mapping[str, Any], config: Experiment, channel: Channel, ending: Callable[[], bool]) -> None:
    """A worker that a root started. It outlives the root: then commands come from the brokers alone."""
    names, folder = Names(order["prefix"]), Path(order["folder"])
    home = SharedBus((), channel)
    at_home = Follower(home.subscribe(COMMANDS, "worker"), Desired(**order["desired"]))
    beat = Heartbeat(home, assembly.beats_on(order["role"]), _name(order), order["epoch"], SystemClock())
    run_role(
        order["role"], order["index"], config, names, folder,
        ending=lambda: ending() or at_home.stopping(),
        besides=[at_home, beat],
        alone=lambda: channel.closed,
    )  # fmt: skip


def run_role(
    role: str,
    index: int,
    config: Experiment,
    names: Names,
    folder: Path,
    *,
    ending: Callable[[], bool],
    besides: list[Role] | None = None,
    alone: Callable[[], bool] = lambda: True,
) -> None:
    """One role of a run on Kafka, until a command stops it, it is told to end, or all steps are trained."""
    line = connect(config, names, folder.name)
    try:
        follower = follow(line.bus, config)
        if follower.stopping():
            raise RunError(f"{folder.name} was stopped; mill resume {folder.name} lets it go on")
        wiring = wire(role, config, line, folder)
        beat = Heartbeat(
            line.bus, assembly.beats_on(role), f"{role}-{index}", wiring.epoch, wiring.clock, lambda: _load(line)
        )
        roles = assembly.work(role, index, config, wiring, follower, [*(besides or []), beat], ending, alone)
        if alone() and assembly.finished(roles):
            line.bus.publish(COMMANDS, as_request(StopCommand("all steps are trained")))
    finally:
        line.close()


def wire(role: str, config: Experiment, line: Line, folder: Path) -> Wiring:
    """Only the learner writes policies, in an epoch of its own; an actor's epoch is the moment of its start."""
    clock = SystemClock()
    if role == "learner":
        spec = assembly.spec_of(config)
        line.bus.admit = lambda rollout: objection(rollout, spec)
        epoch = line.policies.take_over()
    else:
        epoch = int(clock.now() * 1e6)
    return Wiring(line.bus, line.policies, folder, epoch, clock)


def follow(bus: KafkaBus, config: Experiment) -> Follower:
    """The commands of the run so far, and those that come."""
    commands: Any = bus.subscribe(COMMANDS, "worker")
    follower = Follower(commands, Desired(actors=config.actor.count, evaluator=int(assembly.evaluates(config))))
    for delivery in commands.catch_up():
        follower.take(delivery.message)
    return follower


def _load(line: Line) -> dict[str, Any]:
    return {"unsettled": line.bus.sending.unsettled}


def _name(order: Mapping[str, Any]) -> str:
    return f"{order['role']}-{order['index']}"


# --- a root's workers ------------------------------------------------------------------------------------------------


class KafkaCrew:
    """The workers of a run as processes of this machine, connected by the brokers alone."""

    def __init__(self, config: Experiment, folder: Path, desired: Callable[[], Desired], clock: Clock) -> None:
        self.config, self.folder = config, folder
        self.names = claim(config, folder.name, clock)
        self.line = connect(config, self.names, folder.name, since=clock.now())
        self.bus: Bus = self.line.bus
        """Reports of the workers arrive here, and commands to them leave from here."""
        self._end_those_before(clock)
        self.bus.publish(COMMANDS, beginning(desired()))
        order = {
            "config": configuration.to_plain(config),
            "folder": str(folder),
            "prefix": self.names.prefix,
            "leashed": False,  # training goes on without us
        }
        self.host = ProcessHost(
            lambda start: Brief({**order, "desired": asdict(desired())}),
            Channel,
            MemoryBus(1),  # what workers tell their root alone: that they live
            folder / "logs",
            clock,
            environment(),
        )

    def under_way(self) -> int | None:
        """Only the log knows."""
        return None

    def close(self) -> None:
        """End all workers, those on other machines too."""
        self.bus.publish(COMMANDS, as_request(StopCommand("the run has ended")))
        self.host.close()
        self.line.close()

    def _end_those_before(self, clock: Clock) -> None:
        """Workers outlive a root that was killed; whoever comes in its place begins with its own."""
        ends = clock.monotonic() + _LAST_WORDS
        asked = False
        while True:
            try:
                RunLock(self.folder, "learner").close()
                return
            except Fenced:
                if clock.monotonic() > ends:
                    raise
                if not asked:
                    asked = self.bus.publish(COMMANDS, as_request(StopCommand("another root takes over")))
                clock.rest(0.05)
