from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millstream.actor.evaluation import Evaluation, Evaluator
from millstream.core.data import Policy
from millstream.core.statistics import summarise
from millstream.testing import FakeClock, MultiDiscreteEnv
from millstream.wires.memory import MemoryPolicies
from tests.actor.making import WORLDS, Counting, policy, record, world


class Seeded(Counting):
    """Random actions even when it should be greedy, from a generator of its own."""

    def __init__(self, spec: Any):
        super().__init__(spec)
        self.own = np.random.default_rng(5)

    def act(self, params: Any, observations: Any, carry: Any, first: Any, mask: Any, rng: Any) -> Any:
        return super().act(params, observations, carry, first, mask, self.own)


def finish(evaluation: Evaluation) -> Evaluation:
    for _ in range(10_000):
        if evaluation.done:
            return evaluation
        evaluation.step()
    raise AssertionError("it never ends")


@pytest.mark.parametrize("name", WORLDS)
def test_returns_are_those_of_whole_episodes_in_each_slot(name: str) -> None:
    env = world(name)
    found = finish(Evaluation(env, Seeded(env.spec), policy(0), episodes=5, seed=5))
    again = world(name)
    told = record(again, Counting(again.spec), policy(0).params, 5, 1000)
    for slot in range(3):
        expected, total = [], 0.0
        for entry in told:
            after = entry["after"]
            total += float(after.rewards[slot]) * bool(after.valid[slot])
            if after.terminated[slot] or after.truncated[slot]:
                expected.append(total)
                total = 0.0
        assert found.returns[slot][:2] == pytest.approx(expected[:2], abs=1e-4)
    assert len(found.finished) == 5 and found.quota == 2


def test_every_slot_plays_its_quota_whoever_is_quicker() -> None:
    env = world("CartPole-v1", 4)
    found = finish(Evaluation(env, Seeded(env.spec), policy(0), episodes=12, seed=1))
    assert all(len(returns) >= 3 for returns in found.returns)
    assert found.finished == [found.returns[slot][turn] for turn in range(3) for slot in range(4)]
    assert found.summary() == summarise(found.finished)


def test_a_step_is_bounded_and_says_how_much_it_played() -> None:
    env = world("same step")
    found = Evaluation(env, Seeded(env.spec), policy(0), episodes=6, seed=1)
    assert found.step(7) == 7 and not found.done
    assert found.step(100) == 13 and found.done and found.step() == 0


class Asked(Counting):
    """Answers rightly when it is greedy, at random otherwise."""

    def act(self, params: Any, observations: Any, carry: Any, first: Any, mask: Any, rng: Any) -> Any:
        decision, carry = super().act(params, observations, carry, first, mask, rng or np.random.default_rng(0))
        if rng is None:
            asked = observations["obs"]
            decision.actions[:] = np.stack([asked[:, :3].argmax(1), asked[:, 3:].argmax(1)], axis=1)
        return decision, carry


def test_it_is_greedy_unless_told_otherwise() -> None:
    env = MultiDiscreteEnv(4)
    greedy = finish(Evaluation(env, Asked(env.spec), policy(0), 8, seed=1)).finished
    drawn = finish(Evaluation(env, Asked(env.spec), policy(0), 8, seed=1, stochastic=True)).finished
    other = finish(Evaluation(env, Asked(env.spec), policy(0), 8, seed=2, stochastic=True)).finished
    again = finish(Evaluation(env, Asked(env.spec), policy(0), 8, seed=1, stochastic=True)).finished
    assert greedy == [MultiDiscreteEnv.OPTIMUM] * 8 and max(drawn) < MultiDiscreteEnv.OPTIMUM
    assert drawn == again != other


class Judged:
    """An evaluator and what it said."""

    def __init__(self, every: int = 100) -> None:
        env = world("same step")
        self.policies, self.reports, self.best = MemoryPolicies(), [], []  # type: ignore[var-annotated]
        self.evaluator = Evaluator(
            env, Seeded(env.spec), self.policies, self.reports.append,
            lambda policy, score: self.best.append((policy.version.number, score)), FakeClock(),
            every=every, episodes=4, seed=3,
        )  # fmt: skip

    def publish(self, number: int, steps: int) -> None:
        made = policy(number)
        self.policies.publish(Policy(made.version, made.params, steps))

    def run(self) -> None:
        while self.evaluator.step():
            pass


def test_an_evaluator_waits_until_it_is_due_and_judges_the_newest() -> None:
    judged = Judged(every=100)
    assert judged.evaluator.step() == 0
    judged.publish(0, 0)
    judged.publish(1, 99)
    judged.run()
    assert judged.reports == []
    judged.publish(2, 150)
    judged.run()
    judged.publish(3, 249)
    judged.run()
    judged.publish(4, 250)
    judged.run()
    assert [(report["steps"], report["version"]) for report in judged.reports] == [(150, [0, 2]), (250, [0, 4])]
    assert judged.best == [(2, 9.25), (4, 9.25)]
    assert judged.reports[0]["mean"] == 9.25 and judged.reports[0]["returns"] == [10.0, 9.0, 8.0, 10.0]
    assert judged.reports[0]["episodes"] == 4


def test_a_policy_that_comes_during_an_evaluation_waits() -> None:
    judged = Judged(every=1)
    judged.evaluator.episodes = 60  # longer than one step
    judged.publish(1, 1)
    judged.evaluator.step()
    judged.publish(2, 2)
    judged.run()
    assert [report["version"] for report in judged.reports] == [[0, 1], [0, 2]]


def test_closing_an_evaluator_lets_go_of_its_environment() -> None:
    judged, closed = Judged(), []
    judged.evaluator.env.close = lambda: closed.append(True)  # type: ignore[method-assign]
    judged.evaluator.close()
    assert closed == [True]
