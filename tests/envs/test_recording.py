from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from millstream.core.errors import ConfigError, EnvError, MissingPart
from millstream.envs.cartpole import CartPole
from millstream.envs.recording import play, record, suffix
from millstream.testing import DictEnv


def frames(count: int = 5, height: int = 33, width: int = 47):
    for at in range(count):
        yield np.full((height, width, 3), 40 * at, np.uint8)


def test_a_film_is_written_with_ffmpeg(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is not installed")
    import imageio_ffmpeg

    path = record(frames(), tmp_path / "deep" / "film.mp4", fps=10)
    assert imageio_ffmpeg.count_frames_and_secs(str(path))[0] == 5


def test_a_gif_is_written_with_pillow(tmp_path: Path) -> None:
    from PIL import Image

    path = record(frames(), tmp_path / "film.gif", fps=10)
    with Image.open(path) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (5, (47, 33), 100)


def test_a_path_without_suffix_gets_what_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.envs.recording.find_spec", lambda name: None)
    assert suffix() == ".gif"
    assert record(frames(), tmp_path / "film") == tmp_path / "film.gif"


def test_a_missing_ffmpeg_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingPart, match=r"millstream\[video\]"):
        record(frames(), tmp_path / "film.mp4")


def test_other_kinds_of_film_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.mp4 or \.gif"):
        record(frames(), tmp_path / "film.avi")


def test_no_pictures_make_no_film(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="no pictures"):
        record([], tmp_path / "film.gif")
    assert not (tmp_path / "film.gif").exists()


def test_an_episode_is_played_to_its_end_and_no_further() -> None:
    env, counted = CartPole(2), CartPole(2)
    pictures = list(play(env, lambda step: np.ones(2, np.int64), seed=0))
    counted.reset(0)
    length = 1
    while 0 not in counted.step(np.ones(2, np.int64)).ended:
        length += 1
    assert len(pictures) == length
    assert not np.array_equal(pictures[0], pictures[-1])


def test_an_environment_without_pictures_says_so() -> None:
    with pytest.raises(EnvError, match="draws no pictures"):
        next(play(DictEnv(1), lambda step: np.zeros(1, np.int64), seed=0))
