"""What all tests share. In CI a skip for a missing part is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before NumPy is imported: two cores, several processes

import pytest

from tests.brokers import Broker, mock_broker
from tests.kafka_runs import KafkaRun, kafka_run

MOCKED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"skipped in CI: {reason}"
    return report


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that all tests share: topics need names of their own.

    It is KAFKA_BOOTSTRAP_SERVERS, or one started from KAFKA_HOME, or else, never in CI, the client library's own.
    """
    address, home = os.environ.get("KAFKA_BOOTSTRAP_SERVERS"), os.environ.get("KAFKA_HOME")
    if address:
        yield address
    elif home:
        with Broker(Path(home), tmp_path_factory.mktemp("kafka")) as broker:
            yield broker.address
    elif os.environ.get("CI") == "true":
        pytest.fail("no broker in CI: set KAFKA_HOME or KAFKA_BOOTSTRAP_SERVERS")
    else:
        pytest.importorskip("confluent_kafka")
        request.config.stash[MOCKED] = True
        with mock_broker() as address:
            yield address


@pytest.fixture(scope="session")
def kafka_is_mock(request: pytest.FixtureRequest, kafka: str) -> bool:
    """Whether that is the client library's own.

    It cannot be asked to make topics: they are there when they are first named, with 4 partitions. It fences nobody
    and compacts nothing.
    """
    return request.config.stash.get(MOCKED, False)


@pytest.fixture
def durable_kafka(kafka: str, kafka_is_mock: bool) -> str:
    """The shared broker, where it is a real one."""
    if kafka_is_mock:
        pytest.skip("the mock broker keeps nothing; set KAFKA_HOME or KAFKA_BOOTSTRAP_SERVERS")
    return kafka


@pytest.fixture
def on_kafka(durable_kafka: str) -> Iterator[KafkaRun]:
    """A run on the shared broker, with topics of its own."""
    with kafka_run(durable_kafka) as run:
        yield run


@pytest.fixture(scope="session")
def kafka_home() -> Path:
    """Where Apache Kafka is, for a broker that is started in a way of its own."""
    home = os.environ.get("KAFKA_HOME")
    if not home:
        pytest.skip("this needs a broker of its own, started from KAFKA_HOME, which is not set")
    return Path(home)


@pytest.fixture
def own_kafka(kafka_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of the test's own, up and running, that it may kill."""
    with Broker(kafka_home, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash.get(MOCKED, False):
        terminalreporter.write_line("kafka: mock broker; set KAFKA_HOME or KAFKA_BOOTSTRAP_SERVERS for a real one")
