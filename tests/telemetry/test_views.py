import json
import os

import pytest

from millstream.core.errors import RunError
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder
from millstream.telemetry.store import STORE, SqliteStore
from millstream.telemetry.views import run_view, runs_view, seeds_view


def make(folder, config=None, result=None, at=None):
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(config or {"env": {"id": "CartPole-v1"}, "algo": "ppo", "seed": 1}))
    if result:
        (folder / "result.json").write_text(json.dumps(result))
    if at:
        os.utime(path, (at, at))
    return folder


def test_a_run_is_shown_with_its_numbers_and_events(tmp_path, reports):
    folder = make(tmp_path / "one")
    sink = SqliteStore(folder / STORE)
    for report in (reports.update(), reports.evaluation(), reports.event("actor-0 died")):
        sink.write(report)
    view = json.loads(json.dumps(run_view(folder)))
    assert (view["run"], view["env"], view["algo"], view["seed"]) == ("one", "CartPole-v1", "ppo", 1)
    assert view["finished"] is False
    assert view["latest"]["losses/value_loss"] == 3.0
    assert view["evaluations"][0]["mean"] == 50.0
    assert "returns" not in view["evaluations"][0]
    assert view["events"][0]["text"] == "actor-0 died"
    sink.close()


def test_a_finished_run_is_shown_with_its_result(tmp_path):
    folder = make(tmp_path / "one", result={"env": "CartPole-v1", "steps": 90, "evaluation": {"mean": 499.0}})
    view = run_view(folder)
    assert (view["finished"], view["steps"], view["evaluation"]) == (True, 90, {"mean": 499.0})


def test_a_run_that_has_only_just_begun_can_be_shown(tmp_path):
    assert run_view(make(tmp_path / "one"))["latest"] == {}


def test_runs_are_listed_the_newest_first_and_a_damaged_one_is_not_hidden(tmp_path):
    make(tmp_path / "old", at=100)
    make(tmp_path / "new", at=300)
    (make(tmp_path / "broken", at=200) / "result.json").write_text("{")
    (tmp_path / "videos").mkdir()
    views = runs_view(tmp_path)
    assert [view["run"] for view in views] == ["new", "broken", "old"]
    assert "cannot read" in views[1]["damaged"]


def test_no_runs_are_an_empty_list(tmp_path):
    assert runs_view(tmp_path / "nowhere") == []


def test_a_folder_that_is_no_run_is_said(tmp_path):
    with pytest.raises(RunError, match="is not the folder of a run"):
        run_view(tmp_path)


def test_seeds_make_one_table(tmp_path):
    results = [
        {"seed": seed, "steps": 100, "evaluation": {"mean": mean}, "target_reached": reached}
        for seed, mean, reached in [
            (1, 400.0, {"steps": 60, "seconds": 1.0}),
            (2, 500.0, None),
            (3, 450.0, {"steps": 80, "seconds": 2.0}),
        ]
    ]
    for result in results:
        result |= {"seconds": 2.0, "train_return": 10.0 * result["seed"]}
        result["evaluation"]["episodes"] = 100
    table = seeds_view(results)
    assert [run["evaluation"]["mean"] for run in table["runs"]] == [400.0, 500.0, 450.0] and "rows" not in table
    assert (table["seeds"], table["steps"], table["seconds"], table["steps_per_second"]) == ([1, 2, 3], 300, 6.0, 50.0)
    assert (table["train_return"], table["target_reached"]) == (20.0, None)
    assert (table["evaluation"]["mean"], table["evaluation"]["seeds"]) == (450.0, 3)
    assert table["evaluation"]["episodes"] == 300
    assert 400.0 <= table["evaluation"]["low"] < 450.0 < table["evaluation"]["high"] <= 500.0
    assert (table["reached"], table["steps_to_target"]) == (2, 70.0)
    results[1]["target_reached"] = {"steps": 100, "seconds": 3.0}
    assert seeds_view(results)["target_reached"] == {"steps": 80.0, "seconds": 2.0}


def test_a_run_without_a_result_is_listed_with_what_its_store_knows(tmp_path, reports):
    folder = make(tmp_path / "cut")
    recorder = Recorder(lambda limit: (), [SqliteStore(folder / STORE)], Progress(started_at=1000.0))
    recorder.write(reports.actor([20.0, 30.0], at=1001.0))
    recorder.write(reports.update(steps=400, at=1002.0))
    recorder.write(reports.update(update=2, steps=800, at=1004.0))
    recorder.close()
    (view,) = runs_view(tmp_path)
    assert (view["finished"], view["steps"], view["train_return"], view["steps_per_second"]) == (False, 800, 25.0, 200)


def test_folders_are_whole_paths_wherever_one_stands(tmp_path, monkeypatch):
    make(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    assert runs_view(".")[0]["folder"] == run_view("one")["folder"] == str(tmp_path / "one")
