import numpy as np
import pytest

from millstream.core.errors import ConfigError, RunError, StorageError
from millstream.telemetry.plots import EARLY, NO_EPISODE, _draw_seeds, _smooth, plot_run, plot_runs, running_mean
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder
from millstream.telemetry.store import SqliteStore, returns


def run(path, reports, seed=0, updates=20):
    recorder = Recorder(lambda limit: (), [SqliteStore(path)], Progress(started_at=1000.0))
    for number in range(1, updates + 1):
        recorder.write(reports.actor([float(number + seed)] * 8, at=1000.0 + number))
        recorder.write(reports.update(update=number, steps=100 * number, at=1000.0 + number))
    recorder.write(reports.evaluation(steps=100 * updates))
    recorder.close()
    return path


def pixels(path):
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"), np.int64)


def has(image, colour):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (np.abs(image - wanted).sum(axis=-1) < 12).sum() > 20


def test_a_run_is_drawn_with_its_curve_and_its_evaluations(tmp_path, reports):
    image = pixels(plot_run(run(tmp_path / "a.sqlite", reports), tmp_path / "plots" / "a.png", "a run", target=15.0))
    assert image.shape == (858, 1300, 3)
    assert has(image, "#0072B2")
    assert has(image, "#D55E00")


def test_a_run_without_evaluations_has_no_points_for_them(tmp_path, reports):
    sink = SqliteStore(tmp_path / "a.sqlite")
    sink.write(reports.actor([1.0, 2.0]))
    sink.close()
    assert not has(pixels(plot_run(tmp_path / "a.sqlite", tmp_path / "a.png", "young")), "#D55E00")


def test_evaluations_alone_are_drawn_without_a_word_about_episodes(tmp_path, reports):
    sink = SqliteStore(tmp_path / "a.sqlite")
    assert NO_EPISODE in plot_run(tmp_path / "a.sqlite", tmp_path / "empty.svg", "young").read_text()
    sink.write(reports.evaluation(steps=100))
    sink.close()
    assert NO_EPISODE not in plot_run(tmp_path / "a.sqlite", tmp_path / "a.svg", "from data").read_text()


def test_a_run_in_which_nothing_happened_yet_can_be_drawn(tmp_path):
    SqliteStore(tmp_path / "a.sqlite").close()
    assert plot_run(tmp_path / "a.sqlite", tmp_path / "a.png", "nothing yet").exists()


def test_seeds_are_drawn_as_one_mean_with_its_interval(tmp_path, reports):
    stores = [run(tmp_path / f"{seed}.sqlite", reports, seed=10 * seed, updates=20 - seed) for seed in range(3)]
    image = pixels(plot_runs([("ppo", stores), ("impala", stores[:1])], tmp_path / "seeds.png", "CartPole-v1", 15.0))
    assert has(image, "#0072B2")
    assert has(image, "#E69F00")


def test_a_run_without_an_episode_says_so(tmp_path, reports):
    sink = SqliteStore(tmp_path / "a.sqlite")
    sink.write(reports.update())
    sink.close()
    for out in (
        plot_run(tmp_path / "a.sqlite", tmp_path / "one.svg", "young"),
        plot_runs([("ppo", [tmp_path / "a.sqlite"])], tmp_path / "several.svg", "young"),
    ):
        assert NO_EPISODE in out.read_text()


def test_the_mean_goes_on_after_a_seed_that_ended_early_and_the_caption_says_how(tmp_path, reports):
    stores = [run(tmp_path / f"{updates}.sqlite", reports, updates=updates) for updates in (5, 20)]
    drawn = {}

    class Axes:
        def plot(self, x, y, **looks):
            drawn.setdefault(looks.get("label", ""), (x, y))

        def fill_between(self, *args, **looks): ...

        def get_legend_handles_labels(self):
            return [], []

    assert _draw_seeds(Axes(), "ppo", stores, "#000000") is True
    steps, means = drawn["ppo (2 seeds)"]
    ends = [_smooth(*returns(store))[1][-1] for store in stores]
    assert steps[-1] == 2000 and means[-1] == pytest.approx(sum(ends) / 2)
    text = plot_runs([("ppo", stores)], tmp_path / "seeds.svg").read_text()
    assert EARLY.strip() in text
    assert EARLY.strip() not in plot_runs([("ppo", stores[:1])], tmp_path / "one.svg").read_text()


def test_the_running_mean_is_of_what_there_is():
    assert running_mean([2.0, 4.0, 6.0, 8.0], window=2).tolist() == [2.0, 3.0, 5.0, 7.0]


def test_a_run_that_is_not_there_is_said(tmp_path):
    with pytest.raises(RunError, match="no metrics"):
        plot_run(tmp_path / "nowhere.sqlite", tmp_path / "a.png", "")


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path):
    SqliteStore(tmp_path / "a.sqlite").close()
    with pytest.raises(StorageError, match="cannot write the plot"):
        plot_run(tmp_path / "a.sqlite", "/proc/run/a.png", "")


def test_a_format_that_cannot_be_drawn_is_refused_with_those_that_can(tmp_path):
    store = tmp_path / "metrics.sqlite"
    SqliteStore(store).close()
    for name in ("a.txt", "a"):
        with pytest.raises(ConfigError, match=r"a plot ends in .png, .svg, .pdf or .jpg, got "):
            plot_run(store, tmp_path / name, "title")
        assert not (tmp_path / name).exists()
    assert plot_run(store, tmp_path / "a.SVG", "title").is_file()
