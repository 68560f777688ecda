from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.agents import optimiser as agents_optimiser
from millstream.core.data import NONE, Params, Policy
from millstream.core.errors import AgentError, ConfigError, Diverged, Fenced, RunError
from millstream.core.ports import PolicyStore
from millstream.parameters.privacy import Privacy
from millstream.parameters.server import ParameterServer
from tests.parameters.serving import BAD, GOOD, START, at, flat, together

# --- what it is made of ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "initial", [Params({"weights": np.zeros(3, np.float32)}), {"weights": np.zeros(3)}, np.zeros(3), [0.0, 0, 0]]
)
def test_a_server_begins_with_parameters_in_any_form(initial: Any) -> None:
    server = ParameterServer(initial)
    assert server.get().version == START and flat(server) == [0, 0, 0]
    assert server.push_gradients("a", START, np.array([100.0, 0, -100])).accepted
    assert server.get().version == at(1) and flat(server) == [-1, 0, 1]
    assert server.get().params.tensors["weights"].dtype == np.float32


def test_of_an_agents_parameters_only_the_weights_are_moved() -> None:
    params = Params({"mean/obs": np.ones(2), "weights": np.zeros(3, np.float32)}, {"epsilon": 0.5})
    server = ParameterServer(params, optimiser="add")
    assert server.push_gradients(0, START, np.ones(3)).accepted
    held = server.get().params
    assert [*held.tensors] == ["mean/obs", "weights"] and held.hyper == {"epsilon": 0.5}
    assert held.tensors["mean/obs"].tolist() == [1, 1] and flat(server) == [1, 1, 1]


def test_of_arrays_by_name_every_float_one_is_moved_in_its_own_shape() -> None:
    server = ParameterServer({"w": np.zeros((2, 2)), "count": np.array([7]), "b": np.zeros(())}, optimiser="add")
    assert server.push_gradients("a", START, {"b": np.array(5.0), "w": np.array([[1, 2], [3, 4]])}).accepted
    assert server.push_gradients("a", at(1), np.arange(5)).accepted
    assert server.get().params.tensors["w"].tolist() == [[1, 3], [5, 7]]
    assert flat(server, "b") == [9] and flat(server, "count") == [7]


def test_the_trained_tensors_can_be_named() -> None:
    server = ParameterServer({"w": np.zeros(2), "scale": np.ones(2)}, trained=["w"], optimiser="add")
    assert server.push_delta("a", START, [1, 2]).accepted
    assert flat(server, "w") == [1, 2] and flat(server, "scale") == [1, 1]
    with pytest.raises(ConfigError, match="nothing to train in"):
        ParameterServer({"w": np.zeros(2)}, trained=["v"])
    with pytest.raises(ConfigError, match="nothing to train in"):
        ParameterServer({"count": np.zeros(2, int)})


def test_arrays_that_were_given_are_not_kept_and_those_that_are_read_cannot_be_changed() -> None:
    given = Params({"weights": np.zeros(3, np.float32), "mean": np.ones(2)})
    server = ParameterServer(given)
    given.tensors["weights"][:] = 9
    given.tensors["mean"][:] = 9
    assert flat(server) == [0, 0, 0] and flat(server, "mean") == [1, 1]
    for name in ("weights", "mean"):
        with pytest.raises(ValueError, match="read-only"):
            server.get().params.tensors[name][0] = 1
    with pytest.raises(TypeError):
        server.get().params.tensors["weights"] = np.ones(3)  # type: ignore[index]


def test_a_push_that_is_changed_afterwards_changes_nothing() -> None:
    server = ParameterServer(np.zeros(2), mode="sync", quorum=2, optimiser="add")
    first = np.ones(2, np.float32)
    server.push_gradients("a", START, first)
    first[:] = math.nan
    server.push_gradients("b", START, np.ones(2))
    assert flat(server) == [1, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"aggregation": "avarage"}, "did you mean average"),
        ({"mode": "sometimes"}, "mode is 'async' or 'sync'"),
        ({"mode": "sync", "quorum": 0}, "quorum"),
        ({"mode": "sync", "quorum": 1.5}, "quorum"),
        ({"quorum": 2}, "need mode='sync'"),
        ({"aggregation": "median"}, "need mode='sync'"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"optimiser": "adma"}, "unknown optimiser"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"privacy": Privacy(1.0, 1.0)}, "needs mode='sync'"),
        ({"privacy": Privacy(1.0, 1.0), "mode": "sync", "aggregation": "median"}, "bounds what a client adds"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ParameterServer(np.zeros(3), **options)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e39])
