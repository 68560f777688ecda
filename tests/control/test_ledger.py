"""The ledger: every published step in one place."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.control.ledger import balance


def entry(update: int, used: Any = (), dropped: Any = (), refused: Any = ()) -> dict[str, Any]:
    return {"update": update, "used": list(used), "dropped": list(dropped), "refused": list(refused)}


def test_a_step_is_trained_stale_refused_or_in_flight() -> None:
    logged = {(0, 5, 0): 8, (0, 5, 1): 8, (1, 6, 0): 4, (1, 6, 1): 4}
    found = balance([entry(1, [[0, 5, 0, 8]], [[0, 5, 1, 8]]), entry(2, refused=[[1, 6, 0, 4, "spec"]])], logged)
    assert (found.published, found.trained, found.stale, found.in_flight) == (24, 8, 8, 4)
    assert found.refused == {"spec": 4} and found.balanced and found.unexplained == 0


def test_what_was_trimmed_from_the_log_is_known_from_the_journal() -> None:
    found = balance([entry(1, [[0, 5, 0, 8]])], {(0, 5, 1): 8})
    assert (found.published, found.trained, found.in_flight) == (16, 8, 8) and found.balanced


def test_what_a_learner_wrote_before_it_went_back_is_void() -> None:
    lines = [entry(1, [[0, 5, 0, 8]]), entry(2, [[0, 5, 1, 8]]), entry(2, [[0, 5, 2, 8]])]
    found = balance(lines, {(0, 5, each): 8 for each in range(3)})
    assert (found.trained, found.in_flight, found.unexplained) == (16, 8, 0)


def test_a_rollout_that_was_used_twice_does_not_stay_hidden() -> None:
    found = balance([entry(1, [[0, 5, 0, 8]]), entry(2, [[0, 5, 0, 8]])], {(0, 5, 0): 8})
    assert found.unexplained == 8


def test_a_rollout_whose_length_differs_does_not_stay_hidden() -> None:
    assert balance([entry(1, [[0, 5, 0, 8]])], {(0, 5, 0): 6}).unexplained == 2


def test_what_an_actor_made_and_never_sent_is_lost_with_it() -> None:
    found = balance([], {(0, 5, 0): 8}, made={(0, 5): 11, (1, 6): 3})
    assert (found.lost_with_actor, found.published, found.in_flight) == (6, 8, 8)


rollouts = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 5)), st.integers(1, 9), max_size=30
)


@given(rollouts, st.randoms(use_true_random=False))
def test_the_sums_agree_whatever_became_of_the_rollouts(logged: dict[tuple[int, int, int], int], drawn: Any) -> None:
    lines, counts = [], dict.fromkeys(("used", "dropped", "refused", "none"), 0)
    for number, (identity, steps) in enumerate(logged.items(), 1):
        fate = drawn.choice(list(counts))
        counts[fate] += steps
        told = [*identity, steps, "spec"] if fate == "refused" else [*identity, steps]
        lines.append(entry(number, **({} if fate == "none" else {fate: [told]})))
    found = balance(lines, logged)
    assert found.balanced and found.unexplained == 0
    assert (found.trained, found.stale, found.in_flight) == (counts["used"], counts["dropped"], counts["none"])
    assert sum(found.refused.values()) == counts["refused"]
