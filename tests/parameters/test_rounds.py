from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.data import Params, Policy
from millstream.core.errors import CheckpointError, ConfigError, Diverged
from millstream.parameters.privacy import Privacy
from millstream.parameters.server import ParameterServer
from tests.parameters.serving import START, at, flat, together


def test_a_round_waits_for_its_quorum_and_moves_once() -> None:
    server = ParameterServer(np.zeros(2), mode="sync", quorum=3, learning_rate=1.0)
    for worker, value in (("a", 3.0), ("b", 6.0)):
        receipt = server.push_gradients(worker, START, [value, 0])
        assert receipt.accepted and receipt.version == START
    assert server.latest(START) is None and server.statistics().waiting == 2
    assert server.push_gradients("c", START, [0, 9.0]).version == at(1)
    assert flat(server) == [-3, -3] and server.statistics().waiting == 0


def test_a_worker_that_pushes_twice_replaces_its_own_push() -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=2, optimiser="add")
    for value in (100.0, 200.0, 1.0):
        assert server.push_gradients("a", START, [value]).accepted
    assert server.version == START
    server.push_gradients("b", START, [3.0])
    told = server.statistics()
    assert flat(server) == [2] and (told.replaced, told.accepted, told.rounds) == (2, 4, 1)


def test_a_round_takes_only_the_current_version_unless_staleness_is_borne() -> None:
    strict = ParameterServer(np.zeros(1), mode="sync", quorum=1)
    lenient = ParameterServer(np.zeros(1), mode="sync", quorum=1, max_staleness=1)
    for server in (strict, lenient):
        server.push_gradients("a", START, [1.0])
    assert strict.push_gradients("b", START, [1.0]).reason.startswith("stale: ")
    assert lenient.push_gradients("b", START, [1.0]).accepted
    assert lenient.push_gradients("b", START, [1.0]).reason.startswith("stale: ")


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("average", 4.0), ("weighted", (1 * 5 + 2 * 1 + 9 * 1) / 7), ("federated", (1 * 1 + 2 * 2 + 9 * 5) / 8),
     ("median", 2.0), ("trimmed_mean", 4.0), (lambda stack, weights: stack[0], 1.0)],
)  # fmt: skip
def test_each_aggregation_is_what_it_says(aggregation: Any, expected: float) -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=3, aggregation=aggregation, optimiser="add")
    for worker, value, samples, weight in (("c", 9.0, 5, 1.0), ("a", 1.0, 1, 5.0), ("b", 2.0, 2, 1.0)):
        assert server.push_gradients(worker, START, [value], samples, weight).accepted
    assert flat(server) == pytest.approx([expected]) and server.statistics().steps == 8
    old = server.get()
    for worker in "abc":
        assert server.push_gradients(worker, at(1), [77.0]).accepted
    assert server.version == at(2)
    assert old.params.tensors["weights"][0] == pytest.approx(
        expected
    )  # the memory that serves every round is not in it


def test_an_aggregation_of_the_wrong_shape_is_a_mistake_of_its_author_and_ends_only_the_round() -> None:
    server = ParameterServer(np.zeros(2), mode="sync", quorum=2, aggregation=lambda stack, weights: stack)
    assert server.push_gradients("a", START, [1, 1]).accepted
    with pytest.raises(ConfigError, match="gave shape"):
        server.push_gradients("b", START, [1, 1])
    told = server.statistics()
    assert (told.waiting, told.dropped, told.version) == (0, 1, START)


@given(st.permutations("abcd"), st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4))
def test_the_order_of_arrival_changes_no_bit(order: list[str], values: list[float]) -> None:
    results = []
    for workers in ("abcd", order):
        server = ParameterServer(np.full(1, 0.1), mode="sync", quorum=4, aggregation="federated")
        for worker in workers:
            server.push_delta(worker, START, [values["abcd".index(worker)]], samples=ord(worker))
        assert server.version == at(1)
        results.append(server.get().params.tensors["weights"].tobytes())
    assert results[0] == results[1]


