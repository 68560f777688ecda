"""Snake played without learning: at random, and greedily. Both see what a network sees, and are judged like one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from millstream.actor.evaluation import Evaluation
from millstream.core.data import NONE, Array, Decision, Params, Policy
from millstream.core.spec import SINGLE
from millstream.envs.snake import Snake

EPISODES = 1000
SEED = 10_000
"""The one that final evaluations use."""
FOOD_ALONE = {"food": 1.0, "death": 0.0, "move": 0.0}
"""Rewards with which a return is the food that was eaten; they change nothing about the game."""


class Player(Protocol):
    """Somebody who looks and moves: 0 straight on, 1 left, 2 right."""

    def moves(self, seen: Array, rng: Generator) -> Array:
        """A move for each row of what is seen, [B, 2 * cells]: what kills, then what feeds."""


class Random:
    """Moves at random."""

    def moves(self, seen: Array, rng: Generator) -> Array:
        return rng.integers(0, 3, len(seen))


class Greedy:
    """Goes for the nearest food in sight, and never into what kills while there is another way.

    With no food in sight it wanders: mostly straight on, or it would circle along the walls for ever.
    """

    WANDERING = (0.8, 0.1, 0.1)

    def moves(self, seen: Array, rng: Generator) -> Array:
        deadly, food = np.split(seen > 0, 2, axis=1)  # [B, cells] each
        cells = deadly.shape[1]
        ahead, distances = _geometry(cells)
        cost = np.where(food[:, None], distances, cells).min(axis=2).astype(np.float64)  # [B, 3]
        blind = ~food.any(axis=1)
        cost[blind, rng.choice(3, blind.sum(), p=self.WANDERING)] -= 1
        cost += 2 * cells * deadly[:, ahead]  # farther than any food
        cost += rng.random(cost.shape) / 2  # distances are whole numbers: this only settles ties
        return cost.argmin(axis=1)


def _geometry(cells: int) -> tuple[Array, Array]:
    """The cells that the three moves lead to, [3], and from each the squared distance to every cell, [3, cells].

    Squared, because then the longer way is shortened first, and a snake with food behind it turns round.
    """
    side = math.isqrt(cells)
    ahead = cells // 2 + np.array([-side, -1, 1])  # the head is in the middle and looks up
    (from_row, from_column), (row, column) = np.divmod(ahead[:, None], side), np.divmod(np.arange(cells), side)
    return ahead, (from_row - row) ** 2 + (from_column - column) ** 2


class _Seat:
    """A player in the place of an agent: what judges policies can judge it too."""

    def __init__(self, player: Player) -> None:
        self.player = player

    def carry(self, params: Params, slots: int) -> Mapping[str, Array]:
        return {}

    def act(self, params: Any, observations: Any, carry: Any, first: Any, masks: Any, rng: Any) -> tuple[Decision, Any]:
        return Decision(self.player.moves(observations[SINGLE], rng), {}), carry


def judge(player: Player, args: Mapping[str, Any], episodes: int = EPISODES) -> dict[str, Any]:
    """Return with its 95 % interval over episodes, and food eaten in one, on a board with these settings."""
    scored, eaten = (_play(player, {**args, **extra}, episodes) for extra in ({}, FOOD_ALONE))
    return {
        "return": {name: round(scored[name], 3) for name in ("mean", "low", "high")},
        "food": round(eaten["mean"], 3),
        "episodes": scored["episodes"],
    }


def _play(player: Player, args: Mapping[str, Any], episodes: int) -> dict[str, Any]:
    env = Snake(50 * args.get("snakes", 1), **{**args, "view": "flat"})
    seat: Any = _Seat(player)
    evaluation = Evaluation(env, seat, Policy(NONE, Params({})), episodes, SEED, stochastic=True)
    while not evaluation.done:
        evaluation.step()
    return asdict(evaluation.summary())


def players(env: str, settings: Mapping[str, Any], episodes: int = EPISODES) -> list[dict[str, Any]]:
    """Both of them on the board of a preset; nobody where the environment is not Snake."""
    if not env.startswith("Snake"):
        return []
    args = settings.get("env", {}).get("args", {})
    return [{"name": type(each).__name__.lower(), **judge(each, args, episodes)} for each in (Random(), Greedy())]
