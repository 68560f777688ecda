"""One environment, one replay buffer, one agent: learns while it can, and plays when it cannot."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from millstream.core.codec import decode, encode
from millstream.core.data import Delivery, Rollout, Stamp
from millstream.core.ports import Clock, Snapshots
from millstream.core.topics import Report
from millstream.hosts import shell
from millstream.replay.ingest import Ingest

Holding = Literal["buffer", "agent", "nobody"]
"""The buffer copies what it is given; the agent learns from the memory itself and gives it back; or a copy is made."""
_AHEAD = 4
"""Rollouts that wait between an environment in a thread of its own and the buffer."""


class Worker:
    """The role that a loop steps. Any object with the same methods can stand in the place of each part."""

    def __init__(self, environment: Any, replay_buffer: Any, agent: Any, policies: Any, clock: Clock):
        self.environment, self.replay_buffer, self.agent = environment, replay_buffer, agent
        self.policies = getattr(agent, "policies", None) or policies
        self.clock, self.made, self.limit = clock, 0, 0
        """Steps that came into the buffer, and how many may."""
        self.idle = False
        """Whether the last step found nothing to do."""
        self.at_rest: Callable[[], object] = lambda: None
        """Called when all that was made has been learnt from: the moment for checkpoints."""
        environment.connect(agent, self.policies, clock)
        if hasattr(replay_buffer, "connect"):
            replay_buffer.connect(environment, agent)
        agent.connect(environment, replay_buffer, self.policies, clock, self._give_back)
        self.holding = holding(replay_buffer, agent)
        self.experience: Experience | Background = Experience(environment, self.holding)
        self.ingest = Ingest(self.experience, replay_buffer, copied=self._arrived)

    def step(self) -> int:
        """A piece of learning, or, when there is nothing to learn from, a piece of playing."""
        self.experience.tend()
        did = int(self.agent.step())
        if not did:
            self.at_rest()
            did = self.ingest.step() if self.made < self.limit else 0
        self.idle = not did
        return did

    @property
    def done(self) -> bool:
        """Whether all steps are made, and nothing is left to learn from them."""
        return self.made >= self.limit and self.idle

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The environment plays in a thread of its own as long as this lasts."""
        here, apart = self.experience, Background(self.environment, self.holding, self.clock)
        self.experience = self.ingest.subscription = apart
        try:
            yield
        finally:
            self.ingest.take_back(apart.close())
            self.experience = self.ingest.subscription = here

    def reports(self) -> list[Report]:
        """What environment and agent have to tell."""
        parts = [part for part in (self.environment, self.agent) if hasattr(part, "reports")]
        return [report for part in parts for report in part.reports()]

    def snapshot(self) -> Mapping[str, Any]:
        """All parts that can be kept; the buffer is the agent's to keep where it learns from one again and again."""
        with self.experience.resting():
            kept = {name: part.snapshot() for name, part in self._parts().items()}
        return {"made": self.made, **kept}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        for name, part in self._parts().items():
            if name in snapshot:
                part.restore(snapshot[name])
        self.made = int(snapshot["made"])

    def reopen(self, number: int) -> None:
        """What cannot be kept starts anew at this checkpoint, here as in a run that is continued."""
        if hasattr(self.environment, "reopen"):
            self.environment.reopen(number)

    def _parts(self) -> dict[str, Snapshots]:
        parts = {"environment": self.environment, "ingest": self.ingest, "agent": self.agent}
        return {name: part for name, part in parts.items() if isinstance(part, Snapshots)}

    def _arrived(self, rollout: Rollout) -> None:
        self.made += rollout.count
        if hasattr(self.agent, "see"):
            self.agent.see(rollout)

    def _give_back(self, stamp: Stamp) -> None:
        self.experience.give_back(stamp)


def holding(replay_buffer: Any, agent: Any) -> Holding:
    """Who needs the memory of a rollout for how long."""
    if getattr(replay_buffer, "copies", False):
        return "buffer"
    return "agent" if getattr(agent, "releases", False) else "nobody"


class Experience:
    """What an environment makes, as ingest reads it."""

    def __init__(self, environment: Any, holding: Holding):
        self.environment, self.holding = environment, holding
        self._playing = threading.Lock()
        self._rests = False

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        """Let it play, and take what is finished."""
        if self._rests:
            return []
        found = []
        for rollout in self.environment.generate(limit):
            if self.holding == "nobody":
                rollout = decode(encode(rollout))
                self.give_back(rollout.stamp)
            found.append(Delivery(rollout, "environment", 0))
        return found

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nobody plays as long as this lasts."""
        with self._playing:
            self._rests = True
            try:
                yield
            finally:
                self._rests = False

    def tend(self) -> None:
        """Look after workers who play by themselves, where there are any."""
        if hasattr(self.environment, "tend"):
            self.environment.tend()

    def release(self, stamp: Stamp) -> None:
        """The buffer has it: where it was copied, its memory is used again."""
        if self.holding == "buffer":
            self.give_back(stamp)

    def give_back(self, stamp: Stamp) -> None:
        """Its memory is used again."""
        if hasattr(self.environment, "release"):
            self.environment.release(stamp)

    def positions(self) -> Mapping[str, int]:
        """None: what an environment made is not made again."""
        return {}

    def seek(self, positions: Mapping[str, int]) -> None:
        """Nowhere to go back to."""


class Background(Experience):
    """The same from a thread of its own: the environment plays on while the agent learns."""

    def __init__(self, environment: Any, holding: Holding, clock: Clock):
        super().__init__(environment, holding)
        self.clock = clock
        self._made: deque[Delivery[Rollout]] = deque()
        self._returned: deque[Stamp] = deque()
        self._stopping, self._failed = threading.Event(), deque[BaseException]()
        self._thread = threading.Thread(target=self._run, name="environment", daemon=True)
        self._thread.start()

    def poll(self, limit: int) -> list[Delivery[Rollout]]:
        """What has been made; what went wrong there is raised here."""
        if self._failed:
            raise self._failed[0]
        if self._rests:
            return []
        return [self._made.popleft() for _ in range(min(limit, len(self._made)))]

    def tend(self) -> None:
        """Done where it plays."""

    def give_back(self, stamp: Stamp) -> None:
        """Its memory goes back from the thread that plays: an environment is touched by one thread alone."""
        self._returned.append(stamp)

    def step(self) -> int:
        """Give back what is done with, then play, unless enough is waiting."""
        with self._playing:
            while self._returned:
                super().give_back(self._returned.popleft())
            if len(self._made) >= _AHEAD:
                return 0
            found = super().poll(_AHEAD)
            self._made.extend(found)
        return len(found)

    def close(self) -> list[Delivery[Rollout]]:
        """Let it finish its step; what was made and not taken."""
        self._stopping.set()
        self._thread.join()
        while self._returned:
            super().give_back(self._returned.popleft())
        return list(self._made)

    def _run(self) -> None:
        try:
            shell.run([self], self.clock, self._stopping.is_set)
        except BaseException as error:  # a thread has nobody to raise it to
            self._failed.append(error)
