"""The nouns: what travels between roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from millstream.core.errors import Fenced

Array: TypeAlias = Any
"""A NumPy array, or a tensor of a library that follows the array API standard."""
Carry: TypeAlias = Mapping[str, Array]
"""What a policy remembers between steps: recurrent state, earlier frames. Slots lead."""
Gradients: TypeAlias = Array
"""One flat vector, in the order of the flat weights."""
Lesson: TypeAlias = Mapping[str, float]
"""What one minibatch taught, by the names that dashboards know."""
Batch: TypeAlias = Mapping[str, Array]
"""Columns of experience, ready to learn from; [T, B, ...] when prepared, rows of it in a minibatch."""

M = TypeVar("M")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Which policy: the epoch grows at each start of a learner, the number at each update."""

    epoch: int
    number: int


NONE = Version(-1, -1)
"""Older than every policy."""


def words(version: Version) -> str:
    """A version as people say it."""
    return f"{version.epoch}.{version.number}"


def check_newer(version: Version, latest: Version, advice: str = "so this one must end") -> None:
    """Raise Fenced unless the version is newer than the latest."""
    if version <= latest:
        raise Fenced(
            f"policy {words(version)} is not newer than {words(latest)}; another learner owns this run, {advice}"
        )


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a rollout comes from; (actor, epoch, sequence) is its identity."""

    experiment: str
    actor: int
    epoch: int
    sequence: int
    policy: Version
    made_at: float

    @property
    def identity(self) -> tuple[int, int, int]:
        """What tells it from every other of its experiment."""
        return self.actor, self.epoch, self.sequence


@dataclass(frozen=True, slots=True)
class Rollout:
    """Up to T steps of B slots, time first: one slab, one unit of the ledger."""

    observations: Mapping[str, Array]  # name -> [T+1, B, *obs]; raw, unstacked, never normalised
    finals: Mapping[str, Array]  # name -> [K, *obs]: last observation of episodes that ended inside
    final_at: Array  # [K, 2] the (t, slot) of each final
    actions: Array  # [T, B, *act] as sampled, before clipping to the environment's bounds
    rewards: Array  # [T, B] raw
    terminated: Array  # [T, B] the world ended: do not bootstrap
    truncated: Array  # [T, B] we stopped watching: bootstrap from finals
    first: Array  # [T+1, B] an episode starts here
    valid: Array  # [T, B] False where the slot was only resetting: counts nowhere
    carry: Mapping[str, Array]  # name -> [B, ...] what the policy remembered at t = 0
    extras: Mapping[str, Array]  # name -> [T, B, ...] log-probabilities, values; masks are [T+1, B, ...]
    stamp: Stamp

    @property
    def steps(self) -> int:
        """T."""
        return int(self.rewards.shape[0])

    @property
    def slots(self) -> int:
        """B."""
        return int(self.rewards.shape[1])

    @property
    def count(self) -> int:
        """How many environment steps the ledger counts."""
        return int(np.count_nonzero(self.valid))


@dataclass(frozen=True, slots=True)
class Episode:
    """One slot from its first observation to its last: T steps, alone."""

    observations: Mapping[str, Array]  # name -> [T+1, *obs]; the last is what the last action led to
    actions: Array  # [T, *act]
    rewards: Array  # [T] raw
    terminated: bool  # the world ended after step T
    truncated: bool  # we stopped watching after step T
    masks: Array | None = None  # [T+1, choices] bool: the actions that were legal

    @property
    def steps(self) -> int:
        """T."""
        return len(self.rewards)


@dataclass(frozen=True, slots=True)
class Step:
    """What an environment answers to one action a slot. The arrays are the environment's until its next step."""

    observations: Mapping[str, Array]  # name -> [B, *obs]: what the next action is chosen from
    rewards: Array  # [B] float32
    terminated: Array  # [B] bool
    truncated: Array  # [B] bool
    valid: Array  # [B] bool; False where this call only reset the slot and ignored the action
    first: Array  # [B] bool; the observations above open an episode
    ended: Array  # [K] int64: slots whose episode ended in this step
    finals: Mapping[str, Array]  # name -> [K, *obs]: their last observations
    masks: Array | None = None  # [B, choices] bool: the actions that are legal next


@dataclass(frozen=True, slots=True)
class Params:
    """Everything needed to act: weights, frozen statistics, the actor's hyper-parameters."""

    tensors: Mapping[str, Array]
    hyper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """Parameters with their version, and how far training was when they were made."""

    version: Version
    params: Params
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a push."""

    accepted: bool
    version: Version  # what the server holds now: fetch it when yours is older
    reason: str = ""  # why not: the word under which it is counted, then what was got


@dataclass(frozen=True, slots=True)
class Statistics:
    """What happened since a parameter server was made."""

    version: Version
    steps: int  # samples behind the parameters; with privacy, those before it began
    accepted: int  # pushes
    refused: Mapping[str, int]  # pushes by the first word of their reason
    replaced: int  # pushes that took the place of an earlier one by the same worker in one round
    dropped: int  # accepted pushes whose round was given up: overtaken by a publish, a load, or a new round
    rounds: int  # updates made of pushes
    waiting: int  # pushes in the open round
    bytes: int  # of accepted pushes, as float32
    lag: float  # versions by which accepted pushes were behind, on average
    lag_max: int
    epsilon: float | None = None  # privacy spent, for `delta`
    delta: float | None = None

    @property
    def stale(self) -> int:
        """Pushes refused because they were too many versions behind."""
        return self.refused.get("stale", 0)


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions for all slots, and what the learner will want to know about them."""

    actions: Array  # [B, *act]
    extras: Mapping[str, Array]  # name -> [B, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Experience picked from a replay. A transition is a rollout of one step, picked ones its slots."""

    rollouts: Sequence[Rollout]
    keys: Array  # identify what was picked, for reprioritise
    weights: Array | None = None  # importance of each; None means equal


@dataclass(frozen=True, slots=True)
class Delivery(Generic[M]):
    """A message and where in its source it stood."""

    message: M
    source: str
    position: int


@dataclass(frozen=True, slots=True)
class Start:
    """An order to a host: run this role."""

    role: str
    index: int
    epoch: int = 0

    @property
    def name(self) -> str:
        """What people call the worker."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to a host: end this role, after its step."""

    role: str
    index: int


@dataclass(frozen=True, slots=True)
class Worker:
    """What a host sees of one worker."""

    role: str
    index: int
    epoch: int
    pid: int
    started_at: float
    exit_code: int | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.role}-{self.index}"

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.exit_code is None
