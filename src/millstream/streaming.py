"""A run on Kafka: its topics, and its workers, which need no root. They are the same roles as everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millstream import assembly
from millstream import config as configuration
from millstream.actor.unroll import Actor
from millstream.assembly import Wiring
from millstream.config import Experiment, LogConfig
from millstream.control.commands import as_request, parse
from millstream.control.follower import Follower, Following
from millstream.control.lock import RunLock
from millstream.control.state import Desired, Intent, beginning
from millstream.control.supervisor import Supervisor
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError, Fenced, RunError
from millstream.core.files import replace_durably
from millstream.core.ports import Bus, Clock, Role
from millstream.core.topics import COMMANDS
from millstream.crew import environment
from millstream.hosts.heartbeat import Heartbeat
from millstream.hosts.life import signals
from millstream.hosts.process import Brief, ProcessHost
from millstream.replay.admission import objection
from millstream.telemetry.views import CONFIG
from millstream.wires.channel import Channel
from millstream.wires.kafka import topics
from millstream.wires.kafka.bus import KafkaBus
from millstream.wires.kafka.cluster import Cluster
from millstream.wires.kafka.history import reread
from millstream.wires.kafka.policies import KafkaPolicies
from millstream.wires.kafka.topics import Keep, Names
from millstream.wires.memory import MemoryBus
from millstream.wires.shared import SharedBus

_VISIBLE = 10.0
"""Seconds within which what was committed can be read."""
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


def prepare(config: Experiment, prefix: str | None = None) -> tuple[list[str], list[str]]:
    """Make the topics that are missing: all of them, and which were made."""
    names = Names(prefix if prefix is not None else config.kafka.prefix or "")
    made = topics.create(cluster_of(config), names, keep_of(config.log), config.kafka.replication)
    return list(names.all), made


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


def find(config: Experiment, run: str | None, clock: Clock, patience: float = 0.0) -> Known:
    """A run that the brokers know; its learner may be about to make it known."""
    cluster, ends = cluster_of(config), clock.monotonic() + patience
    while True:
        try:
            names, owner = topics.find(cluster, run, config.kafka.prefix)
            topics.require(cluster, names)
            settings = {**owner.config, "kafka": configuration.to_plain(config)["kafka"], "folder": config.folder}
            return Known(owner.run, names, configuration.from_plain(settings), owner.created_at)
        except (RunError, ConfigError):  # its learner may be about to make it known, and its topics
            if clock.monotonic() >= ends:
                raise
            clock.rest(0.2)


@dataclass(frozen=True)
class Known:
    """A run as the brokers know it: its settings are the learner's, the way to the brokers is our own."""

    run: str
    names: Names
    config: Experiment
    created_at: float

    @property
    def folder(self) -> Path:
        """Where this machine keeps what belongs to it."""
        return (Path(self.config.folder) / self.run).resolve()


def introduce(config: Experiment, run: str, clock: Clock) -> Known:
    """Make a run known, unless it is already."""
    claim(config, run, clock)
    return find(config, run, clock, _VISIBLE)


# --- workers ---------------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """A worker's connection to the brokers."""

    cluster: Cluster
    names: Names
    bus: KafkaBus
    policies: KafkaPolicies

    def close(self) -> None:
        """Send what is left, and let go."""
        self.policies.close()
        self.bus.close()


def command(config: Experiment, run: str, request: Mapping[str, Any]) -> None:
    """Give a command to a run that has no root here."""
    asked = parse(request)
    with _calling(config, run) as (bus, desired):
        if desired.stopping:
            raise RunError(f"{run} was stopped ({desired.reason}); mill resume {run} lets it go on")
        asked.apply(desired)  # what cannot be done is refused here
        bus.publish(COMMANDS, as_request(asked))


def desired(config: Experiment, run: str) -> Desired:
    """How a run should be, by all commands that were ever given to it."""
    with _calling(config, run) as (_, found):
        return found


@contextmanager
def _calling(config: Experiment, run: str) -> Iterator[tuple[KafkaBus, Desired]]:
    known = find(config, run, SystemClock())
    line = connect(known.config, known.names, run)
    try:
        yield line.bus, follow(line.bus, known.config).desired
    finally:
        line.close()