def test_parameters_that_are_not_finite_never_get_in(bad: float) -> None:
    with pytest.raises(Diverged, match="not finite"):
        ParameterServer(np.array([0.0, bad]))
    server = ParameterServer(Params({"weights": np.zeros(2), "mean": np.zeros(1)}))
    for weights, mean in (([0, bad], [0]), ([0, 0], [math.nan])):
        with pytest.raises(Diverged):
            server.publish(Policy(at(5), Params({"weights": np.array(weights), "mean": np.array(mean)})))
    assert server.version == START


# --- asynchronous pushes ---------------------------------------------------------------------------------------------


def test_threads_that_push_at_once_lose_nothing() -> None:
    server = ParameterServer(np.zeros(1000), learning_rate=1.0)
    pushes, workers = 100, 6

    def push(worker: int) -> None:
        for number in range(pushes):
            gradients = np.full(1000, -(worker + 1), np.float32)
            gradients[number] -= 1
            assert server.push_gradients(worker, server.get().version, gradients).accepted

    together(workers, push)
    expected = np.full(1000, pushes * sum(range(1, workers + 1)))
    expected[:pushes] += workers
    assert flat(server) == expected.tolist()
    told = server.statistics()
    assert server.version == at(pushes * workers)
    assert (told.accepted, told.rounds, told.bytes) == (600, 600, 600 * 4000) and told.refused == {}
    assert told.steps == 600


def test_readers_never_see_half_an_update() -> None:
    server = ParameterServer(np.zeros(50_000), learning_rate=1.0)
    done = threading.Event()

    def work(index: int) -> None:
        if index == 0:
            for _ in range(200):
                server.push_gradients("writer", server.version, np.full(50_000, -1.0))
            done.set()
            return
        seen = NONE
        while not done.is_set() or server.latest(seen) is not None:
            policy = server.latest(seen)
            if policy is None:
                continue
            weights = policy.params.tensors["weights"]
            assert policy.version > seen and (weights == policy.version.number).all()
            seen = policy.version
        assert seen == at(200)

    together(3, work)


def test_a_version_that_was_read_stays_what_it_was() -> None:
    server = ParameterServer(np.zeros(2), learning_rate=1.0)
    old = server.get()
    server.push_gradients("a", START, [1, 1])
    server.publish(Policy(at(7), Params({"weights": np.full(2, 5.0)})))
    assert old.params.tensors["weights"].tolist() == [0, 0] and old.version == START


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 4))
def test_staleness_is_counted_in_versions(lags: list[int], limit: int) -> None:
    server = ParameterServer(np.zeros(1), learning_rate=1.0, max_staleness=limit)
    number, expected, refused, unknown, borne = 0, 0, 0, 0, []
    for lag in lags:
        receipt = server.push_gradients("a", at(number - lag), [-1.0])
        if lag > number:
            unknown += 1
            assert not receipt.accepted and receipt.reason.startswith("version: ")
        elif lag > limit:
            refused += 1
            assert not receipt.accepted and receipt.reason.startswith(f"stale: 0.{number - lag} is {lag} versions")
        else:
            number, expected = number + 1, expected + 1
            borne.append(lag)
            assert receipt.accepted and receipt.reason == ""
        assert receipt.version == server.version == at(number)
    told = server.statistics()
    assert flat(server) == [expected]
    assert (told.stale, told.refused.get("version", 0), told.accepted) == (refused, unknown, expected)
    assert told.lag_max == max(borne, default=0) and told.lag == pytest.approx(sum(borne) / max(len(borne), 1))


def test_adam_comes_from_the_agents_and_walks_the_same_way() -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=20).astype(np.float32)
    moments, alone = agents_optimiser.Adam.fresh(start), start.copy()
    mine = agents_optimiser.Adam.fresh(start)
    server = ParameterServer(start, optimiser=lambda weights, gradients: adam_step(weights, gradients, moments))
    for number in range(10):
        gradients = rng.normal(size=20).astype(np.float32)
        assert server.push_gradients("a", at(number), gradients).accepted
        agents_optimiser.adam(alone, gradients, mine, 0.01)
    assert np.array_equal(server.get().params.tensors["weights"], alone)


def adam_step(weights: np.ndarray, gradients: np.ndarray, moments: agents_optimiser.Adam) -> None:
    agents_optimiser.adam(weights, gradients, moments, 0.01)


