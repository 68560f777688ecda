"""Pictures of the built-in environments, in plain NumPy."""

from __future__ import annotations

import math

import numpy as np

from millstream.core.data import Array

PAPER = (250, 248, 244)
INK = (43, 48, 58)
WOOD = (200, 147, 92)
AXLE = (92, 107, 192)
RAIL = (176, 176, 186)
WIDTH, HEIGHT = 600, 400
SMOOTH = 0.7
"""Over how many pixels an edge fades, so that it does not look like stairs."""


def canvas(height: int, width: int, colour: tuple[int, int, int] = PAPER) -> Array:
    """An empty picture as float32, to be painted upon."""
    return np.full((height, width, 3), colour, np.float32)


def paint(picture: Array, distance: Array, colour: tuple[int, int, int], at: tuple[slice, slice]) -> None:
    """Colour what lies inside (distance below zero), fading over its edge."""
    cover = np.clip(0.5 - distance / (2 * SMOOTH), 0.0, 1.0)[..., None].astype(np.float32)
    region = picture[at]
    region += cover * (np.array(colour, np.float32) - region)


def capsule(picture: Array, start: tuple[float, float], end: tuple[float, float], radius: float, colour: tuple) -> None:
    """A thick line with round ends, between two (x, y) points."""
    at, xs, ys = _window(picture, start, end, radius)
    (x0, y0), (x1, y1) = start, end
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((xs - x0) * dx + (ys - y0) * dy) / max(dx * dx + dy * dy, 1e-9), 0.0, 1.0)
    paint(picture, np.hypot(xs - x0 - along * dx, ys - y0 - along * dy) - radius, colour, at)


def block(
    picture: Array, centre: tuple[float, float], half: tuple[float, float], radius: float, colour: tuple[int, int, int]
) -> None:
    """A rectangle with round corners; `half` is half its width and half its height."""
    (x, y), (w, h) = centre, half
    at, xs, ys = _window(picture, (x - w, y - h), (x + w, y + h), 1.0)
    beyond_x, beyond_y = np.abs(xs - x) - (w - radius), np.abs(ys - y) - (h - radius)
    outside = np.hypot(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0))
    paint(picture, outside + np.minimum(np.maximum(beyond_x, beyond_y), 0) - radius, colour, at)


def finished(picture: Array) -> Array:
    """The picture as bytes."""
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def cartpole(position: float, angle: float) -> Array:
    """A cart on its track with the pole above it, [400, 600, 3]."""
    picture = canvas(HEIGHT, WIDTH)
    scale = WIDTH / 4.8
    ground, x = 305.0, WIDTH / 2 + position * scale
    capsule(picture, (0, ground), (WIDTH, ground), 1.5, RAIL)
    for edge in (-2.4, 0.0, 2.4):
        mark = min(max(WIDTH / 2 + edge * scale, 2), WIDTH - 2)
        capsule(picture, (mark, ground + 8), (mark, ground + 16), 1.5, RAIL)
    for wheel in (-18, 18):
        capsule(picture, (x + wheel, ground - 6), (x + wheel, ground - 6), 6.0, INK)
    block(picture, (x, ground - 22), (34, 14), 5.0, INK)
    top = (x + scale * math.sin(angle), ground - 30 - scale * math.cos(angle))
    capsule(picture, (x, ground - 30), top, 5.0, WOOD)
    capsule(picture, (x, ground - 30), (x, ground - 30), 4.0, AXLE)
    return finished(picture)


def _window(
    picture: Array, start: tuple[float, float], end: tuple[float, float], margin: float
) -> tuple[tuple[slice, slice], Array, Array]:
    """The part of the picture that a shape can touch, and its coordinates."""
    height, width = picture.shape[:2]
    pad = margin + 2
    left, right = sorted((start[0], end[0]))
    top, bottom = sorted((start[1], end[1]))
    columns = slice(*(min(max(int(edge), 0), width) for edge in (left - pad, right + pad + 1)))
    rows = slice(*(min(max(int(edge), 0), height) for edge in (top - pad, bottom + pad + 1)))
    ys, xs = np.mgrid[rows, columns]
    return (rows, columns), xs.astype(np.float64), ys.astype(np.float64)


TILE = 24
TILES = np.array(
    [(236, 234, 226), (214, 69, 65), (86, 148, 92), (46, 97, 60), INK, (92, 107, 192), (58, 68, 140)], np.float32
)
"""The colours of empty, food, body, head, wall, rival and rival head."""
FOG = 0.45
"""How much light the fog leaves."""


def snake(grid: Array, head: tuple[int, int], vision: int) -> Array:
    """A board of cell codes in its wall, [(size + 2) tiles of 24]; darker beyond what the head sees."""
    codes = np.pad(grid, 1, constant_values=4)
    rows, columns = np.indices(codes.shape) - 1
    near = np.maximum(np.abs(rows - head[0]), np.abs(columns - head[1])) <= vision
    light = np.where(near, 1.0, FOG)[..., None]
    picture = np.repeat(np.repeat(TILES[codes] * light, TILE, axis=0), TILE, axis=1)
    seam = np.arange(len(picture)) % TILE == 0
    picture[seam], picture[:, seam] = picture[seam] * 0.94, picture[:, seam] * 0.94
    return finished(picture)
