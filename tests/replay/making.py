"""Rollouts of a world in which every step can be told from every other."""

from __future__ import annotations

import numpy as np

from millstream.core.data import Rollout, Stamp, Version


class Worlds:
    """Slots of one actor: observation = (actor, slot, episode, step); episodes end at random."""

    def __init__(self, actor: int, slots: int, seed: int, image: bool = False, stack: int = 1, resets: bool = False):
        self.actor, self.slots, self.image, self.stack, self.resets = actor, slots, image, stack, resets
        self.rng = np.random.default_rng([seed, actor])
        self.sequence = 0
        self.episode, self.step = np.zeros(slots, int), np.zeros(slots, int)
        self.opens, self.over = np.ones(slots, bool), np.zeros(slots, bool)
        self.before = [[self.see(slot)] * (stack - 1) for slot in range(slots)]
        self.told: list[dict] = []
        """Every step that happened: what a table must give back."""
        self.last: dict[int, dict] = {}

    def see(self, slot):
        four = np.array([self.actor, slot, self.episode[slot], self.step[slot]])
        if not self.image:
            return four.astype(np.float32)
        return np.broadcast_to(four.astype(np.uint8)[:, None], (4, 3)).copy()

    def rollout(self, steps: int) -> Rollout:
        slots = self.slots
        seen = [[self.see(slot) for slot in range(slots)]]
        first = [self.opens.copy()]
        carry = {}
        if self.stack > 1:
            carry = {"frames/obs": np.array(self.before)}
        finals, final_at = [], []
        actions, rewards = np.zeros((steps, slots), np.int64), np.zeros((steps, slots), np.float32)
        terminated, truncated = np.zeros((steps, slots), bool), np.zeros((steps, slots), bool)
        valid = np.ones((steps, slots), bool)
        for t in range(steps):
            for slot in range(slots):
                now = seen[-1][slot]
                actions[t, slot], rewards[t, slot] = self.rng.integers(10), self.rng.normal()
                if self.over[slot]:  # this call only resets
                    valid[t, slot], actions[t, slot], rewards[t, slot] = False, 0, 0
                    self.over[slot] = False
                    self._open(slot)
                    self.last.pop(slot, None)
                    continue
                stack = [*self.before[slot], now] if not self.opens[slot] else [now] * self.stack
                self.before[slot] = stack[1:]
                self.opens[slot] = False
                self.step[slot] += 1
                after = self.see(slot)
                fate = self.rng.random()
                terminated[t, slot], truncated[t, slot] = fate < 0.15, 0.15 <= fate < 0.25
                told = {
                    "now": np.array(stack), "after": np.array([*stack[1:], after]), "action": actions[t, slot],
                    "reward": rewards[t, slot], "terminated": terminated[t, slot], "truncated": truncated[t, slot],
                    "row": (self.actor, self.sequence, t, slot), "next": None,
                }  # fmt: skip
                if slot in self.last:
                    self.last[slot]["next"] = told
                self.last[slot] = told
                self.told.append(told)
                if fate < 0.25:
                    finals.append(after)
                    final_at.append((t, slot))
                    self.last.pop(slot)
                    if self.resets:
                        self.over[slot] = True
                    else:
                        self._open(slot)
            seen.append([self.see(slot) for slot in range(slots)])
            first.append(self.opens.copy())
        stamp = Stamp("test", self.actor, 0, self.sequence, Version(0, self.sequence), 0.0)
        self.sequence += 1
        blank = np.zeros((0, *seen[0][0].shape), seen[0][0].dtype)
        return Rollout(
            {"obs": np.array(seen)}, {"obs": np.array(finals) if finals else blank},
            np.array(final_at, np.int64).reshape(-1, 2), actions, rewards, terminated, truncated,
            np.array(first), valid, carry, {}, stamp,
        )  # fmt: skip

    def _open(self, slot):
        self.episode[slot] += 1
        self.step[slot] = 0
        self.opens[slot] = True
