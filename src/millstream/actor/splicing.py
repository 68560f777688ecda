"""Whole episodes out of rollouts: what a slot did from rollout to rollout, put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from millstream.core.data import NONE, Array, Decision, Episode, Rollout, Stamp, Step


@dataclass
class _Open:
    """An episode that has not ended yet, in the pieces that came so far."""

    observations: list[Mapping[str, Array]] = field(default_factory=list)
    actions: list[Array] = field(default_factory=list)
    rewards: list[Array] = field(default_factory=list)
    masks: list[Array] = field(default_factory=list)

    def add(self, rollout: Rollout, slot: int, steps: slice) -> None:
        """Copies: a rollout's memory goes back to whoever made it. Steps that only reset the slot are left out."""
        kept = np.flatnonzero(rollout.valid[steps, slot]) + steps.start
        self.observations.append({name: array[kept, slot] for name, array in rollout.observations.items()})
        self.actions.append(rollout.actions[kept, slot])
        self.rewards.append(rollout.rewards[kept, slot])
        if "mask" in rollout.extras:
            self.masks.append(rollout.extras["mask"][kept, slot])

    def end(self, last: Mapping[str, Array], terminated: bool, truncated: bool) -> Episode:
        """With its last observation. What was legal there nobody asked for: everything."""
        pieces = [*self.observations, {name: array[None] for name, array in last.items()}]
        masks = [*self.masks, np.ones_like(self.masks[0][:1])] if self.masks else None
        return Episode(
            {name: np.concatenate([piece[name] for piece in pieces]) for name in last},
            np.concatenate(self.actions),
            np.concatenate(self.rewards),
            terminated,
            truncated,
            None if masks is None else np.concatenate(masks),
        )


class Splicer:
    """Follows every slot of every actor. An episode whose beginning was not seen is passed over."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Open] = {}
        self._newest: dict[int, Stamp] = {}

    def take(self, rollout: Rollout) -> Iterator[tuple[int, Episode]]:
        """(slot, episode) of those that ended in it, in the order of their ends."""
        self._follow(rollout)
        begun = np.zeros(rollout.slots, np.int64)
        ends = {(int(t), int(slot)): k for k, (t, slot) in enumerate(rollout.final_at)}
        for t, slot in sorted(ends):
            going = self._going(rollout, slot, int(begun[slot]), t + 1)
            begun[slot] = t + 1
            self._open.pop((rollout.stamp.actor, slot), None)
            if going is not None:
                last = {name: array[ends[t, slot]] for name, array in rollout.finals.items()}
                yield slot, going.end(last, bool(rollout.terminated[t, slot]), bool(rollout.truncated[t, slot]))
        for slot in range(rollout.slots):
            if begun[slot] < rollout.steps:
                self._going(rollout, slot, int(begun[slot]), rollout.steps)

    def _follow(self, rollout: Rollout) -> None:
        """After a gap, or in another life of its actor, nothing that was open can be gone on with."""
        stamp, before = rollout.stamp, self._newest.get(rollout.stamp.actor)
        if before and (before.epoch, before.sequence + 1) != (stamp.epoch, stamp.sequence):
            self._open = {key: each for key, each in self._open.items() if key[0] != stamp.actor}
        self._newest[stamp.actor] = stamp

    def _going(self, rollout: Rollout, slot: int, start: int, stop: int) -> _Open | None:
        """The slot's episode with these steps added; None where its beginning was not seen."""
        key = (rollout.stamp.actor, slot)
        if rollout.first[start:stop, slot].any():
            self._open[key] = _Open()
        if key in self._open:
            self._open[key].add(rollout, slot, slice(start, stop))
        return self._open.get(key)


def episodes(rollouts: Iterable[Rollout]) -> Iterator[Episode]:
    """Whole episodes of a stream of rollouts, such as a log holds."""
    splicer = Splicer()
    for rollout in rollouts:
        for _, episode in splicer.take(rollout):
            yield episode


class Tape:
    """What is played step by step, for a splicer to cut; of the episodes the first few of each slot count."""

    def __init__(self, opening: Step, slots: int, episodes: int):
        self.slots, self.episodes = slots, episodes
        self._splicer, self._sequence = Splicer(), 0
        self._ended = np.zeros(slots, np.int64)
        self._opening = _copied(opening)
        self._played: list[tuple[Array, Step]] = []

    def note(self, decision: Decision, step: Step) -> None:
        """What was chosen, and what came of it: copies, since an environment writes over its own."""
        self._played.append((np.array(decision.actions), _copied(step)))

    def unwind(self) -> Iterator[Episode]:
        """The episodes that ended since the last time, as far as they count."""
        if not self._played:
            return
        for slot, episode in self._splicer.take(self._rollout()):
            turn, self._ended[slot] = int(self._ended[slot]), self._ended[slot] + 1
            if turn * self.slots + slot < self.episodes:
                yield episode
        self._opening, self._played = self._played[-1][1], []
        self._sequence += 1

    def _rollout(self) -> Rollout:
        steps = [step for _, step in self._played]
        shown = [self._opening, *steps]
        endings = [[t, slot] for t, step in enumerate(steps) for slot in step.ended]
        return Rollout(
            observations=_columns([each.observations for each in shown], np.stack),
            finals=_columns([each.finals for each in steps if len(each.ended)], np.concatenate),
            final_at=np.array(endings, np.int64).reshape(-1, 2),
            actions=np.stack([actions for actions, _ in self._played]),
            rewards=np.stack([each.rewards for each in steps]),
            terminated=np.stack([each.terminated for each in steps]),
            truncated=np.stack([each.truncated for each in steps]),
            first=np.stack([each.first for each in shown]),
            valid=np.stack([each.valid for each in steps]),
            carry={},
            extras=_columns([{} if each.masks is None else {"mask": each.masks} for each in shown], np.stack),
            stamp=Stamp("", 0, 0, self._sequence, NONE, 0.0),
        )


def _columns(rows: list[Mapping[str, Array]], join: Callable[[list[Array]], Array]) -> dict[str, Array]:
    return {name: join([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def _copied(step: Step) -> Step:
    plain = {each.name: getattr(step, each.name) for each in fields(Step)}
    return Step(**{name: _copy(value) for name, value in plain.items()})


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: np.array(array) for name, array in value.items()}
    return None if value is None else np.array(value)
