"""A log that forgets nothing unless it is trimmed, and whole lives of a learner that reads from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from millstream.control import journal
from millstream.control.journal import Journal
from millstream.core.codec import decode, encode
from millstream.core.data import Delivery, Policy, Rollout, Stamp
from millstream.core.errors import MillError
from millstream.learner.checkpoint import Checkpoints
from millstream.learner.course import Course
from millstream.learner.learner import Learner
from millstream.learner.ledger import fingerprint
from millstream.learner.rereading import Rereading
from millstream.learner.saving import Saver
from millstream.learner.sources import Fresh, Picked
from millstream.replay.cut import n_step
from millstream.replay.ingest import Ingest
from millstream.replay.limit import Lifted, SamplesPerInsert
from millstream.replay.refilled import Refilled
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import OLDEST, Table, queue
from millstream.testing import FakeClock
from millstream.wires.memory import MemoryPolicies
from tests.agents.rollouts import SPECS, agent_for, play

STEPS, SLOTS = 8, 2


class DurableLog:
    """Encoded rollouts in a few sources, each in order. Positions do not begin with 0."""

    def __init__(self, sources: int = 2, begin: int = 100) -> None:
        self.records: list[dict[int, bytes]] = [{} for _ in range(sources)]
        self.ends = [begin] * sources
        self.released: dict[int, Stamp] = {}

    def append(self, rollout: Rollout) -> tuple[str, int]:
        source = rollout.stamp.actor % len(self.records)
        position = self.ends[source]
        self.records[source][position] = encode(rollout)
        self.ends[source] += 1
        return f"part-{source}", position

    def trim(self, source: int, before: int) -> None:
        self.records[source] = {at: body for at, body in self.records[source].items() if at >= before}

    def at(self, source: str, position: int) -> Rollout:
        return decode(self.records[int(source[5:])][position])

    def reread(self, places: Sequence[tuple[str, int]]) -> Iterator[Rollout]:
        """Until one is not there any more."""
        for source, position in places:
            if position not in self.records[int(source[5:])]:
                return
            yield self.at(source, position)

    def rollouts(self) -> list[Rollout]:
        return [decode(body) for source in self.records for body in source.values()]


class Reader:
    """A subscription: sources take turns at random, each in order, from wherever it was told to read."""

    def __init__(self, log: DurableLog, seed: int = 0) -> None:
        self.log, self.rng = log, np.random.default_rng(seed)
        self.first_end = list(log.ends)
        self.next = [min(source, default=end) for source, end in zip(log.records, log.ends, strict=True)]

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        found: list[Delivery[Rollout]] = []
        while len(found) < limit:
            there = [each for each in range(len(self.next)) if self.next[each] < self.log.ends[each]]
            if not there or (found and self.rng.random() < 0.3):
                break
            source = int(self.rng.choice(there))
            position = self.next[source]
            self.next[source] += 1
            if position in self.log.records[source]:
                name = f"part-{source}"
                found.append(Delivery(self.log.at(name, position), name, position))
        return found

    def release(self, stamp: Stamp) -> None:
        self.log.released[stamp.actor] = stamp

    def positions(self) -> Mapping[str, int]:
        return {f"part-{source}": position for source, position in enumerate(self.next)}

    def seek(self, positions: Mapping[str, int]) -> None:
        for source, position in positions.items():
            self.next[int(source[5:])] = position

    def ended(self) -> bool:
        return all(at >= end for at, end in zip(self.next, self.first_end, strict=True))


class Player:
    """An actor who plays the newest policy, at most `window` rollouts ahead of what was released."""

    def __init__(self, index: int, log: DurableLog, agent: Any, window: int, epoch: int = 1_700_000) -> None:
        self.index, self.log, self.agent, self.window, self.epoch = index, log, agent, window, epoch
        self.sequence = 0
        self.policy: Policy | None = None

    def step(self, policies: MemoryPolicies) -> int:
        released = self.log.released.get(self.index)
        ahead = self.sequence - (-1 if released is None else released.sequence) - 1
        self.policy = policies.latest() or self.policy
        if self.policy is None or ahead >= self.window:
            return 0
        seed = self.sequence * 10 + self.index
        drawn = np.random.default_rng(seed)
        made = play(
            self.agent, self.policy.params, STEPS, SLOTS, seed, next_step=self.index == 1,
            rewards=lambda actions: drawn.normal(0, 1 + self.sequence, SLOTS),  # ever greater surprises
        )  # fmt: skip
        stamp = Stamp("test", self.index, self.epoch, self.sequence, self.policy.version, 0.0)
        self.log.append(replace(made, stamp=stamp))
        self.sequence += 1
        return 1


class Life:
    """One life of a learner, from the newest checkpoint and the journal of its run, if there are any."""

    def __init__(self, run: Path, log: DurableLog, agent: Any, hyper: Any, epoch: int, seed: int = 0, **how: Any):
        self.run, self.log, self.policies = run, log, MemoryPolicies()
        self.reports: list[dict[str, Any]] = []
        self.reader = Reader(log, seed)
        lines = how.pop("lines", None)
        self.course = Course(journal.read(run / "journal.jsonl") if lines is None else lines)
        self.subscription = Rereading(self.reader, self.course, self.reader.ended)
        make = self._picked if getattr(agent, "replayed", False) else self._fresh
        self.ingest, source = make(hyper, how.pop("max_lag", 1))
        about = {"env": "discrete", "algo": "any", "spec": SPECS["discrete"].to_json()}
        self.hashes: dict[int, str] = {}
        saver = Saver(
            Checkpoints(run / "checkpoints"), about=about, keep=lambda policy: None, report=self.reports.append,
            clock=FakeClock(), steps=how.pop("save_every", 0), seconds=0, companions=lambda: {"log": self.subscription},
        )  # fmt: skip
        self.learner = Learner(
            agent=agent, state=agent.init(1), hyper=hyper, source=source, policies=self.policies,
            rng=np.random.default_rng(0), clock=FakeClock(), epoch=epoch, report=self.reports.append,
            journal=Journal(run / "journal.jsonl").append, saver=saver, course=self.course, total_steps=10**6,
            hashed=3, **how,
        )  # fmt: skip
        self.restored = saver.restore(self.learner)

    def until(self, update: int, players: Sequence[Player], rng: np.random.Generator) -> None:
        """Everybody in no particular order, until that update has ended."""
        for _ in range(100_000):
            who = rng.integers(len(players) + 4)
            if who < len(players):
                players[who].step(self.policies)
            else:
                self.ingest.step() if who % 2 else self._learn()
            if self.learner.counters.updates >= update and self.learner.between_updates:
                return
        raise MillError(f"update {update} never came; {self.reports[-3:]}")

    @property
    def hash(self) -> str:
        return fingerprint(self.learner.agent.policy(self.learner.state, self.learner.hyper).tensors)

    def lines(self) -> list[dict[str, Any]]:
        return list(journal.read(self.run / "journal.jsonl"))

    def told(self, level: str) -> list[str]:
        return [report["text"] for report in self.reports if report["kind"] == "event" and report["level"] == level]

    def _learn(self) -> None:
        before = self.learner.counters.updates
        self.learner.step()
        if self.learner.counters.updates > before:
            self.hashes[self.learner.counters.updates] = self.hash

    def _fresh(self, hyper: Any, max_lag: int | None) -> tuple[Ingest, Fresh]:
        fresh = queue(64)
        source = Fresh(fresh, lambda: 2, max_lag, self.subscription.release, self.course)
        return Ingest(self.subscription, fresh, 3), source

    def _picked(self, hyper: Any, max_lag: int | None) -> tuple[Ingest, Picked]:
        limit = Lifted(SamplesPerInsert(2.0, 40, 40), lambda: self.course.redoing)
        select = Prioritised(hyper.priority_exponent, hyper.importance) if hyper.prioritised else Uniform()
        table = Table(n_step(hyper.n_step), select, OLDEST, limit, hyper.capacity, np.random.default_rng(4))
        refilled = Refilled(table, self.log.reread)
        picked = Picked(refilled, self.course)
        return Ingest(self.subscription, refilled, 3, picked.note, refilled.placed), picked


def crew(log: DurableLog, agent: Any, window: int = 3) -> list[Player]:
    return [Player(index, log, agent, window) for index in range(2)]


def agent_and_hyper(algorithm: str, **changes: Any) -> tuple[Any, Any]:
    agent = agent_for(algorithm)
    return agent, agent.Hyper(**changes)


def counted(lines: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[int, int, int]]:
    """Identities that the lines name, as often as they do."""
    return [(each[0], each[1], each[2]) for line in lines for name in names for each in line.get(name, ())]


def steps(lines: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(each[3] for line in lines for each in line.get(name, ()))
