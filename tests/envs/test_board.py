from __future__ import annotations

import numpy as np
import pytest

from millstream.envs.board import BODY, DOWN, EMPTY, FOOD, HEAD, LEFT, RIGHT, RIVAL_HEAD, UP, WALL, Boards


def board(*snakes: tuple[int, int, int], size: int = 5, vision: int = 2) -> Boards:
    """One board without food, with young snakes at (row, column, heading)."""
    made = Boards(1, size, vision, len(snakes), foods=0)
    made.clear(np.array([0]), np.random.default_rng(0))
    made.remove(np.arange(len(snakes)))
    for snake, (row, column, heading) in enumerate(snakes):
        at = (row + made.pad) * made.side + column + made.pad
        made.heads[snake], made.headings[snake], made.trails[snake, 0] = at, heading, at
        made.lengths[snake], made.growing[snake], made.turns[snake] = 1, 2, 0
        made.cells[at], made.owners[at] = HEAD, snake
    return made


def cell(made: Boards, row: int, column: int) -> int:
    return (row + made.pad) * made.side + column + made.pad


@pytest.mark.parametrize(
    ("heading", "action", "place"),
    [
        (UP, 0, (1, 2)),
        (UP, 1, (2, 1)),
        (UP, 2, (2, 3)),
        (RIGHT, 0, (2, 3)),
        (RIGHT, 1, (1, 2)),
        (DOWN, 1, (2, 3)),
        (LEFT, 2, (1, 2)),
    ],
)
def test_turns_are_relative_to_where_the_snake_goes(heading: int, action: int, place: tuple[int, int]) -> None:
    made = board((2, 2, heading))
    made.move(np.array([action]))
    assert made.grid(0)[place] == HEAD
    assert made.grid(0)[2, 2] == BODY


def test_a_young_snake_grows_to_three_and_then_leaves_its_tail() -> None:
    made = board((4, 2, UP))
    lengths = []
    for _ in range(4):
        made.move(np.array([0]))
        lengths.append(int((made.grid(0) != EMPTY).sum()))
    assert lengths == [2, 3, 3, 3]
    assert made.position(made.body(0))[0].tolist() == [0, 1, 2]


def test_a_head_may_follow_into_the_cell_that_a_tail_leaves() -> None:
    made = board((2, 2, UP))
    made.growing[0] = 3  # four cells fit a square
    for action in (0, 1, 1, 1, 1):
        assert not made.move(np.array([action])).died[0]


def test_a_longer_snake_bites_itself_in_the_same_circle() -> None:
    made = board((2, 2, UP))
    made.growing[0] = 6
    died = [bool(made.move(np.array([action])).died[0]) for action in (0, 1, 1, 1)]
    assert died == [False, False, False, True]


def test_eating_takes_the_food_and_keeps_the_tail() -> None:
    made = board((2, 2, UP))
    made.growing[0] = 0
    made.cells[cell(made, 1, 2)] = FOOD
    assert made.move(np.array([0])).ate[0]
    assert made.lengths[0] == 2
    assert (made.grid(0) == FOOD).sum() == 0


def test_two_heads_in_one_cell_both_die() -> None:
    made = board((2, 0, RIGHT), (2, 2, LEFT))
    moved = made.move(np.array([0, 0]))
    assert moved.died.tolist() == [True, True]


def test_two_heads_that_would_swap_both_die() -> None:
    made = board((2, 1, RIGHT), (2, 2, LEFT))
    assert made.move(np.array([0, 0])).died.tolist() == [True, True]


def test_a_removed_snake_leaves_nothing_and_takes_nothing_of_others() -> None:
    made = board((0, 0, RIGHT), (4, 0, RIGHT))
    for _ in range(3):
        made.move(np.array([0, 0]))
    made.remove(np.array([0]))
    assert not made.grid(0)[0].any()
    assert (made.grid(0)[4] != EMPTY).sum() == 3


def test_a_view_is_turned_so_that_the_snake_looks_up() -> None:
    made = board((2, 0, LEFT))
    view = made.view()[0]
    assert view[2, 2] == HEAD
    assert (view[:2] == WALL).all()  # it stands at the left edge and looks at it
    assert (view[2:] != WALL).all()


def test_a_view_as_on_the_map_is_not_turned() -> None:
    made = board((2, 0, LEFT))
    view = made.view(headings=np.array([UP]))[0]
    assert (view[:, :2] == WALL).all()


def test_rivals_look_different_from_oneself() -> None:
    made = board((2, 1, UP), (2, 2, UP))
    views = made.view()
    assert views[0][2, 3] == RIVAL_HEAD
    assert views[1][2, 1] == RIVAL_HEAD
    assert views[0][2, 2] == HEAD


def test_food_finds_the_only_free_cell_and_none_where_none_is() -> None:
    made = board((2, 2, UP))
    inside = made.grid(0)
    inside[inside == EMPTY] = BODY
    inside[0, 0] = EMPTY
    made.feed(np.array([0]), np.random.default_rng(0))
    assert inside[0, 0] == FOOD
    made.feed(np.array([0]), np.random.default_rng(0))
    assert (inside == FOOD).sum() == 1
    assert (inside == HEAD).sum() == 1


def test_food_falls_anywhere() -> None:
    rng, places = np.random.default_rng(0), set()
    made = Boards(40, 5, 2)
    for _ in range(10):
        made.clear(np.arange(40), rng)
        for at in range(40):
            places.add(int(np.argmax(made.grid(at) == FOOD)))
    assert places == set(range(25))
