from __future__ import annotations

import threading

import pytest

from millstream.core.errors import ConfigError, Fenced, RunError
from millstream.services.once import Once


def counting() -> tuple[list[int], object]:
    done: list[int] = []
    return done, lambda: done.append(len(done)) or len(done)


def test_a_request_that_is_asked_again_gets_its_first_answer() -> None:
    once = Once()
    done, work = counting()
    assert [once.do("a", 1, work), once.do("a", 1, work), once.do("b", 1, work), once.do("a", 2, work)] == [1, 1, 2, 3]
    assert len(done) == 3


def test_a_request_that_comes_after_its_successor_is_not_run() -> None:
    once = Once()
    done, work = counting()
    once.do("a", 5, work)
    with pytest.raises(Fenced, match="request 4 came after request 5"):
        once.do("a", 4, work)
    assert len(done) == 1


def test_an_error_of_ours_is_an_answer_too_and_a_fault_is_none() -> None:
    once, errors = Once(), iter([RunError("no"), ValueError("oh"), None])

    def work() -> str:
        error = next(errors)
        if error:
            raise error
        return "done"

    for _ in range(2):
        with pytest.raises(RunError, match="no"):
            once.do("a", 1, work)
    with pytest.raises(ValueError, match="oh"):
        once.do("a", 2, work)
    assert once.do("a", 2, work) == "done"


def test_one_that_is_asked_again_while_it_runs_waits_for_the_first() -> None:
    once, runs, go = Once(), [], threading.Event()
    answers: list[int] = []

    def work() -> int:
        runs.append(1)
        assert go.wait(20)
        return 7

    threads = [threading.Thread(target=lambda: answers.append(once.do("a", 1, work))) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(20)
    assert answers == [7] * 4 and len(runs) == 1


def test_only_so_many_callers_are_remembered_the_silent_go_first() -> None:
    once = Once(callers=2)
    done, work = counting()
    for name in ("a", "b", "a", "c"):
        once.do(name, 1, work)
    assert len(done) == 3
    once.do("a", 1, work)
    assert len(done) == 3
    once.do("b", 1, work)  # forgotten
    assert len(done) == 4


@pytest.mark.parametrize(("name", "sequence"), [("", 1), ("a", 0), ("x" * 201, 1)])
def test_who_asks_must_say_who_it_is(name: str, sequence: int) -> None:
    with pytest.raises(ConfigError, match="names its caller"):
        Once().do(name, sequence, lambda: None)