def test_threads_fill_rounds_exactly() -> None:
    workers, rounds = 5, 40
    server = ParameterServer(np.zeros(100), mode="sync", quorum=workers, learning_rate=1.0)

    def push(worker: int) -> None:
        for number in range(rounds):
            assert server.push_gradients(worker, at(number), np.full(100, -float(worker))).accepted
            policy = server.wait(at(number), timeout=20)
            assert policy is not None and policy.version == at(number + 1)

    together(workers, push)
    told = server.statistics()
    assert flat(server) == [rounds * 2.0] * 100 and server.version == at(rounds)
    assert (told.rounds, told.accepted, told.replaced, told.refused) == (rounds, rounds * workers, 0, {})


def test_a_round_whose_worker_died_is_ended_by_hand() -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=3, optimiser="add")
    assert server.end_round() == START  # nothing to end
    server.push_gradients("a", START, [1.0])
    server.push_gradients("b", START, [5.0])
    assert server.end_round() == at(1) and flat(server) == [3]
    assert server.push_gradients("c", START, [9.0]).reason.startswith("stale: ")


def test_a_round_that_cannot_be_applied_is_dropped_not_stuck() -> None:
    largest = float(np.finfo(np.float32).max)
    server = ParameterServer(np.array([largest]), mode="sync", quorum=2, optimiser="add")
    assert server.push_gradients("a", START, [largest]).accepted
    assert server.push_gradients("b", START, [largest]).reason.startswith("overflow: ")
    told = server.statistics()
    assert (told.accepted, told.dropped, told.waiting, told.refused) == (1, 1, 0, {"overflow": 1})
    server.push_gradients("a", START, [largest])
    with pytest.raises(Diverged, match="round was dropped"):
        server.end_round()
    assert server.statistics().dropped == 2 and flat(server) == [largest]


def test_a_round_is_one_of_gradients_or_of_deltas() -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=2)
    server.push_delta("a", START, [1.0])
    assert server.push_gradients("b", START, [1.0]).reason.startswith("kind: ")
    assert server.push_delta("b", START, [3.0]).accepted and flat(server) == [2]  # added whole: no learning rate


def test_only_those_who_were_named_take_part_in_a_named_round() -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=9, optimiser="add")
    server.push_gradients("z", START, [50.0])
    assert server.begin_round(["a", 1, "a"]) == {"a", "1"}
    assert server.statistics().dropped == 1
    assert server.push_gradients("z", START, [50.0]).reason.startswith("round: ")
    assert server.push_gradients("a", START, [1.0]).accepted and server.push_gradients(1, START, [3.0]).accepted
    assert server.version == at(1) and flat(server) == [2]
    with pytest.raises(ConfigError, match="mode='sync'"):
        ParameterServer(np.zeros(1)).begin_round(["a"])


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcxpe"), st.integers(0, 3), st.integers(-9, 9)), max_size=60))
def test_every_accepted_push_is_applied_replaced_dropped_or_waiting(events: list[tuple[str, int, int]]) -> None:
    """Against a model: a dictionary of the open round."""
    server = ParameterServer(np.zeros(1), mode="sync", quorum=2, aggregation=lambda stack, w: stack.sum(axis=0),
                             optimiser="add")  # fmt: skip
    number, total, open_round, accepted, applied, replaced, dropped = 0, 0, dict[str, int](), 0, 0, 0, 0
    for who, behind, value in events:
        if who == "p":
            number += 1
            server.publish(Policy(at(number), Params({"weights": np.array([float(total)])})))
            dropped, open_round = dropped + len(open_round), {}
        elif who == "e":
            server.end_round()
        else:
            taken = server.push_gradients(who, at(number - behind), [value]).accepted
            assert taken == (behind == 0)
            if taken:
                accepted, replaced = accepted + 1, replaced + (who in open_round)
                open_round[who] = value
        if len(open_round) == 2 or (who == "e" and open_round):
            number, total, applied = number + 1, total + sum(open_round.values()), applied + len(open_round)
            open_round = {}
        assert flat(server) == [total] and server.version == at(number)
    told = server.statistics()
    assert (told.accepted, told.replaced, told.dropped, told.waiting) == (accepted, replaced, dropped, len(open_round))
    assert told.accepted == applied + told.replaced + told.dropped + told.waiting


# --- privacy ---------------------------------------------------------------------------------------------------------


def private(rate: float = 1.0, quorum: int = 2, **more: Any) -> ParameterServer:
    privacy = Privacy(clip=1.0, noise_multiplier=more.pop("noise", 1.0), sampling_rate=rate, delta=1e-6,
                      max_samples=more.pop("max_samples", 1), rng=np.random.default_rng(0))  # fmt: skip
    return ParameterServer(np.zeros(more.pop("size", 2)), mode="sync", quorum=quorum, privacy=privacy, **more)