def connect(config: Experiment, names: Names, run: str, since: float | None = None) -> Line:
    """Bus and policies of a run whose topics are there."""
    cluster = cluster_of(config)
    policies = KafkaPolicies(cluster, names, run)
    window = assembly.window_of(config, timed=True)
    return Line(cluster, names, KafkaBus(cluster, names, run, policies, window, since=since), policies)


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
    besides: Sequence[Role] = (),
    alone: Callable[[], bool] = lambda: True,
) -> None:
    """One role of a run on Kafka, until a command stops it, it is told to end, or all steps are trained."""
    line = connect(config, names, folder.name)
    try:
        follower = follow(line.bus, config)
        if follower.stopping():
            raise RunError(f"{folder.name} was stopped; mill resume {folder.name} lets it go on")
        if role == "learner":
            _check_home(line, folder)
        wiring = wire(role, config, line, folder)

        def beside(roles: Sequence[Role]) -> list[Role]:
            beats, name = assembly.beats_on(role), f"{role}-{index}"
            return [*besides, Heartbeat(line.bus, beats, name, wiring.epoch, wiring.clock, lambda: _load(line, roles))]

        roles = assembly.work(role, index, config, wiring, follower, beside, ending, alone)
        if alone() and assembly.finished(roles):
            say_stop(line.bus, "all steps are trained")
    finally:
        line.close()


def play(role: str, index: int, known: Known) -> None:
    """A role in a process of its own, which SIGTERM and Ctrl-C end after its step."""
    asked: list[str] = []
    if role == "learner":  # so that `mill` finds the run here
        known.folder.mkdir(parents=True, exist_ok=True)
        settings = json.dumps(configuration.to_plain(known.config), indent=1)
        replace_durably(known.folder / CONFIG, settings.encode())
    with signals(asked.append):
        run_role(role, index, known.config, known.names, known.folder, ending=lambda: bool(asked))


def _check_home(line: Line, folder: Path) -> None:
    """A learner goes on where its checkpoints and journal are; anywhere else it would begin anew, over the good one."""
    if (folder / "journal.jsonl").exists() or (folder / "checkpoints").exists():
        return
    looking = KafkaPolicies(line.cluster, line.names, folder.name)  # the learner itself reads no policies
    try:
        newest = looking.latest()
    finally:
        looking.close()
    if newest is not None and newest.version.number:
        raise RunError(
            f"{folder.name} has made {newest.version.number} updates, and {folder} has no checkpoint or journal of it; "
            "start its learner where they are (--folder), or begin another run (--run NAME)"
        )


def wire(role: str, config: Experiment, line: Line, folder: Path) -> Wiring:
    """Only the learner writes policies, in an epoch of its own; an actor's epoch is the moment of its start."""
    clock = SystemClock()
    if role != "learner":
        return Wiring(line.bus, line.policies, folder, int(clock.now() * 1e6), clock)
    spec = assembly.spec_of(config)
    line.bus.admit = lambda rollout: objection(rollout, spec)
    wiring = Wiring(line.bus, line.policies, folder, line.policies.take_over(), clock)
    wiring.reread = lambda places: reread(line.cluster, line.names, places)
    return wiring


def follow(bus: KafkaBus, config: Experiment) -> Follower:
    """The commands of the run so far, and those that come."""
    commands: Any = bus.subscribe(COMMANDS, "worker")
    follower = Follower(commands, Desired(actors=config.actor.count, evaluator=int(assembly.evaluates(config))))
    for delivery in commands.catch_up():
        follower.take(delivery.message)
    return follower


def _load(line: Line, roles: Sequence[Role]) -> dict[str, Any]:
    """What a sign of life tells besides: an actor's steps, so that those which it takes with it are known."""
    made = [role.made for role in roles if isinstance(role, Actor)]
    return {"unsettled": line.bus.sending.unsettled, **({"made": made[0]} if made else {})}


def _name(order: Mapping[str, Any]) -> str:
    return f"{order['role']}-{order['index']}"


# --- a root's workers ------------------------------------------------------------------------------------------------


