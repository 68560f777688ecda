"""The convolutions of a picture: by torch, on any device and for its tools, or in C (conv.c), half as long on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import addressof, c_long
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from millstream.agents.networks.pictures import Picture

SCALE = 1 / 255
"""What one step of a pixel is worth; weights of the first layer take it on: they are fewer than pixels."""

Convolve = Callable[[Picture, Any, Sequence[Any]], Any]
"""Pixels [N, C, H, W] and the weights and biases of its layers -> features [N, flat], planes one after the other."""


def by_torch(picture: Picture, pixels: Any, weights: Sequence[Any]) -> Any:
    """Operations that torch can record, export and run anywhere."""
    # channels last is what the kernels of a CPU read without rearranging: a quarter of the time of an update
    x = pixels.to(torch.float32, memory_format=torch.channels_last)
    for index, layer in enumerate(picture.layers):
        weight, bias = weights[2 * index : 2 * index + 2]
        weight = (weight * SCALE if index == 0 else weight).contiguous(memory_format=torch.channels_last)
        x = torch.relu_(functional.conv2d(x, weight, bias, layer.stride, layer.padding))
    return x.flatten(1)


def by_library(library: ctypes.CDLL) -> Convolve:
    """The same in C, where pixels are bytes."""

    def convolve(picture: Picture, pixels: Any, weights: Sequence[Any]) -> Any:
        if pixels.dtype != torch.uint8:
            return by_torch(picture, pixels, weights)
        return _Passes.apply(library, picture, pixels.contiguous(), *weights)

    return convolve


class _Passes(Function):
    """Both passes, one call each, with the interpreter's lock free."""

    @staticmethod
    def forward(context: Any, library: ctypes.CDLL, picture: Picture, pixels: Any, *weights: Any) -> Any:
        about, rows = _described(picture), len(pixels)
        flat = torch.cat([weight.reshape(-1) for weight in weights])
        area = torch.empty(library.mill_conv_room(addressof(about), rows), dtype=torch.float32, device="cpu")
        features = torch.empty(rows, picture.flat, dtype=torch.float32, device="cpu")
        places = (addressof(about), rows, flat.data_ptr(), SCALE, pixels.data_ptr(), area.data_ptr())
        library.mill_conv_forward(*places, features.data_ptr())
        context.kept = library, about, flat, pixels, area, places, [weight.shape for weight in weights]
        return features

    @staticmethod
    @once_differentiable
    def backward(context: Any, d_features: Any) -> tuple[Any, ...]:
        library, _, flat, _, _, places, shapes = context.kept
        d_features, gradient = d_features.contiguous(), torch.empty_like(flat)
        library.mill_conv_backward(*places, d_features.data_ptr(), gradient.data_ptr())
        parts = gradient.split([shape.numel() for shape in shapes])
        return (None, None, None, *(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))


def _described(picture: Picture) -> Any:
    """The picture as conv.c reads it."""
    layers = [
        number for layer in picture.layers for number in (layer.channels, layer.kernel, layer.stride, layer.padding)
    ]
    return (c_long * (4 + len(layers)))(*picture.dimensions, len(picture.layers), *layers)
