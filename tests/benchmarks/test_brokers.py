"""The broker of the rows that need one."""

import brokers
import measure
import pytest

from tests.brokers import leads


def test_a_row_that_needs_a_broker_says_so_where_there_is_none(monkeypatch):
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    with pytest.raises(measure.Failed, match="KAFKA_HOME is not set"), brokers.started():
        pass


def test_a_rows_broker_is_gone_when_the_row_is_done(kafka_home):
    with brokers.started() as address:
        assert leads(address, 5)
    assert not leads(address, 1)
