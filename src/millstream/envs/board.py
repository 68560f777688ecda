"""Snake's rules over many boards at once: plain arrays, no rewards, no episodes.

A board lies in a frame of wall as wide as a head can see, so that a view is one gather without
questions about edges. Cells are addressed by their index in the flat array of all boards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.core.data import Array

EMPTY, FOOD, BODY, HEAD, WALL, RIVAL, RIVAL_HEAD = range(7)
"""What a cell holds; everything above FOOD kills. Rivals exist in views only: on the board a body is a body."""
CELLS = ("empty", "food", "body", "head", "wall", "rival", "rival head")
UP, RIGHT, DOWN, LEFT = range(4)
LENGTH = 3
"""How long a young snake grows."""


@dataclass(frozen=True)
class Moved:
    """What one move of all snakes did."""

    ate: Array  # [snakes] bool
    died: Array  # [snakes] bool


class Boards:
    """Boards of `size` by `size` cells with `snakes` snakes each; snake i lives on board i // snakes."""

    def __init__(self, boards: int, size: int, vision: int, snakes: int = 1, foods: int = 1) -> None:
        self.boards, self.size, self.vision, self.snakes, self.foods = boards, size, vision, snakes, foods
        self.pad = vision + 1  # a head that has just run into the wall looks one cell further
        self.side = size + 2 * self.pad
        self.count = boards * snakes
        self.home = np.repeat(np.arange(boards), snakes)
        self.cells = np.full(boards * self.side**2, WALL, np.uint8)
        self.owners = np.full(boards * self.side**2, -1, np.int32)
        self.heads = np.zeros(self.count, np.int64)
        self.headings = np.zeros(self.count, np.int64)
        self.lengths = np.zeros(self.count, np.int64)
        self.growing = np.zeros(self.count, np.int64)
        self.trails = np.zeros((self.count, size * size + 1), np.int64)  # a ring of the cells each head went through
        self.turns = np.zeros(self.count, np.int64)  # where in its ring each head is
        self._rows = np.arange(self.count)
        self._ahead = np.array([-self.side, 1, self.side, -1])
        self._inside = _inside(size, self.pad, self.side)
        self._windows = _windows(vision, self.side)

    def clear(self, boards: Array, rng: Generator) -> None:
        """Empty some boards, and put a young snake in each place and food beside it."""
        inside = boards[:, None] * self.side**2 + self._inside
        self.cells[inside] = EMPTY
        self.owners[inside] = -1
        for snake in range(self.snakes):
            self.place(boards * self.snakes + snake, rng)
        for _ in range(self.foods):
            self.feed(boards, rng)

    def place(self, snakes: Array, rng: Generator) -> None:
        """Put young snakes of one cell, which will grow, on free cells of their boards, looking inwards."""
        at = self._free(self.home[snakes], rng)
        row, column = self.position(at)
        sideways, middle = rng.random(len(snakes)) < 0.5, self.size // 2
        self.headings[snakes] = np.where(
            sideways, np.where(column < middle, RIGHT, LEFT), np.where(row < middle, DOWN, UP)
        )
        self.heads[snakes] = at
        self.lengths[snakes] = 1
        self.growing[snakes] = LENGTH - 1
        self.turns[snakes] = 0
        self.trails[snakes, 0] = at
        self.cells[at] = HEAD
        self.owners[at] = snakes

    def feed(self, boards: Array, rng: Generator) -> None:
        """Lay food on a free cell of each of these boards, if it has one."""
        at = self._free(boards, rng)
        at = at[self.cells[at] == EMPTY]
        self.cells[at] = FOOD

    def remove(self, snakes: Array) -> None:
        """Take whole snakes off their boards."""
        for snake in snakes:
            body = self.body(int(snake))
            mine = body[self.owners[body] == snake]
            self.cells[mine] = EMPTY
            self.owners[mine] = -1

    def move(self, actions: Array) -> Moved:
        """Move every snake one cell: 0 straight on, 1 left, 2 right. The dead stay where they were, until removed."""
        self.headings = (self.headings + _TURN[actions]) & 3
        targets = self.heads + self._ahead[self.headings]
        ate = self.cells[targets] == FOOD
        self.growing += ate
        grows = self.growing > 0
        self._leave_tails(grows)
        died = self.cells[targets] > FOOD
        if self.snakes > 1:
            died |= _shared(targets)
        ate &= ~died
        self._enter(targets, grows, ~died)
        self.heads = targets
        return Moved(ate, died)

    def view(self, snakes: Array | None = None, headings: Array | None = None) -> Array:
        """What heads see, [snakes, side, side], turned so that they look up; of some snakes, or turned otherwise.

        With headings of UP nothing is turned: rows and columns run as on the map.
        """
        rows = self._rows if snakes is None else snakes
        at = self._windows.take(self.headings[rows] if headings is None else headings, axis=0)
        at += self.heads[rows, None]
        seen = self.cells.take(at)
        if self.snakes > 1:
            others = (self.owners.take(at) != rows[:, None]) & ((seen == BODY) | (seen == HEAD))
            seen[others] += RIVAL - BODY
        side = 2 * self.vision + 1
        return seen.reshape(len(rows), side, side)

    def grid(self, board: int) -> Array:
        """One board without its frame, [size, size]."""
        whole = self.cells.reshape(self.boards, self.side, self.side)[board]
        return whole[self.pad : -self.pad, self.pad : -self.pad]

    def body(self, snake: int) -> Array:
        """The cells of a snake, head first."""
        back = (self.turns[snake] - np.arange(self.lengths[snake])) % self.trails.shape[1]
        return self.trails[snake, back]

    def position(self, at: Array) -> tuple[Array, Array]:
        """Row and column of cells on their boards, from 0."""
        row, column = np.divmod(at % self.side**2, self.side)
        return row - self.pad, column - self.pad

    def state(self) -> dict[str, Array]:
        """Everything, as arrays."""
        return {name: getattr(self, name).copy() for name in _STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        for name in _STATE:
            getattr(self, name)[...] = state[name]

    def _leave_tails(self, grows: Array) -> None:
        lose = ~grows
        ring = self.trails.shape[1]
        tails = self.trails[self._rows, (self.turns - self.lengths + 1) % ring][lose]
        self.cells[tails] = EMPTY
        self.owners[tails] = -1
        self.growing -= grows
        self.lengths += grows

    def _enter(self, targets: Array, grows: Array, alive: Array) -> None:
        # A length counts the cell that the head is about to enter, so the dead give theirs back.
        self.lengths -= ~alive
        self.turns += alive
        self.turns %= self.trails.shape[1]
        old, new, snakes = self.heads[alive], targets[alive], self._rows[alive]
        # A snake of one cell that does not grow has just left the cell of its head.
        self.cells[old[self.owners[old] == snakes]] = BODY
        self.trails[snakes, self.turns[alive]] = new
        self.cells[new] = HEAD
        self.owners[new] = snakes

    def _free(self, boards: Array, rng: Generator) -> Array:
        """A random empty cell of each of these boards; any cell where none is empty."""
        # Boards are mostly empty, so a blind guess is nearly always right; only the others are counted out.
        guess = self._inside[(rng.random(len(boards)) * self._inside.size).astype(np.int64)]
        at: Array = boards * self.side**2 + guess
        wrong = (self.cells[at] != EMPTY).nonzero()[0]
        if wrong.size:
            at[wrong] = self._count_out(boards[wrong], rng)
        return at

    def _count_out(self, boards: Array, rng: Generator) -> Array:
        inside = boards[:, None] * self.side**2 + self._inside
        counted = np.cumsum(self.cells[inside] == EMPTY, axis=1)
        chosen = (rng.random(len(boards)) * counted[:, -1]).astype(np.int64)
        return inside[np.arange(len(boards)), np.argmax(counted > chosen[:, None], axis=1)]


_TURN = np.array([0, -1, 1])
_STATE = ("cells", "owners", "heads", "headings", "lengths", "growing", "trails", "turns")


def _inside(size: int, pad: int, side: int) -> Array:
    rows, columns = np.divmod(np.arange(size * size), size)
    return (rows + pad) * side + columns + pad


def _windows(vision: int, side: int) -> Array:
    """For each heading, how far every cell of the view is from the head, [4, cells]."""
    down, right = np.mgrid[-vision : vision + 1, -vision : vision + 1].reshape(2, -1)
    turned = [(down, right), (right, -down), (-down, -right), (-right, down)]
    return np.stack([rows * side + columns for rows, columns in turned])


def _shared(targets: Array) -> Array:
    """Which heads meet another in one cell."""
    _, where, counts = np.unique(targets, return_inverse=True, return_counts=True)
    return counts[where] > 1
