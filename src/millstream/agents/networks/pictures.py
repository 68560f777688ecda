"""How images are laid out and which convolutions suit them. No array library in here."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.core.data import Array
from millstream.core.spec import Box


@dataclass(frozen=True)
class Convolution:
    """One layer."""

    channels: int
    kernel: int
    stride: int
    padding: int = 0

    def side(self, before: int) -> int:
        """What is left of a height or a width."""
        return (before + 2 * self.padding - self.kernel) // self.stride + 1


NATURE = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1))
"""Mnih et al. 2015; needs at least 36 pixels each way."""
BOARD = (Convolution(16, 3, 1, 1), Convolution(32, 3, 1, 1), Convolution(32, 3, 1, 1))
"""For grids in which each pixel is a thing."""
SMALL = (Convolution(16, 3, 1, 1), Convolution(32, 3, 2, 1), Convolution(32, 3, 2, 1))
"""Between the two."""


@dataclass(frozen=True)
class Picture:
    """An image, or a stack of its last frames, as a convolution reads it: channels first, frames as channels."""

    shape: tuple[int, ...]  # [H, W], [H, W, C] or [C, H, W]
    stack: int = 1

    @classmethod
    def of(cls, space: Box, stack: int) -> Picture:
        """The picture of an image space."""
        return cls(space.shape, stack)

    @property
    def channels_first(self) -> bool:
        """Whether its shape is [C, H, W]: few of the first, many of the others."""
        return len(self.shape) == 3 and self.shape[0] <= 16 < min(self.shape[1:])

    @property
    def dimensions(self) -> tuple[int, int, int]:
        """Channels, height and width, the frames of a stack among the channels."""
        if len(self.shape) == 2:
            return (self.stack, *self.shape)
        channels, height, width = self.shape if self.channels_first else (self.shape[2], *self.shape[:2])
        return self.stack * channels, height, width

    @property
    def layers(self) -> tuple[Convolution, ...]:
        """The convolutions that suit its size."""
        _, height, width = self.dimensions
        if min(height, width) >= 36:
            return NATURE
        return BOARD if max(height, width) <= 12 else SMALL

    @property
    def features(self) -> int:
        """How many numbers its encoder gives."""
        return 512 if self.layers is NATURE else 128

    @property
    def flat(self) -> int:
        """How many numbers the last convolution leaves."""
        _, height, width = self.dimensions
        for layer in self.layers:
            height, width = layer.side(height), layer.side(width)
        return self.layers[-1].channels * height * width

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The weights of its encoder, by name."""
        found: dict[str, tuple[int, ...]] = {}
        channels = self.dimensions[0]
        for index, layer in enumerate(self.layers):
            found[f"conv.{index}.weight"] = (layer.channels, channels, layer.kernel, layer.kernel)
            found[f"conv.{index}.bias"] = (layer.channels,)
            channels = layer.channels
        return found | {"dense.weight": (self.flat, self.features), "dense.bias": (self.features,)}

    def arrange(self, pixels: Array) -> Array:
        """A tensor of pixels [N, (k,) *shape] -> [N, channels, H, W]."""
        if len(self.shape) == 3 and not self.channels_first:
            pixels = pixels.movedim(-1, -3)
        return pixels.reshape(-1, *self.dimensions)