def test_a_private_round_is_clipped_weighed_and_divided_by_what_was_fixed_beforehand() -> None:
    server = private(noise=0.0, quorum=4, aggregation="federated", max_samples=10)
    server.push_delta("a", START, [30.0, 40.0], samples=1e6)
    server.push_delta("b", START, [0.5, 0.0], samples=5)
    assert server.end_round() == at(1)
    assert flat(server) == pytest.approx([(0.6 + 0.25) / 4, 0.8 / 4])
    assert server.statistics().epsilon == math.inf


def test_a_private_round_carries_noise_of_the_promised_size_and_tells_epsilon() -> None:
    server = private(size=100_000, quorum=2)
    assert server.statistics().epsilon == 0
    for client in "ab":
        server.push_delta(client, START, np.zeros(100_000))
    assert np.std(flat(server)) == pytest.approx(1.0 / 2, rel=0.02)
    told = server.statistics()
    assert told.delta == 1e-6 and told.epsilon == server.accountant.epsilon(1e-6) > 1
    assert server.accountant.steps == 1 and told.steps == 0  # how many samples there were is private
    assert ParameterServer(np.zeros(1)).statistics().epsilon is None


def test_gradients_are_refused_where_clients_are_private() -> None:
    server = private()
    assert server.push_gradients("a", START, [1, 1]).reason.startswith("kind: ")
    assert server.accountant.steps == 0


def test_only_clients_that_chance_drew_count_as_drawn_by_chance() -> None:
    server = private(rate=0.5, noise=0.0)
    assert server.push_delta("a", START, [1, 1]).reason.startswith("round: ")
    clients = [str(index) for index in range(40)]
    drawn = server.begin_round(clients)
    assert 0 < len(drawn) < 40
    for client in clients:
        assert server.push_delta(client, server.version if client in drawn else START, [1, 0]).accepted == (
            client in drawn
        )
    assert server.version == at(1) and flat(server) == pytest.approx([len(drawn) / 2, 0])
    assert server.accountant.history() == [[0.0, 0.5, 1]]
    assert server.push_delta("0", at(1), [1, 1]).reason.startswith("round: ")


def test_a_drawn_round_in_which_nobody_pushed_is_released_all_the_same() -> None:
    server = private(rate=0.01)
    assert server.begin_round(["a"]) == frozenset()
    assert server.end_round() == at(1) and flat(server) != [0, 0] and server.accountant.steps == 1
    assert server.end_round() == at(1)  # no round is open


def test_what_was_spent_stays_spent_through_files(tmp_path: Path) -> None:
    server, other = private(quorum=1), private(quorum=1)
    server.push_delta("a", START, [0, 0])
    other.load(server.save(tmp_path / "server"))
    assert other.accountant.history() == server.accountant.history() == [[1.0, 1.0, 1]]
    server.push_delta("a", at(1), [0, 0])
    spent = server.statistics().epsilon
    server.load(tmp_path / "server")
    assert spent is not None and (server.statistics().epsilon or 0) > spent  # going back takes nothing back
    before = server.accountant.history()
    (tmp_path / "server").write_bytes(b"")
    with pytest.raises(CheckpointError):
        server.load(tmp_path / "server")
    assert server.accountant.history() == before


def test_federated_averaging_learns_what_all_clients_know() -> None:
    """Least squares over three clients with different samples: the server meets the solution over all of them."""
    rng = np.random.default_rng(3)
    truth = np.array([2.0, -1.0, 0.5])
    data = [(x := rng.normal(size=(count, 3)), x @ truth) for count in (20, 60, 200)]
    server = ParameterServer(np.zeros(3), mode="sync", quorum=3, aggregation="federated")
    for _ in range(60):
        policy = server.get()
        for client, (inputs, targets) in enumerate(data):
            weights = policy.params.tensors["weights"].astype(float)
            learnt = weights.copy()
            for _ in range(3):
                learnt -= 0.2 * inputs.T @ (inputs @ learnt - targets) / len(targets)
            assert server.push_delta(client, policy.version, learnt - weights, samples=len(targets)).accepted
    assert flat(server) == pytest.approx(truth.tolist(), abs=1e-3) and server.statistics().rounds == 60
