"""The bus and the policy store of a run in one process: the objects themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from millstream.core.data import NONE, Delivery, Params, Policy, Rollout, Stamp, Version, check_newer
from millstream.core.ports import Subscription
from millstream.core.topics import EXPERIENCES, Topic
from millstream.wires.log import Log

M = TypeVar("M")

_ALIGN = 64
_REPORTS = 4096  # drop_oldest topics keep this many
_COMMANDS = 65536  # refuse topics are read by everyone, so being full means that a reader is gone


@dataclass(slots=True)
class _Held:
    rollout: Rollout
    arrival: int
    memory: memoryview | None


@dataclass(slots=True)
class _Lane:
    """What one sender has under way."""

    held: deque[_Held] = field(default_factory=deque)
    released: int = 0
    settled: int = -1
    claimed: memoryview | None = None
    spare: list[memoryview] = field(default_factory=list)

    @property
    def published(self) -> int:
        return self.released + len(self.held)

    def take(self, size: int) -> memoryview:
        # The same few buffers go round, so that their pages are touched, and paid for, only once.
        while self.spare:
            memory = self.spare.pop()
            if len(memory) >= size:
                return memory
        return aligned(size)


class MemoryBus:
    """Carries messages between the roles of one process. At most `window` rollouts of a sender are under way."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._lanes: dict[int, _Lane] = {}
        self._logs: dict[str, Log[Any]] = {}
        self._arrivals = 0

    @property
    def dropped(self) -> int:
        """Reports that made room for newer ones before they were read."""
        return sum(log.dropped for log in self._logs.values())

    def claim(self, topic: Topic[M], sender: int, size: int) -> memoryview | None:
        """Memory for the sender's next rollout, the same until it publishes; None: no credit."""
        lane = self._lane(sender)
        if lane.claimed is not None and len(lane.claimed) >= size:
            return lane.claimed
        if len(lane.held) >= self._window:
            return None
        lane.claimed = lane.take(size)
        return lane.claimed

    def publish(self, topic: Topic[M], message: M) -> bool:
        """Hand a message over as it is; False: no credit or full."""
        if topic.name != EXPERIENCES.name:
            return self._log(topic).append(message)
        rollout = cast(Rollout, message)
        lane = self._lane(rollout.stamp.actor)
        if len(lane.held) >= self._window:
            return False
        lane.held.append(_Held(rollout, self._arrivals, lane.claimed))
        lane.claimed = None
        lane.settled = rollout.stamp.sequence
        self._arrivals += 1
        return True

    def settled(self, topic: Topic[M], sender: int) -> int:
        """The last sequence of this sender that was accepted; -1 when none was."""
        return self._lane(sender).settled

    def subscribe(self, topic: Topic[M], group: str) -> Subscription[M]:
        """A reader that starts at the oldest message still held."""
        if topic.name != EXPERIENCES.name:
            return self._log(topic).subscribe(group)
        return cast(Subscription[M], _Rollouts(self._lanes))

    def _lane(self, sender: int) -> _Lane:
        return self._lanes.setdefault(sender, _Lane())

    def _log(self, topic: Topic[M]) -> Log[M]:
        if topic.name not in self._logs:
            self._logs[topic.name] = Log(topic, _COMMANDS if topic.full == "refuse" else _REPORTS)
        return self._logs[topic.name]


class _Rollouts:
    """A reader of all lanes, in the order of arrival."""

    def __init__(self, lanes: dict[int, _Lane]) -> None:
        self._lanes = lanes
        self._cursors: dict[int, int] = {}

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        waiting = []
        for actor, lane in self._lanes.items():
            start = self._cursor(actor, lane) - lane.released
            waiting += [(lane.held[i].arrival, actor, i) for i in range(start, len(lane.held))]
        deliveries = []
        for _, actor, index in sorted(waiting)[:limit]:
            lane = self._lanes[actor]
            position = lane.released + index
            self._cursors[actor] = position + 1
            deliveries.append(Delivery(lane.held[index].rollout, f"actor-{actor}", position))
        return deliveries

    def release(self, stamp: Stamp) -> None:
        lane = self._lanes.get(stamp.actor, _Lane())
        identity = (stamp.epoch, stamp.sequence)
        if not any(_identity(held) == identity for held in lane.held):
            return  # released already
        while True:
            held = lane.held.popleft()
            lane.released += 1
            if held.memory is not None:
                lane.spare.append(held.memory)
            if _identity(held) == identity:
                return

    def positions(self) -> Mapping[str, int]:
        return {f"actor-{actor}": self._cursor(actor, lane) for actor, lane in sorted(self._lanes.items())}

    def seek(self, positions: Mapping[str, int]) -> None:
        for actor, lane in self._lanes.items():
            wanted = positions.get(f"actor-{actor}", lane.released)
            self._cursors[actor] = min(wanted, lane.published)

    def _cursor(self, actor: int, lane: _Lane) -> int:
        return max(self._cursors.get(actor, 0), lane.released)


class MemoryPolicies:
    """The latest policy, for readers in this process."""

    def __init__(self) -> None:
        self._latest: Policy | None = None

    def publish(self, policy: Policy) -> None:
        """Make this the latest; Fenced when it is not newer, because then another learner is at work."""
        if self._latest is not None:
            check_newer(policy.version, self._latest.version)
        # Copies, because optimisers change weights in place and a version must stay what it was.
        tensors = {name: np.array(tensor) for name, tensor in policy.params.tensors.items()}
        self._latest = Policy(policy.version, Params(tensors, dict(policy.params.hyper)), policy.steps)

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The latest policy, or None when there is nothing newer than that."""
        latest = self._latest
        return latest if latest is not None and latest.version > newer_than else None


def _identity(held: _Held) -> tuple[int, int]:
    return held.rollout.stamp.epoch, held.rollout.stamp.sequence


def aligned(size: int) -> memoryview:
    """Memory in which rollouts can be built."""
    raw = np.empty(size + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + size].data
