"""Learning from old experience: policies reach the actor several updates late."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from millstream import assembly
from millstream.core.data import NONE, Policy, Version
from millstream.core.topics import METRICS_ACTORS
from millstream.hosts import shell
from millstream.wires.memory import MemoryPolicies

pytestmark = pytest.mark.slow
BEHIND, SEEDS = 4, (1, 2, 3)


class Belated(MemoryPolicies):
    """A store whose readers see each policy `behind` updates late, as over a slow line."""

    def __init__(self, behind: int):
        super().__init__()
        self._kept: deque[Policy] = deque(maxlen=behind + 1)

    def publish(self, policy: Policy) -> None:
        super().publish(policy)
        self._kept.append(policy)

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        return self._kept[0] if self._kept and self._kept[0].version > newer_than else None


def reached(folder: Path, seed: int, **settings: object) -> float:
    """The mean of the last 100 training episodes of 100,000 steps with belated policies."""
    given = {"topology": "inline", "seed": seed, "total_steps": 100_000, "checkpoint.steps": 0, **settings}
    config = assembly.experiment(None, given)
    wiring = assembly.wire_inline(config, folder)
    wiring.policies = Belated(BEHIND)
    reports = wiring.bus.subscribe(METRICS_ACTORS, "test")
    roles = [role for name in ("actor", "learner") for role in assembly.build(name, 0, config, wiring)]
    learner = roles[-1]
    returns: deque[float] = deque(maxlen=100)

    def done() -> bool:
        for delivery in reports.poll(1000):
            returns.extend(episode[1] for episode in delivery.message["episodes"])
        return learner.finished

    shell.run(roles, wiring.clock, stopping=done, rotate=False)
    assembly.close(roles)
    assert learner.counters.stale == 0
    assert learner.counters.corrected >= 0.9 * learner.counters.trained * (config.learner.stale == "correct")
    return float(np.mean(returns))


def test_corrected_experience_of_old_policies_teaches_and_more_than_as_it_is(tmp_path: Path) -> None:
    corrected = {"learner.max_policy_lag": 0, "learner.stale": "correct"}
    as_it_is = {"learner.max_policy_lag": 1000}
    with_it = [reached(tmp_path / f"with-{seed}", seed, **corrected) for seed in SEEDS]
    without = [reached(tmp_path / f"without-{seed}", seed, **as_it_is) for seed in SEEDS]
    print(f"policies {BEHIND} updates late: corrected {with_it}, as it is {without}")
    assert min(with_it) >= 475 and np.mean(with_it) > np.mean(without)