def test_an_optimiser_may_keep_its_memory_and_gets_a_delta_as_a_gradient() -> None:
    memory = np.zeros(2, np.float32)

    def apply(weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        memory[:] = weights - 2 * gradients
        return memory

    server = ParameterServer(np.zeros(2), optimiser=apply)
    assert server.push_delta("a", START, [1, 2]).accepted
    memory[:] = -1
    assert flat(server) == [2, 4]


def test_an_optimiser_that_breaks_leaves_the_parameters_whole() -> None:
    server = ParameterServer(np.zeros(2), optimiser=lambda weights, gradients: weights[:1])
    with pytest.raises(AgentError, match="shape"):
        server.push_gradients("a", START, [1, 1])

    def diverge(weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        raise Diverged("too far")

    other = ParameterServer(np.zeros(2), optimiser=diverge)
    receipt = other.push_gradients("a", START, [1, 1])
    assert not receipt.accepted and receipt.reason == "overflow: too far"
    assert server.version == other.version == START and flat(server) == [0, 0]


# --- bad pushes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "cause"), BAD, ids=[f"{next(iter(bad))}-{i}" for i, (bad, _) in enumerate(BAD)])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_bad_push_is_refused_with_its_reason_counted_and_changes_nothing(
    bad: dict[str, Any], cause: str, mode: str
) -> None:
    server = ParameterServer(np.zeros(3), mode=mode)
    before = server.get()
    receipt = server.push_gradients(**{**GOOD, **bad})
    assert not receipt.accepted and receipt.version == START and receipt.reason.startswith(f"{cause}: ")
    assert len(receipt.reason) < 500
    told = server.statistics()
    assert told.refused == {cause: 1} and (told.accepted, told.waiting, told.bytes) == (0, 0, 0)
    assert server.get() is before
    assert server.push_gradients(**GOOD).accepted and server.version == at(1)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_pushes_that_would_carry_the_weights_to_infinity_are_refused(mode: str) -> None:
    largest = float(np.finfo(np.float32).max)
    server = ParameterServer(np.array([largest, 0.0]), mode=mode, optimiser="add")
    receipt = server.push_gradients("a", START, [largest, 1.0])
    assert not receipt.accepted and receipt.reason.startswith("overflow: ")
    assert flat(server) == [largest, 0] and server.statistics().rounds == 0
    assert server.push_gradients("a", START, [-largest, 1.0]).accepted and flat(server) == [0, 1]


# --- a policy store --------------------------------------------------------------------------------------------------


def test_it_is_a_policy_store() -> None:
    store: PolicyStore = ParameterServer()
    assert store.latest() is None
    store.publish(Policy(at(3), Params({"weights": np.ones(2, np.float32), "mean": np.zeros(1)}), steps=30))
    read = store.latest(at(2))
    assert read is not None and (read.version, read.steps) == (at(3), 30) and store.latest(at(3)) is None
    for late in (at(3), at(2), at(99, epoch=-1)):
        with pytest.raises(Fenced, match=r"not newer than 0\.3; another learner.*fetch the latest"):
            store.publish(Policy(late, read.params))
    with pytest.raises(ConfigError, match="keep their names and shapes"):
        store.publish(Policy(at(4), Params({"weights": np.ones(3), "mean": np.zeros(1)})))
    store.publish(Policy(at(1, epoch=1), read.params))
    assert store.latest(at(50)) is not None


def test_an_empty_server_refuses_pushes_until_it_is_given_parameters() -> None:
    server = ParameterServer()
    receipt = server.push_gradients("a", START, [1.0])
    assert receipt.reason.startswith("empty: ") and receipt.version == NONE and server.version == NONE
    with pytest.raises(RunError, match="no parameters yet"):
        server.get()
    server.publish(Policy(START, Params({"weights": np.zeros(1)})))
    assert server.push_gradients("a", START, [1.0]).accepted


def test_a_published_policy_is_what_pushes_go_on_from() -> None:
    server = ParameterServer(np.zeros(2), learning_rate=1.0)
    server.publish(Policy(at(10), Params({"weights": np.full(2, 5.0)}), steps=100))
    assert server.push_gradients("a", at(10), [1, 1], samples=7).version == at(11)
    assert flat(server) == [4, 4] and server.get().steps == 107


def test_waiting_ends_with_the_time_the_news_or_the_server() -> None:
    server = ParameterServer(np.zeros(1))
    assert server.wait(START, timeout=0) is None and server.wait(START, timeout=-1) is None
    assert server.wait(NONE, timeout=math.inf) is not None
    waiting = threading.Event()

    def work(index: int) -> None:
        if index == 0:
            assert waiting.wait(10)
            server.close()
        else:
            waiting.set()
            assert server.wait(START, timeout=20) is None

    together(2, work)


def test_a_closed_server_takes_nothing_more_and_can_still_be_read() -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=2)
    server.push_gradients("a", START, [1.0])
    server.close()
    server.close()
    assert server.push_gradients("b", START, [1.0]).reason.startswith("closed: ")
    assert server.get().version == START and server.statistics().dropped == 1
    for call in (lambda: server.publish(Policy(at(1), server.get().params)), server.end_round,
                 lambda: server.begin_round("ab")):  # fmt: skip
        with pytest.raises(RunError, match="closed"):
            call()
