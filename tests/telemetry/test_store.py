import resource
import signal
import sqlite3

import pytest

from millstream.core.errors import RunError, StorageError
from millstream.telemetry import store
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder
from millstream.telemetry.store import SqliteStore

START = 1000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / store.STORE


def test_what_is_written_can_be_read(path, reports):
    sink = SqliteStore(path)
    recorder = Recorder(lambda limit: (), [sink], Progress(started_at=START))
    recorder.write(reports.actor([3.0, 5.0], at=START + 1, actor=4))
    recorder.write(reports.update(steps=100, at=START + 1.1))
    recorder.write(reports.evaluation(mean=40.0))
    recorder.write(reports.event("actor-0 died"))
    recorder.close()
    assert store.scalars(path, "losses/value_loss") == [{"step": 100, "value": 3.0, "at": START + 1.1}]
    assert store.scalars(path, "charts/episodic_return")[0]["value"] == 4.0
    assert [(e["step"], e["actor"], e["slot"], e["return"], e["length"]) for e in store.episodes(path)] == [
        (100, 4, 0, 3.0, 10),
        (100, 4, 1, 5.0, 10),
    ]
    evaluation = store.evaluations(path)[0]
    assert (evaluation["mean"], evaluation["version"], evaluation["returns"]) == (40.0, [0, 1], [40.0] * 3)
    assert store.events(path) == [{"level": "warning", "text": "actor-0 died", "at": START + 3}]
    assert store.latest(path)["mill/policy_lag"] == 1.0
    assert {"charts/SPS", "mill/share_learner_gradients", "eval/mean_reward"} <= set(store.names(path))


def test_a_reader_may_look_while_it_is_written(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.update(update=1, steps=1, at=START))
    sink.write(reports.update(update=2, steps=2, at=START + 2))
    assert len(store.scalars(path, "mill/queue")) == 2
    sink.write(reports.update(update=3, steps=3, at=START + 4))
    assert len(store.scalars(path, "mill/queue")) == 3
    sink.close()


def test_reports_wait_in_memory_and_an_event_brings_them_all_to_disk(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.update(update=1, at=START))
    sink.write(reports.update(update=2, at=START + 0.1))
    assert len(store.scalars(path, "mill/queue")) == 1
    sink.write(reports.event(at=START + 0.2))
    assert len(store.scalars(path, "mill/queue")) == 2
    sink.close()


def test_a_finished_store_is_one_file_and_reading_leaves_it_one(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.update())
    sink.close()
    assert len(store.scalars(path, "mill/queue")) == 1
    assert [entry.name for entry in path.parent.iterdir()] == [store.STORE]


def test_many_rows_come_back_as_few_points_that_keep_the_mean(path, reports):
    sink = SqliteStore(path)
    for number in range(1000):
        sink.write(reports.update(update=number, steps=number, at=START + number, policy_loss=float(number)))
    sink.close()
    points = store.scalars(path, "losses/policy_loss", points=10)
    assert len(points) == 10
    assert points[0]["value"] == pytest.approx(49.5)
    assert points[-1]["step"] == 999
    assert sum(point["value"] for point in points) / 10 == pytest.approx(499.5)


def test_a_long_fast_run_keeps_all_early_updates_and_later_one_a_second(path, reports, monkeypatch):
    monkeypatch.setattr(store, "_DENSE", 50)
    sink = SqliteStore(path)
    for number in range(250):
        sink.write(reports.update(update=number, steps=number, at=START + number / 100))
    sink.close()
    assert len(store.scalars(path, "mill/queue")) == 52


def test_a_resumed_run_forgets_what_it_will_tell_again(path, reports):
    sink = SqliteStore(path)
    for steps in (100, 200, 300):
        sink.write(reports.update(steps=steps))
        sink.write(reports.evaluation(steps=steps))
        sink.write({**reports.actor([1.0]), "progress": {"made": steps}})
    sink.write(reports.event())
    sink.close()
    again = SqliteStore(path)
    again.rewind(200)
    again.write(reports.update(steps=250))
    again.close()
    assert [row["step"] for row in store.scalars(path, "mill/queue")] == [100, 200, 250]
    assert [row["step"] for row in store.episodes(path)] == [100, 200]
    assert [row["step"] for row in store.evaluations(path)] == [100, 200]
    assert len(store.events(path)) == 1


def test_numbers_that_are_not_finite_are_left_out(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.update(value_loss=float("nan"), entropy=0.5))
    sink.close()
    assert store.scalars(path, "losses/value_loss") == []
    assert len(store.scalars(path, "losses/entropy")) == 1


def test_the_last_episodes_can_be_asked_for(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.actor([1.0, 2.0, 3.0]))
    sink.close()
    assert [row["return"] for row in store.episodes(path, limit=2)] == [2.0, 3.0]


def test_all_returns_come_as_arrays(path, reports):
    sink = SqliteStore(path)
    assert store.returns(path)[0].shape == (0,)
    sink.write(reports.actor([1.0, 2.0]))
    sink.close()
    steps, returns = store.returns(path)
    assert (steps.tolist(), returns.tolist()) == ([100.0, 100.0], [1.0, 2.0])


def test_a_folder_that_cannot_be_written_is_said_in_one_line():
    with pytest.raises(StorageError, match=r"cannot write metrics to /proc/run/metrics\.sqlite") as caught:
        SqliteStore("/proc/run/metrics.sqlite")
    assert "\n" not in str(caught.value)


def test_a_full_database_is_said_in_one_line(path, reports):
    sink = SqliteStore(path)
    sink._connection.execute("PRAGMA max_page_count = 12")
    with pytest.raises(StorageError, match="the disk is full; free some space"):
        for number in range(200):
            sink.write(reports.actor([1.0] * 100, at=START + 2 * number))


def test_a_file_that_may_not_grow_is_said_in_one_line(path, reports):
    """What the kernel answers when a quota or a disk ends, rather than what SQLite thinks itself."""
    sink = SqliteStore(path)
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limit[1]))
    try:
        with pytest.raises(StorageError, match="cannot write metrics"):
            for number in range(200):
                sink.write(reports.actor([1.0] * 100, at=START + 2 * number))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_was_committed_before_the_disk_filled_can_still_be_read(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.actor([7.0], at=START))
    sink._connection.execute("PRAGMA max_page_count = 12")
    with pytest.raises(StorageError):
        for number in range(200):
            sink.write(reports.actor([1.0] * 100, at=START + 2 * number))
    assert store.episodes(path)[0]["return"] == 7.0


def test_a_damaged_file_is_said_in_one_line(path):
    path.write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(StorageError, match="is damaged"):
        SqliteStore(path)
    with pytest.raises(StorageError, match="cannot read metrics"):
        store.names(path)


def test_a_missing_store_is_not_made_by_looking(path):
    with pytest.raises(RunError, match="there are no metrics"):
        store.names(path)
    assert not path.exists()


def test_anyone_with_sqlite_can_read_it(path, reports):
    sink = SqliteStore(path)
    sink.write(reports.update())
    sink.close()
    with sqlite3.connect(path) as connection:
        query = "SELECT n.name, s.step, s.value, s.at FROM scalars s JOIN names n ON n.id = s.name WHERE n.name = ?"
        rows = connection.execute(query, ("charts/learning_rate",)).fetchall()
    assert rows == [("charts/learning_rate", 100, 0.001, START + 1)]
