"""What everyone who pushes may count on, wherever the server is: in this process, its parent, or over the network."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from millstream.core.clock import SystemClock
from millstream.core.data import NONE, Params, Policy, Version
from millstream.core.errors import AgentError, MillError
from millstream.hosts import shell
from millstream.parameters.server import ParameterServer
from millstream.wires.parameters import PushedParameters, SharedParameters
from tests.parameters.serving import BAD, GOOD, START, at, flat, together

Serve = Callable[..., tuple[ParameterServer, Any]]


class Stepping:
    """Steps a role in a thread until it is closed."""

    def __init__(self, role: SharedParameters) -> None:
        self._ended = False
        self._thread = threading.Thread(target=shell.run, args=([role], SystemClock(), lambda: self._ended))
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._thread.join()


def shared(server: ParameterServer, later: Callable[[Callable[[], None]], None]) -> PushedParameters:
    role = SharedParameters(server)
    later(role.close)
    with role.seat() as descriptors:
        client = PushedParameters(*map(os.dup, descriptors), timeout=20)
    later(client.close)
    later(Stepping(role).close)
    return client


def remote(server: ParameterServer, later: Callable[[Callable[[], None]], None]) -> Any:
    pytest.importorskip("grpc")
    from millstream.services import parameters
    from millstream.services.serving import Listening, Served
    from millstream.wires.grpc import RemoteParameters

    served = Served(Listening(), [parameters.offer(server)])
    served.start()
    later(served.stop)
    client = RemoteParameters(served.address, timeout=20)
    later(client.close)
    return client


@pytest.fixture(params=["process", "shared", "grpc"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Makes a server, and a client of it."""

    def make(initial: Any, **options: Any) -> tuple[ParameterServer, Any]:
        server = ParameterServer(initial, **options)
        reach = {"process": lambda one, _: one, "shared": shared, "grpc": remote}[request.param]
        return server, reach(server, request.addfinalizer)

    return make


def test_what_a_receipt_tells_of_can_be_read_at_once(serve: Serve) -> None:
    server, client = serve(np.zeros(3), learning_rate=1.0)
    assert client.version == START and flat(client) == [0, 0, 0]
    for number in range(1, 20):
        receipt = client.push_gradients("a", client.version, np.array([1.0, 0, -1]), samples=3)
        assert (receipt.accepted, receipt.version, receipt.reason) == (True, at(number), "")
        assert client.version == at(number)
        assert client.latest(at(number - 1)).version == at(number) and client.latest(at(number)) is None
        assert flat(client) == [-number, 0, number]
    assert server.statistics().steps == client.get().steps == 57


def test_parameters_arrive_whole(serve: Serve) -> None:
    params = Params(
        {"weights": np.arange(4, dtype=np.float32).reshape(2, 2), "mean": np.array([0.5])}, {"epsilon": 0.1}
    )
    server, client = serve(params)
    read = client.get()
    assert (read.version, read.steps, dict(read.params.hyper)) == (START, 0, {"epsilon": 0.1})
    for name, tensor in server.get().params.tensors.items():
        assert read.params.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(read.params.tensors[name], tensor)


def test_pushes_name_their_tensors_or_are_flat(serve: Serve) -> None:
    _, client = serve({"w": np.zeros((2, 2)), "b": np.zeros(())}, optimiser="add")
    assert client.push_gradients("a", START, {"b": np.array(5.0), "w": np.array([[1, 2], [3, 4]])}).accepted
    assert client.push_gradients("a", at(1), np.arange(5)).accepted
    assert client.push_gradients("a", at(2), [0.5, 0, 0, 0, 0]).accepted
    assert client.get().params.tensors["w"].tolist() == [[1.5, 3], [5, 7]] and flat(client, "b") == [9]


def test_a_delta_is_added_whole(serve: Serve) -> None:
    _, client = serve(np.zeros(2), learning_rate=0.5)
    assert client.push_delta("a", START, [1.0, 2.0]).accepted and client.push_gradients("a", at(1), [2.0, 2.0]).accepted
    assert flat(client) == [0, 1]


