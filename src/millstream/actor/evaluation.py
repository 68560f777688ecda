"""Judging a policy on episodes of its own, apart from training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from millstream.actor.splicing import Tape
from millstream.core.data import NONE, Carry, Episode, Policy, Step
from millstream.core.errors import EnvError
from millstream.core.ports import Agent, Clock, Env, PolicyStore
from millstream.core.statistics import Summary, summarise

LONGEST = 100_000
"""Steps after which an episode of an evaluation is taken to be endless."""


class Evaluation:
    """Episodes of one policy, a few steps at a time. Every slot plays the same number: short ones get no advantage."""

    def __init__(self, env: Env, agent: Agent[Any], policy: Policy, episodes: int, seed: int, stochastic: bool = False):
        self.env, self.agent, self.policy, self.episodes = env, agent, policy, episodes
        self.quota = math.ceil(episodes / env.slots)
        self.rng: Generator | None = default_rng([seed, 3]) if stochastic else None
        self.returns: list[list[float]] = [[] for _ in range(env.slots)]
        self._running = np.zeros(env.slots)
        self._lengths = np.zeros(env.slots, np.int64)
        self._now = env.reset(seed)
        self._carry: Carry = agent.carry(policy.params, env.slots)
        self.tape: Tape | None = None
        """Where all is written down, if anybody wants it."""

    @property
    def now(self) -> Step:
        """What the environment showed last."""
        return self._now

    @property
    def done(self) -> bool:
        """Whether every slot has played its episodes."""
        return all(len(returns) >= self.quota for returns in self.returns)

    @property
    def finished(self) -> list[float]:
        """The returns that count, at most as many as were asked for."""
        return [slot[turn] for turn in range(self.quota) for slot in self.returns if turn < len(slot)][: self.episodes]

    def step(self, steps: int = 100) -> int:
        """Play on."""
        for played in range(steps):
            if self.done:
                return played
            now, params = self._now, self.policy.params
            decision, self._carry = self.agent.act(
                params, now.observations, self._carry, now.first, now.masks, self.rng
            )
            self._now = self.env.step(decision.actions)
            if self.tape is not None:
                self.tape.note(decision, self._now)
            self._running += self._now.rewards
            self._lengths += 1
            self._lengths[self._now.ended] = 0
            if self._lengths.max() > LONGEST:
                raise EnvError(
                    f"an episode of {self.env.spec.id} did not end in {LONGEST:,} steps; give the environment a time "
                    "limit, or skip evaluation with --eval-episodes 0"
                )
            for slot in self._now.ended:
                self.returns[slot].append(float(self._running[slot]))
                self._running[slot] = 0
        return steps

    def summary(self) -> Summary:
        """The verdict."""
        return summarise(self.finished)


def whole_episodes(evaluation: Evaluation) -> Iterator[Episode]:
    """The episodes that an evaluation counts, as they end."""
    tape = evaluation.tape = Tape(evaluation.now, evaluation.env.slots, evaluation.episodes)
    while not evaluation.done:
        evaluation.step()
        yield from tape.unwind()


class Evaluator:
    """The role: judges the newest policy every so many steps of training."""

    def __init__(
        self,
        env: Env,
        agent: Agent[Any],
        policies: PolicyStore,
        report: Callable[[dict[str, Any]], object],
        keep_best: Callable[[Policy, float], object],
        clock: Clock,
        *,
        every: int,
        episodes: int,
        seed: int,
        stochastic: bool = False,
    ):
        self.env, self.agent, self.policies = env, agent, policies
        self.report, self.keep_best, self.clock = report, keep_best, clock
        self.every, self.episodes, self.seed, self.stochastic = every, episodes, seed, stochastic
        self.version, self.due = NONE, every
        self._current: Evaluation | None = None

    def step(self) -> int:
        """A stretch of the current evaluation, or the start of one that is due."""
        if self._current is None:
            policy = self.policies.latest(self.version)
            if policy is None or policy.steps < self.due:
                return 0
            self.version, self.due = policy.version, policy.steps + self.every
            self._current = Evaluation(self.env, self.agent, policy, self.episodes, self.seed, self.stochastic)
        played = self._current.step()
        if self._current.done:
            self._tell(self._current)
            self._current = None
        return played

    def close(self) -> None:
        """Let go of the environment."""
        self.env.close()

    def _tell(self, done: Evaluation) -> None:
        summary, policy = done.summary(), done.policy
        self.keep_best(policy, summary.mean)
        self.report(
            {
                "kind": "evaluation",
                "steps": policy.steps,
                "version": [policy.version.epoch, policy.version.number],
                **asdict(summary),
                "returns": done.finished,
                "at": self.clock.now(),
            }
        )
