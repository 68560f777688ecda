"""What every service does the same way: who may call, how much, how errors look, and how it ends."""

from __future__ import annotations

import datetime
import ipaddress
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

grpc = pytest.importorskip("grpc")

from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

from millstream.core.data import NONE  # noqa: E402
from millstream.core.errors import (  # noqa: E402
    Busy,
    ConfigError,
    MillError,
    NotAllowed,
    RunError,
    TimedOut,
    TooLarge,
    Unavailable,
)  # fmt: skip
from millstream.core.parts import PART  # noqa: E402
from millstream.parameters.server import ParameterServer  # noqa: E402
from millstream.protos import parameters_pb2 as messages  # noqa: E402
from millstream.protos import parameters_pb2_grpc as stubs  # noqa: E402
from millstream.services.serving import Listening, Served  # noqa: E402
from millstream.wires.grpc import RemoteParameters  # noqa: E402
from tests.parameters.serving import START, at, flat  # noqa: E402
from tests.services.serving import TOKEN, policy, serving, until  # noqa: E402

METHODS = [method.name for method in messages.DESCRIPTOR.services_by_name["Parameters"].methods]
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Held:
    """An optimiser that takes its time: until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        self.entered.set()
        assert self.go.wait(20)
        return weights - gradients


def raw(channel: Any, method: str, body: bytes, **how: Any) -> Any:
    return channel.unary_unary(f"/millstream.parameters.Parameters/{method}")(body, timeout=20, **how)


# --- who may call ----------------------------------------------------------------------------------------------------


def test_who_has_the_token_is_let_in() -> None:
    with serving(ParameterServer(np.zeros(2)), token=TOKEN) as served:
        client = RemoteParameters(served.address, token=TOKEN)
        assert client.push_delta("a", client.version, [1, 2]).accepted and flat(client) == [1, 2]


@pytest.mark.parametrize(
    ("token", "words"), [(None, "no token"), ("wrong" * 5, "a wrong token"), (TOKEN[:-1], "wrong")]
)
def test_who_has_not_gets_one_clear_line_and_changes_nothing(token: str | None, words: str) -> None:
    server = ParameterServer(np.zeros(2))
    with serving(server, token=TOKEN) as served:
        client = RemoteParameters(served.address, token=token)
        calls = [client.get, client.end_round, client.statistics, lambda: client.push_delta("a", START, [1, 2]),
                 lambda: client.wait(NONE, 1), lambda: client.begin_round(["a"]), lambda: client.version,
                 lambda: client.publish(policy(2, at(9)))]  # fmt: skip
        for call in calls:
            with pytest.raises(NotAllowed, match=f"{served.address}: .*{words}"):
                call()
    assert server.version == START and server.statistics().refused == {}


@pytest.mark.parametrize("method", METHODS)
def test_the_token_is_asked_for_before_a_byte_is_decoded(method: str) -> None:
    with serving(ParameterServer(np.zeros(2)), token=TOKEN) as served, grpc.insecure_channel(served.address) as channel:
        with pytest.raises(grpc.RpcError) as denied:
            raw(channel, method, b"\xff\xff\xff no message")
        assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_health_can_be_asked_by_anyone_and_watched_by_who_has_the_token() -> None:
    with serving(ParameterServer(), token=TOKEN) as served, grpc.insecure_channel(served.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "millstream.parameters.Parameters"):
            assert health.Check(health_pb2.HealthCheckRequest(service=name), timeout=20).status == SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            health.Check(health_pb2.HealthCheckRequest(service="another"), timeout=20)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as denied:
            next(health.Watch(health_pb2.HealthCheckRequest(), timeout=20))
        assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_a_service_that_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match=r"other machines.*--token-file"):
        Listening(host)
    assert TOKEN not in repr(Listening(host, token=TOKEN))
    with pytest.raises(ConfigError, match="at least 16 characters"):
        Listening(host, token="short")


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with serving(ParameterServer()) as served:
        text = rf"cannot listen at {served.address}: Address already in use; choose"
        with pytest.raises(ConfigError, match=text):
            Served(Listening(port=served.port), [])


def test_what_is_said_over_tls_is_said_to_who_trusts_the_certificate(tmp_path: Path) -> None:
    certificate, key = self_signed()
    (tmp_path / "trusted.pem").write_bytes(certificate)
    (tmp_path / "other.pem").write_bytes(self_signed()[0])
    with serving(ParameterServer(np.zeros(1)), token=TOKEN, tls=(certificate, key)) as served:
        assert RemoteParameters(served.address, TOKEN, tls=tmp_path / "trusted.pem").version == START
        for wrong in (None, tmp_path / "other.pem"):
            with pytest.raises(Unavailable, match=served.address):
                print(RemoteParameters(served.address, TOKEN, tls=wrong, patience=0).version)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        RemoteParameters("127.0.0.1:1", tls=tmp_path / "none.pem")


def self_signed() -> tuple[bytes, bytes]:
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


# --- how much --------------------------------------------------------------------------------------------------------


def test_a_message_that_is_too_large_is_refused_by_the_wire() -> None:
    with serving(ParameterServer(np.zeros(2))) as served, grpc.insecure_channel(served.address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            raw(channel, "BeginRound", b"\x12\x00" * (3 * PART))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert RemoteParameters(served.address).version == START


def test_more_than_is_taken_at_once_is_refused_by_its_header_alone() -> None:
    server = ParameterServer(np.zeros(2))
    with serving(server, largest=1000) as served:
        client = RemoteParameters(served.address)
        with pytest.raises(TooLarge, match="more than is taken at once, which is 1,000"):
            client.publish(policy(10_000, at(1)))
        with pytest.raises(TooLarge):
            client.push_gradients("a", START, np.zeros(10_000))
        assert client.push_gradients("a", START, np.zeros(2)).accepted


def test_one_call_too_many_is_told_to_come_again_and_does() -> None:
    held = Held()
    server = ParameterServer(np.zeros(2), optimiser=held)
    with serving(server, calls=1) as served:
        first = threading.Thread(target=RemoteParameters(served.address).push_gradients, args=("a", START, [1, 1]))
        first.start()
        assert held.entered.wait(20)
        with pytest.raises(Busy, match=f"{served.address} takes no more now"):
            print(RemoteParameters(served.address, patience=0).version)
        threading.Timer(0.1, held.go.set).start()
        assert RemoteParameters(served.address, patience=20).version == at(1)
        first.join(20)


@pytest.mark.parametrize("limit", [None, 1e6])
def test_who_sends_a_stream_says_how_long_it_may_take(limit: float | None) -> None:
    with serving(ParameterServer(np.zeros(2))) as served, grpc.insecure_channel(served.address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            stubs.ParametersStub(channel).Push(iter([messages.PushPart()]), timeout=limit)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT and "deadline" in refused.value.details()


# --- how errors look -------------------------------------------------------------------------------------------------


def test_nobody_at_the_address_is_one_clear_line() -> None:
    with serving(ParameterServer()) as served:
        address = served.address
    for patience in (0.0, 0.3):
        with pytest.raises(Unavailable, match=rf"{address} does not answer .*is it running there\?"):
            print(RemoteParameters(address, patience=patience).version)


def test_an_answer_that_is_late_is_one_clear_line() -> None:
    held = Held()
    with serving(ParameterServer(np.zeros(2), optimiser=held)) as served:
        client = RemoteParameters(served.address, timeout=0.3)
        with pytest.raises(TimedOut, match=rf"{served.address} did not answer in 0.3 s, and may or may not have done"):
            client.push_gradients("a", START, [1, 1])
        held.go.set()


def test_a_fault_is_told_in_full_here_and_in_a_word_there(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("a secret of the house")

    with serving(ParameterServer(np.zeros(2), optimiser=broken)) as served:
        client = RemoteParameters(served.address)
        with pytest.raises(MillError, match="INTERNAL: a fault inside the service") as told:
            client.push_gradients("a", START, [1, 1])
    assert "secret" not in str(told.value) and "a secret of the house" in capfd.readouterr().err


def test_a_closed_line_says_so() -> None:
    client = RemoteParameters("127.0.0.1:1")
    client.close()
    with pytest.raises(RunError, match=r"line to 127.0.0.1:1 was closed"):
        client.get()
    for options in ({"timeout": 0}, {"timeout": math.nan}, {"patience": -1}):
        with pytest.raises(ConfigError, match="timeout"):
            RemoteParameters("127.0.0.1:1", **options)


# --- how it ends -----------------------------------------------------------------------------------------------------


def test_a_service_that_ends_says_so_takes_nothing_new_and_finishes_what_runs() -> None:
    held, receipts = Held(), []
    server = ParameterServer(np.zeros(2), optimiser=held)
    served = Served(Listening(grace=20.0), [offered(server)])
    served.start()
    client = RemoteParameters(served.address, patience=0)
    running = threading.Thread(target=lambda: receipts.append(client.push_gradients("a", START, [1, 1])))
    with grpc.insecure_channel(served.address) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watched).status == SERVING
        running.start()
        assert held.entered.wait(20)
        ending = threading.Thread(target=served.drain)
        ending.start()
        assert next(watched).status == NOT_SERVING
        watched.cancel()
        until(lambda: refused(client))
        running.join(0.3)
        assert running.is_alive()  # not cut off
        held.go.set()
        running.join(20)
        ending.join(20)
    assert not ending.is_alive() and receipts[0].accepted and server.version == at(1)


def test_calls_that_do_not_end_are_cut_off_when_their_time_is_over() -> None:
    held, errors = Held(), []
    server = ParameterServer(np.zeros(2), optimiser=held)
    served = Served(Listening(grace=0.2), [offered(server)])
    served.start()

    def push() -> None:
        try:
            RemoteParameters(served.address, patience=0).push_gradients("a", START, [1, 1])
        except Unavailable as error:
            errors.append(error)

    running = threading.Thread(target=push)
    running.start()
    assert held.entered.wait(20)
    served.drain()
    running.join(20)
    held.go.set()
    assert len(errors) == 1


def offered(server: ParameterServer) -> Any:
    from millstream.services.parameters import offer

    return offer(server)


def refused(client: RemoteParameters) -> bool:
    try:
        return client.version is None
    except Unavailable:
        return True
