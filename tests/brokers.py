"""A real broker for tests and benchmarks: Apache Kafka as it was unpacked in KAFKA_HOME, one node, no other machine.

It ends with the process that started it, even when that is killed.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

HOST = "127.0.0.1"
STARTS_IN = 60.0
"""Seconds within which a broker answers, or never does."""
FAST = "-Xms128m -Xmx512m"
"""What Java is told of a broker that has much to do."""
BRIEF = f"{FAST} -XX:TieredStopAtLevel=1"
"""And of one that lives for some seconds: not to compile what it will not use for long."""
SMALL = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "message.max.bytes": str(32 << 20),
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}
"""One node, little memory, and nothing that waits for others to come."""


class BrokerFailed(Exception):
    """A broker did not start; its log says why."""


class Broker:
    """One broker on loopback ports of its own. It has the same ports and data each time it starts."""

    def __init__(
        self,
        home: Path,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        java: str = BRIEF,
    ) -> None:
        self.home, self.folder, self.java = home, folder, java
        self.users = dict(users or {})
        """Name -> password, for a second listener that asks for them (SASL, PLAIN)."""
        self._properties = dict(properties or {})
        self._port, self._controller_port, self._sasl_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where everybody may come in."""
        return f"{HOST}:{self._port}"

    @property
    def sasl_address(self) -> str:
        """Where only its users may."""
        return f"{HOST}:{self._sasl_port}"

    @property
    def pid(self) -> int | None:
        """Its process; None while it is down."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log(self) -> Path:
        """What it printed since it first started."""
        return self.folder / "server.log"

    @property
    def data(self) -> Path:
        """All that it keeps."""
        return self.folder / "data"

    def start(self) -> Broker:
        """Start it and wait until it leads all its partitions; nothing when it is up."""
        if self.pid:
            return self
        if not self.data.exists():
            self._format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka-server-start.sh", str(self._written)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(signal.SIGTERM)

    def restart(self) -> Broker:
        """kill -9, and start again with what it has acknowledged."""
        self.kill()
        return self.start()

    def remove(self) -> None:
        """End it and throw its data away; its log stays."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def _written(self) -> Path:
        return self.folder / "server.properties"

    @property
    def _environ(self) -> dict[str, str]:
        return {**os.environ, "KAFKA_HEAP_OPTS": self.java, "LOG_DIR": str(self.folder / "logs")}

    def _command(self, script: str, *arguments: str) -> list[str]:
        """A script of Kafka's that the kernel ends together with us."""
        return ["setpriv", "--pdeathsig", "KILL", str(self.home / "bin" / script), *arguments]

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self._settings().items())
        self._written.write_text("".join(lines))
        cluster = (
            base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
        )  # never begins with "-"
        arguments = ("format", "--standalone", "-t", cluster, "-c", str(self._written))
        done = subprocess.run(
            self._command("kafka-storage.sh", *arguments), capture_output=True, text=True, env=self._environ
        )
        if done.returncode:
            shutil.rmtree(self.data, ignore_errors=True)
            raise BrokerFailed(f"kafka-storage.sh format failed:\n{(done.stdout + done.stderr)[-2000:]}")

    def _settings(self) -> dict[str, str]:
        listeners = {"PLAINTEXT": self._port, "CONTROLLER": self._controller_port}
        sasl = {}
        if self.users:
            listeners["SASL_PLAINTEXT"] = self._sasl_port
            known = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            sasl["sasl.enabled.mechanisms"] = "PLAIN"
            sasl["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = f"{module} required {known};"
        places = {name: f"{name}://{HOST}:{port}" for name, port in listeners.items()}
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(places.values()),
            "advertised.listeners": ",".join(place for name, place in places.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "log.dirs": str(self.data),
            **SMALL,
            **sasl,
            **self._properties,
        }

    def _wait(self) -> None:
        deadline = time.monotonic() + STARTS_IN
        while self.pid and time.monotonic() < deadline:
            if leads(self.address, 0.5):
                return
            time.sleep(0.05)
        said = self.log.read_text(errors="replace")[-2000:]
        raise BrokerFailed(f"{'it did not answer in time' if self.pid else 'it ended'}; {self.log} ends with:\n{said}")

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STARTS_IN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def leads(address: str, seconds: float) -> bool:
    """Whether a broker answers there and every partition has a leader."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), seconds).close()  # much quicker than a client is to notice
    except OSError:
        return False
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        seen = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=seconds)
    except KafkaException:
        return False
    partitions = [each for topic in seen.topics.values() for each in topic.partitions.values()]
    return bool(seen.brokers) and all(each.leader in seen.brokers for each in partitions)


@contextmanager
def mock_broker() -> Iterator[str]:
    """The address of the client library's own cluster: in this process, in memory, for as long as this lasts."""
    from confluent_kafka import Producer

    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    yield ",".join(f"{each.host}:{each.port}" for each in owner.list_topics(timeout=10).brokers.values())
    owner.flush(0)  # named once more, so that it is not let go before


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, below those that the kernel hands out.

    Of the others one may be given to a client while its broker is down, and the broker could not come back.
    """
    handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    low, high = 10_000, handed_out if handed_out > 12_000 else 65_000
    found: set[int] = set()
    while len(found) < count:
        port = low + secrets.randbelow(high - low)
        with socket.socket() as trial, suppress(OSError):
            trial.bind((HOST, port))
            found.add(port)
    return sorted(found)
