from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from players import Greedy, Random, judge, players

from millstream.core.spec import SINGLE
from millstream.envs.snake import Snake

VISION = 3
SIDE = 2 * VISION + 1
AHEAD = ((VISION - 1, VISION), (VISION, VISION - 1), (VISION, VISION + 1))  # straight on, left, right


def planes(seen: Any) -> tuple[Any, Any]:
    """What kills and what feeds, [side, side] each."""
    deadly, food = seen.reshape(2, SIDE, SIDE)
    return deadly, food


def seen_with(food: tuple[int, int] | None = None, deadly: tuple[tuple[int, int], ...] = ()) -> Any:
    seen = np.zeros((2, SIDE, SIDE), np.float32)
    for cell in deadly:
        seen[(0, *cell)] = 1
    if food:
        seen[(1, *food)] = 1
    return seen.reshape(1, -1)


def best(seen: Any) -> set[int]:
    """The moves that a greedy player may choose when it sees food, slowly: by looking at every cell."""
    deadly, food = planes(seen)
    foods = [(row, column) for row in range(SIDE) for column in range(SIDE) if food[row, column]]
    costs = {
        move: min((row - y) ** 2 + (column - x) ** 2 for y, x in foods)
        for move, (row, column) in enumerate(AHEAD)
        if not deadly[row, column]
    }
    return {move for move, cost in costs.items() if cost == min(costs.values())} or {0, 1, 2}


def test_greedy_moves_are_those_of_the_slow_reference_and_it_dies_only_where_all_ways_kill() -> None:
    env, player, rng = Snake(64, size=9, vision=VISION, foods=3), Greedy(), np.random.default_rng(0)
    step, deaths, hunts = env.reset(1), 0, 0
    for _ in range(300):
        seen = step.observations[SINGLE].copy()
        moves = player.moves(seen, rng)
        for row, move in zip(seen, moves, strict=True):
            if planes(row)[1].any():
                assert move in best(row)
                hunts += 1
        step = env.step(moves)
        for slot in step.terminated.nonzero()[0]:
            assert all(planes(seen[slot])[0][cell] for cell in AHEAD)
            deaths += 1
    assert hunts > 1000 and deaths > 10


@pytest.mark.parametrize(
    ("food", "deadly", "wanted"),
    [
        ((0, VISION), (), {0}),
        ((VISION, 0), (), {1}),
        ((VISION, SIDE - 1), (), {2}),
        ((SIDE - 1, VISION), (), {1, 2}),  # behind: it turns round
        ((0, VISION), (AHEAD[0],), {1, 2}),
        ((VISION, 0), (AHEAD[0], AHEAD[1]), {2}),
        (None, (AHEAD[0], AHEAD[2]), {1}),
        (None, (), {0, 1, 2}),
    ],
)
def test_greedy_goes_for_the_food_and_round_what_kills(food: Any, deadly: Any, wanted: set[int]) -> None:
    rng = np.random.default_rng(0)
    seen = np.repeat(seen_with(food, deadly), 200, axis=0)
    assert set(Greedy().moves(seen, rng).tolist()) == wanted


def test_greedy_eats_far_more_than_chance_and_figures_repeat() -> None:
    args = {"size": 9, "vision": VISION}
    greedy, chance = judge(Greedy(), args, 100), judge(Random(), args, 100)
    assert greedy["food"] > 10 * chance["food"]
    assert greedy == judge(Greedy(), args, 100)
    # food is worth 1 and death costs 1; a snake that starves loses nothing
    assert greedy["food"] - 1 <= greedy["return"]["mean"] <= greedy["food"]
    assert greedy["return"]["low"] <= greedy["return"]["mean"] <= greedy["return"]["high"]


def test_players_play_on_the_board_of_the_preset_and_only_snake() -> None:
    assert players("CartPole-v1", {}) == []
    found = players("SnakeImages-v0", {"env": {"args": {"size": 6, "snakes": 2, "view": "image", "death": -5.0}}}, 100)
    assert [each["name"] for each in found] == ["random", "greedy"]
    assert found[0]["episodes"] == 100 and found[0]["return"]["mean"] < -3
