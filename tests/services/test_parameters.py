"""The parameter server as a process: lost answers, kills, restarts, and many who push at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

grpc = pytest.importorskip("grpc")

from millstream.core.clock import SystemClock  # noqa: E402
from millstream.core.data import NONE, Params, Policy, Version  # noqa: E402
from millstream.core.errors import CodecError, ConfigError, Diverged, Fenced, RunError, Unavailable  # noqa: E402
from millstream.core.parts import cut  # noqa: E402
from millstream.core.pushes import encode  # noqa: E402
from millstream.parameters.privacy import Privacy  # noqa: E402
from millstream.parameters.server import ParameterServer  # noqa: E402
from millstream.protos import parameters_pb2 as messages  # noqa: E402
from millstream.protos import parameters_pb2_grpc as stubs  # noqa: E402
from millstream.wires.grpc import RemoteParameters  # noqa: E402
from tests.parameters.serving import START, at, flat, together  # noqa: E402
from tests.services.serving import Process, Proxy, policy, serving, until  # noqa: E402

# --- the same calls --------------------------------------------------------------------------------------------------


def test_rounds_and_statistics_are_the_servers_own() -> None:
    private = Privacy(clip=1.0, noise_multiplier=1.0)
    server = ParameterServer(np.zeros(2), mode="sync", quorum=2, aggregation="federated", privacy=private)
    with serving(server) as served:
        client = RemoteParameters(served.address)
        assert client.begin_round(["a", 1]) == {"a", "1"}
        assert client.push_delta("a", START, [1, 1]).accepted
        assert client.push_gradients("1", START, [1, 1]).reason.startswith("kind: ")
        assert client.end_round() == at(1) == client.version
        assert client.statistics() == server.statistics() and client.statistics().epsilon > 0
    plain = ParameterServer(np.zeros(1))
    with serving(plain) as served:
        client = RemoteParameters(served.address)
        client.push_gradients("a", START, [[1.0]])
        assert client.statistics() == plain.statistics() and client.statistics().epsilon is None
        with pytest.raises(ConfigError, match="mode='sync'"):
            client.begin_round(["a"])


def test_errors_keep_their_names_over_the_network() -> None:
    server = ParameterServer()
    with serving(server) as served:
        client = RemoteParameters(served.address)
        assert client.version == NONE and client.latest() is None
        assert client.push_gradients("a", START, [1.0]).reason.startswith("empty: ")
        with pytest.raises(RunError, match=f"{served.address} has no parameters yet"):
            client.get()
        client.publish(Policy(at(3), Params({"weights": np.ones(2, np.float32)}, {"epsilon": 0.5}), steps=30))
        assert client.get().steps == 30 and dict(client.get().params.hyper) == {"epsilon": 0.5}
        with pytest.raises(Fenced, match=r"not newer than 0\.3; another learner"):
            client.publish(policy(2, at(3)))
        with pytest.raises(Diverged, match="not finite"):
            client.publish(Policy(at(4), Params({"weights": np.array([1, np.inf])})))
        with pytest.raises(ConfigError, match="keep their names and shapes"):
            client.publish(policy(3, at(4)))


def pushed(data: bytes, sequence: int = 1, size: int | None = None, spoil: int = 0) -> list[Any]:
    header = messages.PushHeader(
        call=messages.Call(caller="c", sequence=sequence), worker="a", version=messages.Version(epoch=0, number=0),
        size=len(data) if size is None else size,
    )  # fmt: skip
    parts = [messages.Part(data=part, checksum=checksum ^ spoil) for part, checksum in cut(data, 50)]
    return [messages.PushPart(header=header), *(messages.PushPart(part=part) for part in parts)]


def test_bytes_that_were_damaged_on_their_way_change_nothing() -> None:
    server, data = ParameterServer(np.zeros(2)), encode(np.ones(2), 1000)
    whole = pushed(data)
    assert len(whole) > 3
    wrong = [pushed(data, spoil=1), whole[:-1], [*whole, whole[-1]], [whole[0], *whole[2:]], whole[1:], [],
             pushed(b"no safetensors at all"), pushed(data, size=5)]  # fmt: skip
    with serving(server) as served, grpc.insecure_channel(served.address) as channel:
        stub = stubs.ParametersStub(channel)
        for parts in wrong:
            with pytest.raises(grpc.RpcError) as refused:
                stub.Push(iter(parts), timeout=20)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert dict(refused.value.trailing_metadata())["mill-error"] == CodecError.__name__
        assert server.statistics().accepted == 0 and server.version == START
        assert stub.Push(iter(pushed(data, sequence=2)), timeout=20).accepted


def test_a_policy_that_is_larger_than_a_message_goes_both_ways() -> None:
    size = 3_000_000
    weights = np.random.default_rng(0).normal(size=size).astype(np.float32)
    with serving(ParameterServer()) as served:
        client = RemoteParameters(served.address)
        client.publish(Policy(START, Params({"weights": weights})))
        assert client.push_delta("a", START, weights).accepted
        np.testing.assert_array_equal(client.get().params.tensors["weights"], weights + weights)


@pytest.mark.slow
def test_a_policy_of_two_hundred_megabytes_goes_both_ways() -> None:
    weights = np.arange(50_000_000, dtype=np.float32)
    with serving(ParameterServer(weights, optimiser="add")) as served:
        client = RemoteParameters(served.address, timeout=300)
        assert client.push_gradients("a", START, np.ones(50_000_000, np.float32)).accepted
        np.testing.assert_array_equal(client.get().params.tensors["weights"], weights + 1)


def test_nobody_makes_a_call_wait_for_long() -> None:
    with serving(ParameterServer(np.zeros(2))) as served, grpc.insecure_channel(served.address) as channel:
        request = messages.GetParametersRequest(newer_than=messages.Version(), wait_seconds=1e9)
        assert list(stubs.ParametersStub(channel).GetParameters(request, timeout=20)) == []


# --- lost answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["push", "publish", "end_round"])
def test_a_change_whose_answer_was_lost_is_made_once(change: str) -> None:
    server = ParameterServer(np.zeros(1), mode="sync", quorum=2 if change == "end_round" else 1, optimiser="add")
    with serving(server) as served:
        proxy = Proxy(served.address)
        client, answers = RemoteParameters(proxy.address, patience=20), []
        assert client.version == START and proxy.connections == 1
        if change == "end_round":
            client.push_gradients("a", START, [1.0])
        call = {
            "push": lambda: client.push_gradients("a", START, [1.0]),
            "publish": lambda: client.publish(policy(1, at(1))),
            "end_round": client.end_round,
        }[change]
        proxy.deaf.set()
        asking = threading.Thread(target=lambda: answers.append(call()))
        asking.start()
        until(lambda: server.version == at(1))
        proxy.cut()
        proxy.deaf.clear()
        asking.join(20)
        proxy.close()
    told = server.statistics()
    assert not asking.is_alive() and proxy.connections > 1 and server.version == at(1)
    assert told.refused == {} and told.rounds == (change != "publish") and told.accepted == (change != "publish")
    assert answers[0] == at(1) if change == "end_round" else answers[0] is None or answers[0].accepted


class Jumping(SystemClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_patience_begins_when_the_service_is_first_away_however_long_the_call_took() -> None:
    entered, go, receipts, clock = threading.Event(), threading.Event(), [], Jumping()

    def slow(weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        entered.set()
        assert go.wait(20)
        return weights - gradients

    server = ParameterServer(np.zeros(1), optimiser=slow)
    with serving(server) as served:
        proxy = Proxy(served.address)
        client = RemoteParameters(proxy.address, timeout=600, patience=20, clock=clock)
        pushing = threading.Thread(target=lambda: receipts.append(client.push_gradients("a", START, [1.0])))
        pushing.start()
        assert entered.wait(20)
        clock.ahead += 300
        proxy.cut()
        go.set()
        pushing.join(20)
        proxy.close()
    assert receipts[0].accepted and server.statistics().accepted == 1


def test_threads_that_share_a_client_each_push_on_their_own() -> None:
    server = ParameterServer(np.zeros(1), learning_rate=1.0)
    with serving(server) as served:
        client = RemoteParameters(served.address)

        def push(worker: int) -> None:
            for _ in range(25):
                assert client.push_gradients(worker, START, [-1.0]).accepted

        together(6, push)
    assert flat(server) == [150] and server.statistics().accepted == 150


# --- processes -------------------------------------------------------------------------------------------------------

PUSHER = """
import sys
import numpy as np
from millstream.wires.grpc import RemoteParameters
client = RemoteParameters(sys.argv[1], patience=60)
print("up", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    while True:
        receipt = client.push_gradients(sys.argv[2], client.version, np.full(1000, -1.0))
        if receipt.accepted:
            break
        assert receipt.reason.startswith("epoch: "), receipt
"""


def pushers(address: str, count: int, pushes: int) -> list[subprocess.Popen[str]]:
    started = [
        subprocess.Popen([sys.executable, "-c", PUSHER, address, str(index), str(pushes)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for index in range(count)
    ]  # fmt: skip
    for each in started:
        assert each.stdout.readline() == "up\n"
    for each in started:
        each.stdin.write("go\n")
        each.stdin.flush()
    return started


def ended(processes: list[subprocess.Popen[str]]) -> list[int]:
    for each in processes:
        each.communicate(timeout=90)
    return [each.returncode for each in processes]


def test_eight_processes_that_push_at_once_lose_nothing(tmp_path: Path) -> None:
    with Process(tmp_path, "--port", "0", "--learning-rate", "1") as service:
        client = RemoteParameters(service.address)
        client.publish(policy(1000, START))
        assert ended(pushers(service.address, count=8, pushes=40)) == [0] * 8
        told = client.statistics()
        assert (told.accepted, told.rounds, told.refused, told.version) == (320, 320, {}, at(320))
        assert flat(client) == [320.0] * 1000
        assert service.end() == (0, "")


def test_a_server_that_was_killed_goes_on_from_its_checkpoint_and_so_do_its_clients(tmp_path: Path) -> None:
    options = ("--checkpoint", "server.safetensors", "--checkpoint-seconds", "0.05", "--learning-rate", "1")
    with Process(tmp_path, "--port", "0", *options) as first:
        client = RemoteParameters(first.address, patience=60)
        client.publish(policy(1000, START))
        workers = pushers(first.address, count=2, pushes=150)
        until(lambda: client.version.number >= 20 and (tmp_path / "server.safetensors").exists())
        first.kill()
    with Process(tmp_path, "--port", first.port, *options) as second:
        assert client.version.epoch == 1
        assert ended(workers) == [0, 0]
        read = client.get()
        assert read.version.epoch == 1 and set(read.params.tensors["weights"]) == {float(read.version.number)}
        assert client.push_gradients("late", Version(0, 5), np.zeros(1000)).reason.startswith("epoch: ")
        assert second.end() == (0, "")


def test_an_epoch_is_never_begun_twice(tmp_path: Path) -> None:
    options = ("--port", "0", "--checkpoint", "server.safetensors", "--checkpoint-seconds", "1000")
    with Process(tmp_path, *options) as service:
        RemoteParameters(service.address).publish(policy(2, START))
        assert service.end(signal.SIGINT) == (0, "")
    for epoch in (1, 2, 3):
        with Process(tmp_path, *options) as service:
            client = RemoteParameters(service.address)
            assert client.version == at(0, epoch)
            assert client.push_gradients("a", at(0, epoch), [1.0, 1.0]).accepted
            service.kill()  # before it saved


def test_what_was_pushed_before_the_end_is_in_the_checkpoint(tmp_path: Path) -> None:
    options = ("--checkpoint", "deep/server.safetensors", "--optimiser", "add", "--grace", "1000")
    with Process(tmp_path, "--port", "0", *options) as service:
        client, waits = RemoteParameters(service.address, patience=0), []
        client.publish(policy(2, START))
        assert client.push_gradients("a", START, [1.0, 2.0]).accepted

        def wait() -> None:
            try:
                waits.append(client.wait(at(1), timeout=60))
            except Unavailable as error:
                waits.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert service.end() == (0, "")  # whoever waits holds nobody up
        waiting.join(20)
        assert isinstance(waits[0], Unavailable)
    server = ParameterServer()
    server.load(tmp_path / "deep" / "server.safetensors")
    assert flat(server) == [1, 2] and server.version == at(1, epoch=1)


def test_one_checkpoint_has_one_service(tmp_path: Path) -> None:
    with Process(tmp_path, "--port", "0", "--checkpoint", "one") as service:
        other = Process(tmp_path, "--port", "0", "--checkpoint", "one")
        _, errors = other.process.communicate(timeout=30)
        assert other.process.returncode == 2 and errors.count("\n") == 1
        assert "another one (process" in errors and "choose another --checkpoint" in errors
        assert service.end() == (0, "")