@pytest.mark.parametrize(("bad", "cause"), BAD, ids=[f"{next(iter(bad))}-{i}" for i, (bad, _) in enumerate(BAD)])
def test_a_bad_push_is_refused_with_its_reason_counted_and_changes_nothing(
    serve: Serve, bad: dict[str, Any], cause: str
) -> None:
    server, client = serve(np.zeros(3))
    receipt = client.push_gradients(**{**GOOD, **bad})
    told = server.statistics()
    if isinstance(bad.get("gradients"), np.ndarray) and bad["gradients"].size > 10**9:
        cause = receipt.reason.split(":")[0]  # nobody sends that much only to learn that its shape is wrong
        assert cause in ("shape", "type")
    assert not receipt.accepted and receipt.version == START and receipt.reason.startswith(f"{cause}: ")
    assert told.refused == {cause: 1} and (told.accepted, told.waiting, told.bytes) == (0, 0, 0)
    assert client.push_gradients(**GOOD).accepted and client.version == at(1)


def test_what_is_behind_is_refused_by_how_far(serve: Serve) -> None:
    server, client = serve(np.zeros(1), max_staleness=1)
    for number in range(3):
        assert client.push_gradients("a", at(number), [1.0]).accepted
    assert client.push_gradients("a", at(2), [1.0]).accepted
    assert client.push_gradients("a", at(2), [1.0]).reason.startswith("stale: 0.2 is 2 versions behind")
    server.publish(Policy(at(0, epoch=1), server.get().params))
    assert client.push_gradients("a", at(4), [1.0]).reason.startswith("epoch: 0.4 is of an epoch that is over")
    told = server.statistics()
    assert (told.accepted, told.stale, told.refused["epoch"], told.lag_max) == (4, 1, 1, 1)


def test_a_round_waits_for_its_quorum_and_whoever_waits_is_told(serve: Serve) -> None:
    server, client = serve(np.zeros(1), mode="sync", quorum=2, aggregation="weighted", optimiser="add")
    assert client.push_gradients("a", START, [1.0], weight=3.0).version == START
    assert client.wait(START, timeout=0) is None and client.wait(START, timeout=0.05) is None
    threading.Timer(0.05, server.push_gradients, ("b", START, [5.0]), {"weight": 1.0}).start()
    policy = client.wait(START, timeout=20)
    assert policy.version == at(1) and policy.params.tensors["weights"].tolist() == [2.0]
    assert client.wait(NONE, timeout=20).version == at(1)
    assert client.push_gradients("a", START, [1.0]).reason.startswith("stale: ")


def test_samples_weigh_a_federated_round(serve: Serve) -> None:
    server, client = serve(np.zeros(1), mode="sync", quorum=2, aggregation="federated")
    client.push_delta(1, START, [1.0], samples=30)
    client.push_delta(2, START, [5.0], 10)
    assert flat(client) == [2] and server.statistics().steps == 40


def test_only_members_take_part_and_a_round_is_ended_by_its_owner(serve: Serve) -> None:
    server, client = serve(np.zeros(1), mode="sync", quorum=9, optimiser="add")
    assert server.begin_round(["a", "b"]) == {"a", "b"}
    assert client.push_gradients("z", START, [9.0]).reason.startswith("round: ")
    assert client.push_gradients("a", START, [1.0]).accepted
    assert server.end_round() == at(1)
    assert client.wait(START, timeout=20).version == at(1) and flat(client) == [1]


def test_a_closed_server_refuses_and_can_still_be_read(serve: Serve) -> None:
    server, client = serve(np.zeros(1))
    server.close()
    assert client.push_gradients("a", START, [1.0]).reason.startswith("closed: ")
    assert client.wait(START, timeout=0.2) is None and client.get().version == START


def test_a_mistake_of_whoever_wrote_the_optimiser_has_its_own_name_everywhere(serve: Serve) -> None:
    _, client = serve(np.zeros(2), optimiser=lambda weights, gradients: weights[:1])
    with pytest.raises(AgentError, match="shape"):
        client.push_gradients("a", START, [1, 1])
    assert client.push_gradients("a", START, [1, 1, 1]).reason.startswith("shape: ")
    assert issubclass(AgentError, MillError) and client.version == START


def test_what_is_read_is_never_half_of_an_update(serve: Serve) -> None:
    server, client = serve(np.zeros(50_000), learning_rate=1.0)
    done = threading.Event()

    def work(index: int) -> None:
        if index == 0:
            for _ in range(100):
                assert server.push_gradients("writer", server.version, np.full(50_000, -1.0)).accepted
            done.set()
            return
        seen = NONE
        while seen != at(100):
            policy = client.latest(seen)
            if policy is not None:
                assert policy.version > seen and (policy.params.tensors["weights"] == policy.version.number).all()
                seen = policy.version

    together(2, work)
    assert done.is_set() and client.version == Version(0, 100)
