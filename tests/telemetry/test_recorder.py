import pytest

from millstream.core.data import Delivery
from millstream.core.errors import StorageError
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder


class Memory:
    def __init__(self):
        self.reports, self.closed = [], False

    def write(self, report):
        self.reports.append(report)

    def close(self):
        self.closed = True


class Broken(Memory):
    def close(self):
        raise StorageError("the disk is full")


class Queue:
    """A subscription over a list."""

    def __init__(self, messages):
        self.messages = list(messages)

    def poll(self, limit):
        taken, self.messages = self.messages[:limit], self.messages[limit:]
        return [Delivery(message, "a", 0) for message in taken]


@pytest.fixture
def progress():
    return Progress(started_at=1000.0)


def test_a_step_drains_every_subscription_and_counts(progress, reports):
    sink = Memory()
    recorder = Recorder([Queue([reports.actor([1.0])]), Queue([reports.update(), reports.event()])], [sink], progress)
    assert recorder.step() == 3
    assert recorder.step() == 0
    assert [report["kind"] for report in sink.reports] == ["actor", "update", "event"]
    assert (progress.made, progress.updates) == (100, 1)


def test_a_step_is_bounded(progress, reports):
    recorder = Recorder([Queue([reports.actor()] * 10)], [], progress, limit=4)
    assert [recorder.step() for _ in range(4)] == [4, 4, 2, 0]


def test_a_callable_may_be_the_source(progress, reports):
    waiting = [[reports.actor()], []]
    assert Recorder(lambda limit: waiting.pop(0), [], progress).step() == 1


def test_sinks_learn_where_in_the_run_a_report_stands(progress, reports):
    sink = Memory()
    recorder = Recorder(lambda limit: (), [sink], progress)
    recorder.write(reports.actor([3.0], steps=100, at=1001.0))
    recorder.write(reports.actor([5.0], steps=100, at=1002.0))
    recorder.write(reports.update(steps=100, at=1001.0))
    recorder.write(reports.update(steps=200, at=1002.0))
    assert [report["progress"]["made"] for report in sink.reports] == [100, 200, 200, 200]
    assert sink.reports[1]["progress"]["train_return"] == 4.0
    assert sink.reports[3]["progress"]["rate"] == 100


def test_closing_takes_what_is_left_and_closes_all_sinks_even_when_one_breaks(progress, reports):
    first, last = Broken(), Memory()
    recorder = Recorder([Queue([reports.actor()] * 600)], [first, last], progress)
    with pytest.raises(StorageError):
        recorder.close()
    assert last.closed
    assert len(last.reports) == 600
