"""A learner with a real PPO and made-up rollouts, and a list of everything it did to the world, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from millstream.agents.ppo import PPOHyper
from millstream.core.data import NONE, Policy, Rollout, Stamp, Version
from millstream.learner.learner import Learner
from millstream.learner.sources import Fresh
from millstream.replay.table import queue
from millstream.testing import FakeClock
from millstream.wires.memory import MemoryPolicies
from tests.agents.rollouts import agent_for, play

STEPS, SLOTS = 8, 4
HYPER = PPOHyper(minibatch=8, epochs=2, learning_rate=1e-2)


class Told:
    """The world of a learner: what was published, released, journalled, reported, saved, and in which order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.released: list[Stamp] = []
        self.entries: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.versions: list[Version] = []
        self.saved: list[int] = []
        self.policies = MemoryPolicies()

    def publish(self, policy: Policy) -> None:
        self.events.append("publish")
        self.versions.append(policy.version)
        self.policies.publish(policy)

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        return self.policies.latest(newer_than)

    def release(self, stamp: Stamp) -> None:
        self.events.append("release")
        self.released.append(stamp)

    def journal(self, entry: dict[str, Any]) -> None:
        self.events.append("journal")
        self.entries.append(entry)

    def report(self, report: dict[str, Any]) -> None:
        self.events.append("report")
        self.reports.append(report)

    def save_when_due(self, learner: Learner) -> None:
        self.events.append("due")
        assert learner.between_updates

    def save(self, learner: Learner) -> None:
        assert learner.between_updates
        self.saved.append(learner.counters.updates)


def learner(told: Told, rollouts: int = 1, **changes: Any) -> Learner:
    """A learner of so many rollouts an update."""
    agent = changes.pop("agent", None) or agent_for()
    source = Fresh(
        queue(16), lambda: rollouts, changes.pop("max_lag", 1), told.release, correct=changes.pop("correct", False)
    )
    settings: dict[str, Any] = {
        "agent": agent, "state": agent.init(1), "hyper": HYPER, "source": source, "policies": told,
        "rng": np.random.default_rng(0), "clock": FakeClock(), "epoch": 0, "report": told.report,
        "journal": told.journal, "saver": told,
        "total_steps": 1000, "shards": 2, "threads": 1,
    }  # fmt: skip
    return Learner(**{**settings, **changes})


def feed(
    of: Learner, sequence: int = 0, *, actor: int = 0, number: int | None = None, epoch: int = 0, **how: Any
) -> Rollout:
    """Give it a rollout of its own newest policy, or of the one numbered."""
    params = of.agent.policy(of.state, of.hyper)
    made = play(of.agent, params, how.pop("steps", STEPS), how.pop("slots", SLOTS), seed=sequence + 100 * actor, **how)
    version = Version(epoch, of.counters.updates if number is None else number)
    made = replace(made, stamp=Stamp("test", actor, epoch, sequence, version, 0.0))
    assert of.source.replay.insert(made)
    return made


def one_update(of: Learner) -> None:
    """Step until an update has ended."""
    before = of.counters.updates
    for _ in range(1000):
        of.step()
        if of.counters.updates > before:
            return
    raise AssertionError("no update came")
