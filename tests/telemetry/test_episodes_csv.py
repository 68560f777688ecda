import csv

import pytest

from millstream.core.errors import StorageError
from millstream.telemetry.episodes import EpisodesCsv

START = 1000.0


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def told(reports, returns, made, **more):
    return {**reports.actor(returns, **more), "progress": {"made": made}}


def test_each_episode_is_a_line(tmp_path, reports):
    sink = EpisodesCsv(tmp_path / "episodes.csv", START)
    sink.write(told(reports, [21.0, 500.0], 4096, at=START + 1.5, actor=3, lengths=[21, 500]))
    sink.write(reports.update())
    sink.close()
    assert rows(tmp_path / "episodes.csv") == [
        {"r": "21", "l": "21", "t": "1.500", "step": "4096", "actor": "3", "slot": "0"},
        {"r": "500", "l": "500", "t": "1.500", "step": "4096", "actor": "3", "slot": "1"},
    ]


def test_a_resumed_run_appends_under_one_header(tmp_path, reports):
    path = tmp_path / "episodes.csv"
    for _ in range(2):
        sink = EpisodesCsv(path, START)
        sink.write(told(reports, [1.0], 10))
        sink.close()
    assert path.read_text().count("step") == 1
    assert len(rows(path)) == 2


def test_a_resumed_run_drops_what_it_will_tell_again_and_a_line_that_was_cut(tmp_path, reports):
    path = tmp_path / "episodes.csv"
    sink = EpisodesCsv(path, START)
    for made in (100, 200, 300):
        sink.write(told(reports, [1.0], made))
    sink.close()
    path.write_text(path.read_text() + "1,1,0.5,15")
    sink = EpisodesCsv(path, START, rewind_to=200)
    sink.write(told(reports, [2.0], 250))
    sink.close()
    assert [row["step"] for row in rows(path)] == ["100", "200", "250"]


def test_lines_reach_the_disk_as_time_passes(tmp_path, reports):
    path = tmp_path / "episodes.csv"
    sink = EpisodesCsv(path, START)
    sink.write(told(reports, [1.0], 10, at=START))
    sink.write({"kind": "heartbeat", "worker": "actor-0", "at": START + 2})
    assert len(rows(path)) == 1
    sink.close()


def test_a_folder_that_cannot_be_written_is_said_in_one_line():
    with pytest.raises(StorageError, match=r"/proc/run/episodes\.csv (cannot|could not) be written"):
        EpisodesCsv("/proc/run/episodes.csv", START)


def test_a_full_disk_is_said_in_one_line():
    with pytest.raises(StorageError, match="the disk is full: /dev/full could not be written"):
        EpisodesCsv("/dev/full", START)
