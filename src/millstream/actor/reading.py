"""The reader: an actor whose world is a dataset. It publishes recorded episodes as rollouts, over and over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.random import default_rng

from millstream.core.codec import Layout, rollout_of
from millstream.core.data import NONE, Episode, Rollout, Stamp
from millstream.core.ports import Bus, Clock, PolicyStore
from millstream.core.spec import EnvSpec
from millstream.core.topics import EXPERIENCES, METRICS_ACTORS


class Recorded(Protocol):
    """Episodes at rest."""

    def __len__(self) -> int:
        """How many there are."""

    def read(self, indices: Iterable[int]) -> Iterator[Episode]:
        """Those, one after another; one that was kept in pieces is several."""


@dataclass(frozen=True)
class Place:
    """How far a reader is: rounds through the data, episodes of this one, steps of the episode."""

    round: int = 0
    episode: int = 0
    step: int = 0


class Reader:
    """One slot in which one episode follows another, cut into rollouts of `steps`. Every round has its own order."""

    def __init__(
        self,
        *,
        experiment: str,
        index: int,
        epoch: int,
        spec: EnvSpec,
        data: Recorded,
        bus: Bus,
        policies: PolicyStore,
        seed: int,
        steps: int,
        clock: Clock,
    ):
        self.experiment, self.index, self.epoch = experiment, index, epoch
        self.spec, self.data, self.bus, self.policies = spec, data, bus, policies
        self.seed, self.steps, self.clock = seed, steps, clock
        self.sequence, self.place = 0, Place()
        self.seconds = dict.fromkeys(("read", "wait"), 0.0)
        self._layout = Layout.of(spec, steps, 1, _frames_before(spec, None, 0), {})
        self._begun = False
        self._after = self.place
        self._coming: Iterator[tuple[Place, Episode]] | None = None
        self._now: Episode | None = None
        self._finished: Rollout | None = None
        self._waiting_since: float | None = None

    def step(self) -> int:
        """One rollout; 0 while there is no credit, or no policy yet."""
        if self._finished is not None:
            return self._publish()
        # it has no use for a policy, but a resumed run repeats exactly only if nobody is ahead of the learner
        self._begun = self._begun or self.policies.latest() is not None
        if not self._begun:
            return 0
        memory, now = self.bus.claim(EXPERIENCES, self.index, self._layout.size), self.clock.monotonic()
        if memory is None:
            self._waiting_since = now if self._waiting_since is None else self._waiting_since
            return 0
        if self._waiting_since is not None:
            self.seconds["wait"] += now - self._waiting_since
            self._waiting_since = None
        arrays = self._layout.views(memory)
        finals = self._fill(arrays)
        made = Stamp(self.experiment, self.index, self.epoch, self.sequence, NONE, self.clock.now())
        self._finished = rollout_of(arrays, self.steps, finals, made)
        self.seconds["read"] += self.clock.monotonic() - now
        return self._publish()

    def snapshot(self) -> Mapping[str, Any]:
        """Where it is in which order."""
        place = [self.place.round, self.place.episode, self.place.step]
        return {"sequence": self.sequence, "seed": self.seed, "place": place}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        self.sequence, self.seed = int(snapshot["sequence"]), int(snapshot["seed"])
        self.place = self._after = Place(*snapshot["place"])
        self._coming = self._now = self._finished = None

    def _fill(self, arrays: dict[str, np.ndarray]) -> int:
        """Steps of this episode and of those that follow, as many as a rollout has; how many ended in it."""
        t = finals = 0
        episode = self._episode()
        arrays["valid"][:] = True
        for name in ("first", "terminated", "truncated"):
            arrays[name][:] = False
        for name, frames in _frames_before(self.spec, episode, self._after.step).items():
            arrays[f"carry/{name}"][...] = frames
        while t < self.steps:
            at = self._after.step
            count = min(self.steps - t, episode.steps - at)
            _put(arrays, t, episode, at, count)
            t, at = t + count, at + count
            self._after = replace(self._after, step=at)
            if at == episode.steps:
                _end(arrays, t - 1, finals, episode)
                finals += 1
                episode = self._next()
        for name, array in episode.observations.items():
            arrays[f"observations/{name}"][t, 0] = array[self._after.step]
        arrays["first"][t] = self._after.step == 0
        if episode.masks is not None:
            arrays["extras/mask"][t, 0] = episode.masks[self._after.step]
        return finals

    def _episode(self) -> Episode:
        """The one that is being read; after a restart it is looked for."""
        if self._now is None:
            self._coming = self._from(self._after)
            step = self._after.step
            self._after, self._now = next(self._coming)
            self._after = replace(self._after, step=step)
        return self._now

    def _next(self) -> Episode:
        assert self._coming is not None
        self._after, self._now = next(self._coming)
        return self._now

    def _from(self, place: Place) -> Iterator[tuple[Place, Episode]]:
        """Every episode from there on with its place, round after round."""
        round, skip = place.round, place.episode
        while True:
            order = default_rng([self.seed, round]).permutation(len(self.data))
            for number, episode in enumerate(self.data.read(order.tolist())):
                if number >= skip:
                    yield Place(round, number), episode
            round, skip = round + 1, 0

    def _publish(self) -> int:
        assert self._finished is not None
        count = self._finished.count
        if not self.bus.publish(EXPERIENCES, self._finished):
            return 0
        self.bus.publish(METRICS_ACTORS, self._report(count))
        self._finished, self.place = None, self._after
        self.sequence += 1
        return count

    def _report(self, count: int) -> dict[str, Any]:
        """As an actor's, but of nobody's policy; what was reached when the data was made is no news of this run."""
        report = {
            "kind": "actor",
            "actor": self.index,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "steps": count,
            "policy": [NONE.epoch, NONE.number],
            "episodes": [],
            "seconds": self.seconds,
            "at": self.clock.now(),
        }
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        return report


def _put(arrays: dict[str, np.ndarray], t: int, episode: Episode, at: int, count: int) -> None:
    """So many steps of an episode, from its step `at` on."""
    there, here = slice(t, t + count), slice(at, at + count)
    for name, array in episode.observations.items():
        arrays[f"observations/{name}"][there, 0] = array[here]
    arrays["actions"][there, 0] = episode.actions[here]
    arrays["rewards"][there, 0] = episode.rewards[here]
    arrays["first"][t] = at == 0
    if episode.masks is not None:
        arrays["extras/mask"][there, 0] = episode.masks[here]


def _end(arrays: dict[str, np.ndarray], t: int, final: int, episode: Episode) -> None:
    arrays["terminated"][t], arrays["truncated"][t] = episode.terminated, episode.truncated
    arrays["final_at"][final] = (t, 0)
    for name, array in episode.observations.items():
        arrays[f"finals/{name}"][final] = array[-1]


def _frames_before(spec: EnvSpec, episode: Episode | None, step: int) -> dict[str, np.ndarray]:
    """What a policy that sees stacks remembers there: the frames before, the first one standing for those before it."""
    if spec.stack == 1:
        return {}
    rows = np.maximum(step - np.arange(spec.stack - 1, 0, -1), 0)
    return {
        f"frames/{name}": np.zeros((1, spec.stack - 1, *space.shape), space.dtype)
        if episode is None
        else np.asarray(episode.observations[name])[rows][None]
        for name, space in spec.observations.items()
    }