class KafkaCrew:
    """The workers of a run as processes of this machine, connected by the brokers alone."""

    def __init__(self, config: Experiment, folder: Path, intent: Intent, clock: Clock) -> None:
        self.folder, self._intent, self._clock = folder, intent, clock
        names = claim(config, folder.name, clock)
        self.line = connect(config, names, folder.name, since=clock.now())
        self.bus: Bus = self.line.bus
        """Reports of the workers arrive here, and commands to them leave from here."""
        self._end_those_before()
        self.bus.publish(COMMANDS, beginning(intent.desired))
        self._following = Following(follow(self.line.bus, config), intent)
        order = {
            "config": configuration.to_plain(config),
            "folder": str(folder),
            "prefix": names.prefix,
            "leashed": False,  # training goes on without us
        }
        self.host = ProcessHost(
            lambda start: Brief({**order, "desired": asdict(intent.desired)}),
            Channel,
            MemoryBus(1),  # what workers tell their root alone: that they live
            folder / "logs",
            clock,
            environment(),
        )

    def roles(self, report: Callable[[dict[str, Any]], object]) -> list[Role]:
        """Who looks after the workers, and hears commands that were given elsewhere."""
        return [self.host, Supervisor(self.host, self._intent, self._clock, report), self._following]

    def under_way(self) -> int | None:
        """Only the log knows."""
        return None

    def close(self) -> None:
        """End all workers, those on other machines too."""
        try:
            say_stop(self.line.bus, self._intent.desired.reason or "the run has ended")
        finally:
            self.host.close()
            self.line.close()

    def _end_those_before(self) -> None:
        """Workers outlive a root that was killed; whoever comes in its place begins with its own."""
        ends, asked = self._clock.monotonic() + _LAST_WORDS, False
        while True:
            try:
                RunLock(self.folder, "learner").close()
                return
            except Fenced:
                if self._clock.monotonic() > ends:
                    raise
                asked = asked or say_stop(self.line.bus, "another root takes over")
                self._clock.rest(0.05)


class Elsewhere:
    """A run whose workers are nobody's children: it is recorded, answered for, and stopped when it should end."""

    def __init__(self, config: Experiment, names: Names, folder: Path, since: float, intent: Intent) -> None:
        self._intent = intent
        self.line = connect(config, names, folder.name, since=since)
        self.bus: Bus = self.line.bus
        self._following = Following(follow(self.line.bus, config), intent)

    def roles(self, report: Callable[[dict[str, Any]], object]) -> list[Role]:
        """Who hears the commands."""
        return [self._following]

    def under_way(self) -> int | None:
        """Only the log knows."""
        return None

    def close(self) -> None:
        """Its end is the run's only where it was reached."""
        try:
            if self._intent.desired.stopped_by in ("target", "steps"):
                say_stop(self.line.bus, f"it has reached its {self._intent.desired.stopped_by}")
        finally:
            self.line.close()


def say_stop(bus: Bus, reason: str) -> bool:
    """Tell all workers of a run to end."""
    return bus.publish(COMMANDS, {"command": "stop", "reason": reason})


# --- forks -----------------------------------------------------------------------------------------------------------


def leave_log(run: str, state: dict[str, Any], before: Experiment, after: Experiment) -> dict[str, Any]:
    """The state for a fork, which has a log of its own; of the old one it remembers where its table's rollouts are."""
    companions = {name: kept for name, kept in state["companions"].items() if name != "experiences"}
    learner = dict(state["learner"])
    source = learner.get("source", {})
    if "dropped" in source:
        learner["source"] = {"dropped": []}  # they are in the old run's ledger
    if "table" in source:
        if after.topology != "kafka":
            raise ConfigError(f"the table of {run} stands in its log: a fork of it runs on Kafka, too")
        prefix = find(before, run, SystemClock()).names.prefix
        learner["source"] = {**source, "table": elsewhere(source["table"], prefix)}
    return {**state, "learner": learner, "companions": companions}


def elsewhere(kept: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The places of a table, told from another run's log."""
    sources = [source if "|" in source else f"{prefix}|{source}" for source in kept["sources"]]
    return {**kept, "sources": sources}
