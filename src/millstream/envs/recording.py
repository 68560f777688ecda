"""Episodes as pictures: play one, write it down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import ConfigError, EnvError, MissingPart
from millstream.core.ports import Env

Act = Callable[[Step], Array]
"""Chooses an action for every slot from what the last step showed."""


def play(env: Env, act: Act, seed: int, slot: int = 0, limit: int = 10_000) -> Iterator[Array]:
    """The pictures of one slot's first episode, the opening one included.

    The last picture is the one before the end: an ended slot has already opened its next episode.
    """
    step = env.reset(seed)
    for _ in range(limit):
        frame = env.render(slot)
        if frame is None:
            raise EnvError(f"{env.spec.id} draws no pictures; make it with render=True, or record another")
        yield np.array(frame)
        step = env.step(act(step))
        if slot in step.ended:
            return


def suffix() -> str:
    """The kind of file that can be written here: `.mp4` where ffmpeg is, otherwise `.gif`."""
    return ".mp4" if find_spec("imageio_ffmpeg") else ".gif"


def record(frames: Iterable[Array], path: str | Path, fps: int = 30) -> Path:
    """Write pictures [height, width, 3] to a film; a path without suffix gets the best that can be written."""
    path = Path(path)
    if not path.suffix:
        path = path.with_suffix(suffix())
    writers = {".mp4": _mp4, ".gif": _gif}
    if path.suffix not in writers:
        raise ConfigError(f"a film ends in .mp4 or .gif, got {path.name!r}")
    pictures = iter(frames)
    first = next(pictures, None)
    if first is None:
        raise EnvError(f"there are no pictures to write to {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    writers[path.suffix](_chained(first, pictures), path, fps)
    return path


def _chained(first: Array, rest: Iterator[Array]) -> Iterator[Array]:
    yield np.ascontiguousarray(first)
    for frame in rest:
        if frame.shape != first.shape:
            raise EnvError(f"a picture of shape {frame.shape} follows one of {first.shape}")
        yield np.ascontiguousarray(frame)


def _mp4(frames: Iterator[Array], path: Path, fps: int) -> None:
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise MissingPart.of("imageio-ffmpeg", "video") from error
    first = _even(next(frames))
    height, width = first.shape[:2]
    # yuv420p is what browsers play, and it needs even sides.
    writer: Any = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=fps, codec="libx264", pix_fmt_out="yuv420p", macro_block_size=2
    )
    writer.send(None)
    try:
        writer.send(first)
        for frame in frames:
            writer.send(_even(frame))
    finally:
        writer.close()


def _even(frame: Array) -> Array:
    height, width = frame.shape[:2]
    if not height % 2 and not width % 2:
        return frame
    return np.ascontiguousarray(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))


def _gif(frames: Iterator[Array], path: Path, fps: int) -> None:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPart("Pillow is not installed; run: pip install pillow") from error
    pictures = [Image.fromarray(frame) for frame in frames]
    # A GIF counts hundredths of a second, and viewers slow down below two.
    pause = max(round(100 / fps), 2) * 10
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=pause, loop=0)
