"""An actor over the memory bus, an agent that counts, and a slow, obvious record of what should have happened."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from millstream.actor.unroll import Actor
from millstream.core.data import Carry, Decision, Episode, Params, Policy, Rollout, Version
from millstream.core.spec import Box, Discrete, EnvSpec
from millstream.core.topics import EXPERIENCES, METRICS_ACTORS
from millstream.envs import registry as envs
from millstream.testing import FakeClock
from millstream.wires.memory import MemoryBus, MemoryPolicies

SLOTS, UNROLL = 3, 7
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "CartPole-v1": ("CartPole-v1", {}),
    "Snake-v0": ("Snake-v0", {}),
    "multi-discrete": ("millstream.testing:MultiDiscreteEnv", {}),
    "dictionary": ("millstream.testing:DictEnv", {}),
    "masked": ("millstream.testing:MaskedEnv", {}),
    "continuous": ("millstream.testing:ContinuousEnv", {}),
    "image": ("millstream.testing:ImageGrid", {}),
    "next step": ("millstream.testing:EndlessEnv", {"autoreset_mode": "NextStep"}),
    "same step": ("millstream.testing:EndlessEnv", {"autoreset_mode": "SameStep"}),
    "disabled": ("millstream.testing:EndlessEnv", {"autoreset_mode": "Disabled"}),
}


def world(name: str, slots: int = SLOTS) -> Any:
    id, args = WORLDS[name]
    return envs.make(id, slots, args)


class Counting:
    """Random legal actions. It remembers how many steps each slot's episode has, and tells; weights shift the count."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec
        self.acted_with: list[float] = []

    def carry(self, params: Params, slots: int) -> Carry:
        return {"count": np.zeros(slots, np.int64), "deep/er": np.zeros((slots, 2), np.float32)}

    def act(
        self, params: Params, observations: Any, carry: Carry, first: Any, mask: Any, rng: Any
    ) -> tuple[Decision, Carry]:
        self.acted_with.append(float(params.tensors["weights"][0]))
        count = np.where(first, 0, carry["count"]) + 1
        slots, action = len(first), self.spec.action
        if isinstance(action, Box):
            actions = rng.normal(size=(slots, *action.shape)).astype(np.float32)
        elif isinstance(action, Discrete):
            legal = np.ones((slots, action.n)) if mask is None else mask
            actions = (rng.random((slots, action.n)) * legal).argmax(axis=1)
        else:
            actions = rng.integers(action.nvec, size=(slots, len(action.nvec)))
        deep = np.where(first[:, None], 0, carry["deep/er"]) + 0.5
        extras = {"count": count.astype(np.float32), "shifted": count[:, None] + params.tensors["weights"]}
        return Decision(actions, extras), {"count": count, "deep/er": deep}


def policy(number: int, epoch: int = 0) -> Policy:
    return Policy(Version(epoch, number), Params({"weights": np.full(2, number, np.float64)}))


class Stage:
    """One actor, its bus, its policies, and all that it made."""

    def __init__(self, env: Any, agent: Any = None, window: int = 2, seed: int = 5, **changes: Any):
        self.bus, self.policies = MemoryBus(window), MemoryPolicies()
        self.agent = agent or Counting(env.spec)
        self.subscription = self.bus.subscribe(EXPERIENCES, "learner")
        self.reports = self.bus.subscribe(METRICS_ACTORS, "recorder")
        self.clock = FakeClock()
        settings: dict[str, Any] = {
            "experiment": "test", "index": 0, "epoch": 0, "env": env, "agent": self.agent, "bus": self.bus,
            "policies": self.policies, "rng": np.random.default_rng(seed), "seed": seed, "unroll": UNROLL,
            "clock": self.clock, "stride": UNROLL,
        }  # fmt: skip
        self.actor = Actor(**{**settings, **changes})

    def take(self) -> list[Rollout]:
        """What has been published, as copies; credit goes back."""
        found = []
        for delivery in self.subscription.poll(99):
            found.append(deepcopy(delivery.message))
            self.subscription.release(delivery.message.stamp)
        return found

    def make(self, count: int) -> list[Rollout]:
        """So many rollouts."""
        made: list[Rollout] = []
        for _ in range(10_000):
            if len(made) >= count:
                return made
            self.actor.step()
            made += self.take()
        raise AssertionError("the actor does not get on")

    def episodes(self) -> list[tuple[int, float, int]]:
        """(slot, return, length) as reported."""
        return [tuple(each) for delivery in self.reports.poll(9999) for each in delivery.message["episodes"]]


def record(env: Any, agent: Any, params: Params, seed: int, steps: int) -> list[dict[str, Any]]:
    """One entry a step: everything before, the decision, everything after, all copied."""
    now, carry, rng = deepcopy(env.reset(seed)), agent.carry(params, env.slots), np.random.default_rng(seed)
    entries = []
    for _ in range(steps):
        before = deepcopy(carry)
        decision, carry = agent.act(params, now.observations, carry, now.first, now.masks, rng)
        decision = deepcopy(decision)
        after = deepcopy(env.step(decision.actions))
        entries.append({"now": now, "carry": before, "decision": decision, "after": after})
        now = after
    return entries


def same(one: Rollout, other: Rollout) -> bool:
    """All but when it was made."""
    for name in ("final_at", "actions", "rewards", "terminated", "truncated", "first", "valid"):
        if not np.array_equal(getattr(one, name), getattr(other, name)):
            return False
    groups: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
        (getattr(one, group), getattr(other, group)) for group in ("observations", "finals", "carry", "extras")
    ]
    return all(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a) for a, b in groups)


def told(entries: list[dict[str, Any]], slot: int) -> list[Episode]:
    """The whole episodes of one slot, from such a record, step by step."""
    found: list[Episode] = []
    steps: list[dict[str, Any]] = []
    for entry in entries:
        after = entry["after"]
        if not after.valid[slot]:
            continue
        steps.append(entry)
        if slot not in after.ended:
            continue
        (k,) = np.flatnonzero(after.ended == slot)
        shown = {name: [step["now"].observations[name][slot] for step in steps] for name in after.observations}
        found.append(
            Episode(
                {name: np.stack([*rows, after.finals[name][k]]) for name, rows in shown.items()},
                np.stack([step["decision"].actions[slot] for step in steps]),
                np.stack([step["after"].rewards[slot] for step in steps]),
                bool(after.terminated[slot]),
                bool(after.truncated[slot]),
                None if after.masks is None else np.stack([step["now"].masks[slot] for step in steps]),
            )
        )
        steps = []
    return found


def alike(one: Episode, other: Episode) -> bool:
    """Equal to the last bit; what was legal is compared where both speak of it, before the last action."""
    masks = one.masks is None and other.masks is None
    if one.masks is not None and other.masks is not None:
        masks = np.array_equal(one.masks[: one.steps], other.masks[: other.steps])
    return (
        masks
        and one.observations.keys() == other.observations.keys()
        and all(_equal(one.observations[name], other.observations[name]) for name in one.observations)
        and _equal(one.actions, other.actions)
        and _equal(one.rewards, other.rewards)
        and (one.terminated, one.truncated) == (other.terminated, other.truncated)
    )


def _equal(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)
