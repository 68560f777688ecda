"""Snake in the fog: a head sees only what lies near it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import ConfigError, EnvError
from millstream.core.spec import SINGLE, Box, Discrete, EnvSpec
from millstream.envs.board import BODY, FOOD, HEAD, Boards

VIEWS = ("flat", "image")
"""Two planes as one row of float32 for an MLP, or three planes as a uint8 image for a CNN."""


class Snake:
    """Eat and grow; walls and bodies kill. Actions: 0 straight on, 1 turn left, 2 turn right.

    A view is the square of cells within `vision` of the head, turned so that the snake looks up: what
    lies ahead always stands in the same place, which a network learns from soonest. `flat` holds two
    planes of 0 and 1, what kills and what feeds; `image` adds the own body and has 255 for 1.

    With several snakes a board, slot i is snake i % snakes of board i // snakes. A board with one snake
    starts anew when it dies; with several it goes on, and the dead one returns young, somewhere free.
    A snake that has not eaten for `patience` moves is truncated.
    """

    def __init__(
        self,
        slots: int,
        size: int = 15,
        vision: int = 5,
        snakes: int = 1,
        foods: int | None = None,
        food: float = 1.0,
        death: float = -1.0,
        move: float = 0.0,
        patience: int | None = None,
        view: str = "flat",
    ) -> None:
        _check(slots, size, vision, snakes, view)
        self.slots = slots
        self.board = Boards(slots // snakes, size, vision, snakes, snakes if foods is None else foods)
        self._gains = (food, death, move)
        self._patience = patience or size * size
        self._rng = np.random.default_rng(0)
        self._hunger = np.zeros(slots, np.int64)
        side = 2 * vision + 1
        self._image = view == "image"
        space = Box((side, side, 3), "uint8", 0.0, 255.0) if self._image else Box((2 * side * side,), low=0.0, high=1.0)
        self._seen = np.zeros((slots, *space.shape), space.dtype)
        self._valid = np.ones(slots, bool)
        id = "SnakeImages-v0" if self._image else "Snake-v0"
        self.spec = EnvSpec(id, {SINGLE: space}, Discrete(3), fps=10)

    def reset(self, seed: int) -> Step:
        """Every board anew; every draw from here on follows from the seed."""
        self._rng = np.random.default_rng(seed)
        self.board.clear(np.arange(self.board.boards), self._rng)
        self._hunger[:] = 0
        self._look()
        nothing = np.zeros(self.slots, bool)
        return self._answer(np.zeros(self.slots, np.float32), nothing, nothing, ~nothing, self._seen[:0])

    def step(self, actions: Array) -> Step:
        """Move every snake."""
        try:
            moved = self.board.move(actions)
        except IndexError as error:
            raise EnvError(f"Snake takes actions 0, 1 and 2 as integers, got {actions!r}") from error
        food, death, move = self._gains
        rewards = np.full(self.slots, move, np.float32)
        rewards[moved.ate] += food
        rewards[moved.died] += death
        self._hunger += 1
        self._hunger[moved.ate] = 0
        terminated = moved.died | (self.board.lengths >= self.board.size**2)
        truncated = (self._hunger >= self._patience) & ~terminated
        self._feed(moved.ate)
        self._look()
        done = terminated | truncated
        return self._answer(rewards, terminated, truncated, done, self._restart(done.nonzero()[0]))

    def render(self, slot: int = 0) -> Array:
        """The slot's board; what its head does not see lies in the fog."""
        from millstream.envs.drawing import snake  # drawing is not needed to train

        row, column = self.board.position(self.board.heads[slot])
        return snake(self.board.grid(int(self.board.home[slot])), (int(row), int(column)), self.board.vision)

    def close(self) -> None:
        """Nothing to let go of."""

    def snapshot(self) -> Mapping[str, Any]:
        """The boards, the hunger and the generator."""
        return {
            "board": self.board.state(),
            "hunger": self._hunger.copy(),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly where the snapshot was taken."""
        self.board.restore(snapshot["board"])
        self._hunger[:] = snapshot["hunger"]
        self._rng.bit_generator.state = snapshot["rng"]
        self._look()

    def _feed(self, ate: Array) -> None:
        for boards in self._apart(self.board.home[ate]):
            self.board.feed(boards, self._rng)

    def _restart(self, ended: Array) -> Array:
        """Open the next episodes and give back what the ended ones saw last."""
        finals: Array = self._seen[ended]
        if not ended.size:
            return finals
        self._hunger[ended] = 0
        if self.board.snakes == 1:
            self.board.clear(ended, self._rng)
        else:
            self.board.remove(ended)
            for snakes in self._apart(ended):
                self.board.place(snakes, self._rng)
        self._look(ended if self.board.snakes == 1 else None)  # neighbours see a dead snake go
        return finals

    def _apart(self, items: Array) -> list[Array]:
        """Groups that may be placed at once: on a shared board one after the other, or two take the same cell."""
        if self.board.snakes > 1:
            return [items[at : at + 1] for at in range(len(items))]
        return [items] if len(items) else []

    def _look(self, snakes: Array | None = None) -> None:
        view = self.board.view(snakes)
        rows = slice(None) if snakes is None else snakes
        deadly, edible = view > FOOD, view == FOOD
        if self._image:
            planes = np.stack([deadly, edible, (view == BODY) | (view == HEAD)], axis=-1)
            self._seen[rows] = planes.view(np.uint8) * np.uint8(255)
            return
        cells = deadly[0].size
        self._seen[rows, :cells] = deadly.reshape(-1, cells)
        self._seen[rows, cells:] = edible.reshape(-1, cells)

    def _answer(self, rewards: Array, terminated: Array, truncated: Array, first: Array, finals: Array) -> Step:
        return Step(
            observations={SINGLE: self._seen},
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            valid=self._valid,
            first=first,
            ended=(terminated | truncated).nonzero()[0],
            finals={SINGLE: finals},
        )


def _check(slots: int, size: int, vision: int, snakes: int, view: str) -> None:
    if snakes < 1 or slots % snakes:
        raise ConfigError(f"slots must be a multiple of the snakes on a board, got {slots} slots and {snakes} snakes")
    if size < 5 or size * size < 9 * snakes:
        raise ConfigError(f"a board of size {size} is too small for {snakes} snakes; 5 is the least")
    if not 1 <= vision <= 50:
        raise ConfigError(f"vision must be between 1 and 50, got {vision}")
    if view not in VIEWS:
        raise ConfigError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
