"""CartPole-v1 for many slots at once: Gymnasium's dynamics, in the same order of operations, without its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import EnvError
from millstream.core.spec import SINGLE, Box, Discrete, EnvSpec

FAR = 2.4
"""How far the cart may be from the middle."""
TILT = 12 * 2 * math.pi / 360
"""How far the pole may lean, in radians."""
LIMIT = 500
"""How many steps an episode may have."""

# The constants are arrays of no dimension: NumPy takes twice as long to multiply by a Python number.
GRAVITY = np.array(9.8)
POLE_MASS = np.array(0.1)
TOTAL_MASS = np.array(0.1 + 1.0)
HALF_LENGTH = np.array(0.5)
POLE_MOMENT = np.array(0.1 * 0.5)
FOUR_THIRDS = np.array(4.0 / 3.0)
TICK = np.array(0.02)
FORCES = np.array([-10.0, 10.0])
ONE = np.array(1)
LAST = np.array(LIMIT)

SPREAD = 0.05
"""Every number of a first state lies within this of zero."""
DRAWS = 1024
"""First states drawn ahead: a draw of a few numbers costs as much as one of hundreds."""

_HIGH = tuple(float(np.float32(edge)) for edge in (2 * FAR, math.inf, 2 * TILT, math.inf))
SPEC = EnvSpec(
    id="CartPole-v1",
    observations={SINGLE: Box((4,), low=tuple(-edge for edge in _HIGH), high=_HIGH)},
    action=Discrete(2),
    max_episode_steps=LIMIT,
    reward_threshold=475.0,
    fps=50,
)


class CartPole:
    """A pole on a cart, to be balanced by pushing left (0) or right (1); +1 a step, 500 steps at most.

    State is float64 and each operation stands in Gymnasium's order, so every number equals
    Gymnasium's to the last bit. An ended slot restarts in the same step.
    """

    def __init__(self, slots: int) -> None:
        self.spec = SPEC
        self.slots = slots
        self._rng = np.random.default_rng(0)
        self._bank = np.empty((0, 4))
        # Positions and angles lie together, then their speeds: what is done to a pair is one operation on one row.
        self._state = np.zeros((2, 2, slots))  # [place or speed, linear or angular, slot]
        self._places, self._speeds = self._state.reshape(2, 2 * slots)
        self._pushes = np.zeros(2 * slots)  # accelerations
        self._moves = np.empty(2 * slots)
        self._rows = (self._state[0, 1], self._state[1, 1], *self._pushes.reshape(2, slots))
        self._scratch = tuple(np.empty((4, slots)))
        self._edges = np.repeat([FAR, TILT], slots)
        self._outside = np.empty(2 * slots, bool)
        self._far, self._tilted = self._outside.reshape(2, slots)
        self._ages = np.zeros(slots, np.int64)
        self._observations = np.zeros((slots, 4), np.float32)
        self._named = {SINGLE: self._observations}
        # Gymnasium shows position, velocity, angle, angular velocity.
        self._shown = self._observations.reshape(slots, 2, 2).transpose(2, 1, 0)
        self._terminated, self._truncated, self._done = np.zeros((3, slots), bool)
        self._rewards = np.ones(slots, np.float32)
        self._valid = np.ones(slots, bool)
        # Most steps end no episode; they all answer with this one object over the same arrays.
        self._quiet = self._answer(np.zeros(0, np.int64))

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot; every draw from here on follows from the seed."""
        self._rng = np.random.default_rng(seed)
        self._bank = np.empty((0, 4))
        self._done[:] = True
        self._terminated[:] = self._truncated[:] = False
        self._restart(np.arange(self.slots))
        step = self._answer(np.zeros(0, np.int64))
        self._done = np.zeros_like(self._done)  # the answer keeps the old array: all first
        self._quiet = self._answer(step.ended)
        return step

    def step(self, actions: Array) -> Step:
        """Push every cart."""
        try:
            force = FORCES[actions]
        except IndexError as error:
            raise EnvError(f"CartPole-v1 takes actions 0 and 1 as integers, got {actions!r}") from error
        self._advance(force)
        np.add(self._ages, ONE, self._ages)
        np.abs(self._places, self._moves)
        np.greater(self._moves, self._edges, self._outside)
        np.logical_or(self._far, self._tilted, self._terminated)
        np.greater_equal(self._ages, LAST, self._truncated)
        np.logical_or(self._terminated, self._truncated, self._done)
        self._shown[:] = self._state
        ended = self._done.nonzero()[0]
        return self._finish(ended) if ended.size else self._quiet

    def render(self, slot: int = 0) -> Array:
        """The cart, its pole and the track, 600 by 400."""
        from millstream.envs.drawing import cartpole  # drawing is not needed to train

        return cartpole(*self._state[0, :, slot].tolist())

    def close(self) -> None:
        """Nothing to let go of."""

    def snapshot(self) -> Mapping[str, Any]:
        """The state of every slot, and the generator with what it has already drawn."""
        return {
            "state": self._state.copy(),
            "ages": self._ages.copy(),
            "bank": self._bank.copy(),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly where the snapshot was taken."""
        self._state[:] = snapshot["state"]
        self._ages[:] = snapshot["ages"]
        self._bank = np.array(snapshot["bank"], dtype=np.float64).reshape(-1, 4)
        self._rng.bit_generator.state = snapshot["rng"]
        self._shown[:] = self._state

    def _advance(self, force: Array) -> None:
        """One Euler step; see https://coneural.org/florian/papers/05_cart_pole.pdf, eq. 23 and 24."""
        temp, sine, cosine, work = self._scratch
        multiply, divide, subtract = np.multiply, np.divide, np.subtract
        lean, spin, linear, angular = self._rows
        np.sin(lean, sine)
        np.cos(lean, cosine)
        # temp = (force + POLE_MOMENT * spin^2 * sine) / TOTAL_MASS
        multiply(spin, spin, temp)
        multiply(temp, POLE_MOMENT, temp)
        multiply(temp, sine, temp)
        np.add(temp, force, temp)
        divide(temp, TOTAL_MASS, temp)
        # angular = (GRAVITY * sine - cosine * temp) / (HALF_LENGTH * (4/3 - POLE_MASS * cosine^2 / TOTAL_MASS))
        multiply(sine, GRAVITY, sine)
        multiply(cosine, temp, work)
        subtract(sine, work, sine)
        multiply(cosine, cosine, work)
        multiply(work, POLE_MASS, work)
        divide(work, TOTAL_MASS, work)
        subtract(FOUR_THIRDS, work, work)
        multiply(work, HALF_LENGTH, work)
        divide(sine, work, angular)
        # linear = temp - POLE_MOMENT * angular * cosine / TOTAL_MASS
        multiply(angular, POLE_MOMENT, work)
        multiply(work, cosine, work)
        divide(work, TOTAL_MASS, work)
        subtract(temp, work, linear)
        multiply(self._speeds, TICK, self._moves)
        np.add(self._places, self._moves, self._places)
        multiply(self._pushes, TICK, self._moves)
        np.add(self._speeds, self._moves, self._speeds)

    def _finish(self, ended: Array) -> Step:
        finals = self._observations[ended]
        self._restart(ended)
        return self._answer(ended, finals)

    def _restart(self, slots: Array) -> None:
        if len(self._bank) < slots.size:
            fresh = self._rng.uniform(-SPREAD, SPREAD, (max(DRAWS, slots.size), 4))
            self._bank = np.concatenate([self._bank, fresh])
        drawn, self._bank = self._bank[: slots.size], self._bank[slots.size :]
        self._state[:, :, slots] = drawn.reshape(-1, 2, 2).transpose(2, 1, 0)
        self._observations[slots] = drawn
        self._ages[slots] = 0

    def _answer(self, ended: Array, finals: Array | None = None) -> Step:
        return Step(
            observations=self._named,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=self._valid,
            first=self._done,
            ended=ended,
            finals={SINGLE: self._observations[:0] if finals is None else finals},
        )
