"""The broker that the tests use, for rows that need one: `from brokers import started`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Failed
from venvs import ROOT

sys.path.insert(0, str(ROOT))
from tests.brokers import FAST, Broker


@contextmanager
def started() -> Iterator[str]:
    """The address of a broker on this machine, with nothing in it, until this ends."""
    home = os.environ.get("KAFKA_HOME")
    if not home:
        raise Failed("KAFKA_HOME is not set: unpack Apache Kafka somewhere, and say where")
    with tempfile.TemporaryDirectory() as folder, Broker(Path(home), Path(folder), java=FAST) as broker:
        yield broker.address
