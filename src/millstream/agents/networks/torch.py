"""Networks in torch: perceptrons, convolutions for images, an LSTM for what cannot be seen at once, any device.

    images -> convolutions -> dense --+
                                      +-> (LSTM) -> hidden layers -> policy, value
    numbers --------------------------+

Weights are one flat vector, as everywhere; the tensors of a pass are views into it, and a pass is a function of
its arguments alone, so that threads may share a network. Without images and memory the vector is laid out as
that of `Mlp`: either can act with what the other learnt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.agents.features import VECTOR, Features
from millstream.agents.networks.mlp import check_shape, orthogonal, tower_shapes
from millstream.agents.networks.pictures import Picture
from millstream.core import native
from millstream.core.data import Array, Carry
from millstream.core.errors import ConfigError, MissingPart
from millstream.core.spec import Box, EnvSpec

try:
    import array_api_compat.torch  # noqa: F401  the maths of the algorithms needs it for tensors
    import torch
    from torch.nn import functional

    from millstream.agents.networks.convolutions import Convolve, by_library, by_torch
except ImportError as error:
    raise MissingPart.of("PyTorch", "torch") from error

_PARTS = ("weight", "bias")
_GAINS = {"policy.weight": 0.01, "value.weight": 1.0, "lstm.input.weight": 1.0, "lstm.memory.weight": 1.0}


class TorchNetwork:
    """`hidden` layers for policy and value, apart by default; below them an encoder and a memory that they share."""

    def __init__(
        self,
        spec: EnvSpec,
        outputs: int,
        spread: int = 0,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
        memory: int = 0,
        device: str = "cpu",
    ):
        features = Features(spec, images=True)
        self.pictures = {
            f"image/{name}": Picture.of(space, spec.stack)
            for name, space in features.images.items()
            if isinstance(space, Box)
        }
        self.images, self.recurrent = bool(self.pictures), memory > 0
        self.grain = 32 if self.images else None  # rows that are worth a thread: images are work enough
        check_shape(hidden, activation, may_be_empty=self.images or self.recurrent)
        self.memory, self.layers, self.towers = memory, len(hidden), 1 if shared else 2
        self.device = _device(device)
        library = native.LIBRARY if self.device.type == "cpu" else None
        self._convolve = by_torch if library is None else by_library(library)
        self._bend = torch.tanh if activation == "tanh" else torch.relu
        width = features.width + sum(picture.features for picture in self.pictures.values())
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, picture in self.pictures.items():
            self.shapes |= {f"{name}.{part}": shape for part, shape in picture.shapes().items()}
        if memory:
            self.shapes["lstm.input.weight"] = (4 * memory, width)  # the gates in torch's order: in, forget, new, out
            self.shapes["lstm.memory.weight"] = (4 * memory, memory)
            self.shapes["lstm.bias"] = (4 * memory,)
        self.shapes |= tower_shapes(memory or width, outputs, spread, hidden, self.towers)
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.size = sum(self._sizes)
        self._known: tuple[Any, dict[str, Any]] = (None, {})

    def init(self, rng: Generator) -> Array:
        """Orthogonal weights from the generator, the same on every device."""
        flat = np.zeros(self.size, np.float32)
        for name, view in self.names(flat).items():
            gain = _GAINS.get(name, math.sqrt(2))
            if name.startswith("lstm."):
                self._open_memory(name, view, gain, rng)
            elif name.endswith("weight"):
                # a convolution [out, in, k, k] is a matrix of its outputs; towers are matrices side by side
                matrices = view.reshape(1, len(view), -1) if view.ndim == 4 else view.reshape(-1, *view.shape[-2:])
                for matrix in matrices:
                    matrix[...] = orthogonal(matrix.shape, gain, rng)
        return self.place(flat)

    def names(self, weights: Array) -> dict[str, Array]:
        """The flat vector as named views."""
        ends = np.cumsum(self._sizes).tolist()
        return {
            name: weights[end - size : end].reshape(shape)
            for (name, shape), size, end in zip(self.shapes.items(), self._sizes, ends, strict=True)
        }

    def place(self, array: Array) -> Array:
        """A tensor on the device; numbers of double precision become single."""
        if isinstance(array, np.ndarray):
            usable = array.flags.writeable and min(array.strides, default=0) >= 0
            array = torch.from_numpy(array if usable else array.copy())
        return array.to(self.device, torch.float32 if array.dtype == torch.float64 else None)

    def carry(self, slots: int) -> Carry:
        """An empty memory."""
        if not self.recurrent:
            return {}
        return {name: np.zeros((slots, self.memory), np.float32) for name in ("lstm_h", "lstm_c")}

    def act(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry, first: Array
    ) -> tuple[dict[str, np.ndarray], Carry]:
        """NumPy in, NumPy out. Weights of NumPy are a policy's: they do not change after they were given."""
        with torch.inference_mode():
            placed = {name: self.place(array) for name, array in inputs.items()}
            if not self.recurrent:
                return _plain(self.compute(self._named(weights), placed, self._convolve)), {}
            kept = (~self.place(first))[:, None]
            before = {name: self.place(carry[name]) * kept for name in ("lstm_h", "lstm_c")}
            outputs, after = self.recall(self._named(weights), placed, before, self._convolve)
            return _plain(outputs), _plain(after)

    def forward(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry | None = None, first: Array | None = None
    ) -> tuple[dict[str, Array], Any]:
        """Outputs for rows, and a tape for `backward`."""
        leaves = {name: _leaf(view) for name, view in self.names(weights.detach()).items()}
        with torch.enable_grad():
            if self.recurrent:
                outputs = self.reread(leaves, inputs, carry, first)
            else:
                inputs = {name: _leaf(array) if name == VECTOR else array for name, array in inputs.items()}
                outputs = self.compute(leaves, inputs, self._convolve)
        return {name: output.detach() for name, output in outputs.items()}, (outputs, leaves, inputs)

    def backward(self, tape: Any, gradients: Mapping[str, Array], out: Array | None = None) -> Array:
        """Gradients at the outputs carried back to the flat weights, by autograd; into `out` where it is given."""
        outputs, leaves, _ = tape
        found = _carried(outputs, gradients, list(leaves.values()))
        return torch.cat([gradient.reshape(-1) for gradient in found], out=out)

    def slopes(self, tape: Any, gradients: Mapping[str, Array]) -> Array:
        """Gradients at the outputs carried back to the numbers among the inputs; not through a memory."""
        outputs, _, inputs = tape
        return _carried(outputs, gradients, [inputs[VECTOR]])[0]

    def module(self, weights: Array) -> Any:
        """The same function as a `torch.nn.Module` with a copy of the weights: inputs (, carry) -> outputs, carry."""
        return Module(self, weights)

    def compute(
        self, named: Mapping[str, Any], inputs: Mapping[str, Any], convolve: Convolve = by_torch
    ) -> dict[str, Any]:
        """Outputs for rows, without memory."""
        return self._decide(named, self._encode(named, inputs, convolve))

    def recall(
        self, named: Mapping[str, Any], inputs: Mapping[str, Any], carry: Carry, convolve: Convolve = by_torch
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Outputs for one step of all slots [B, ...], and the memory after it."""
        x = self._encode(named, inputs, convolve)
        gates = functional.linear(x, named["lstm.input.weight"], named["lstm.bias"])
        gates = torch.addmm(gates, carry["lstm_h"], named["lstm.memory.weight"].T)
        take, keep, news, show = gates.chunk(4, dim=-1)
        c = torch.sigmoid(keep) * carry["lstm_c"] + torch.sigmoid(take) * torch.tanh(news)
        h = torch.sigmoid(show) * torch.tanh(c)
        return self._decide(named, h), {"lstm_h": h, "lstm_c": c}

    def reread(
        self, named: Mapping[str, Any], inputs: Mapping[str, Any], carry: Carry | None, first: Array | None
    ) -> dict[str, Any]:
        """Outputs for sequences [B, T, ...], slot by slot, with the memory that their steps had.

        Sequences are cut where episodes open; the pieces lie side by side, so that the kernel of torch, which
        knows no resets, reads all of them at once. What pads the shorter ones is read and not used.
        """
        slots, steps = next(iter(inputs.values())).shape[:2]
        x = self._encode(named, {name: array.flatten(0, 1) for name, array in inputs.items()}, self._convolve)
        first = torch.zeros(slots, steps, dtype=torch.bool, device=x.device) if first is None else first
        opens = first.clone()
        opens[:, 0] = True
        piece = torch.cumsum(opens.flatten(), 0) - 1  # [B * T] which piece a row lies in, and where in it
        rows = torch.arange(slots * steps, device=x.device)
        place = rows - rows[opens.flatten()][piece]
        pieces, longest = int(piece[-1]) + 1, int(place.max()) + 1
        state = x.new_zeros(2, pieces, self.memory)
        if carry:
            kept = (~first[:, :1]).to(x.dtype)
            state[:, piece[::steps]] = torch.stack([carry["lstm_h"] * kept, carry["lstm_c"] * kept])
        bias = named["lstm.bias"]
        weights = [named["lstm.input.weight"], named["lstm.memory.weight"], bias, torch.zeros_like(bias)]
        padded = x.new_zeros(pieces, longest, x.shape[-1]).index_put((piece, place), x)
        seen, _, _ = torch.lstm(padded, (state[:1], state[1:]), weights, True, 1, 0.0, True, False, True)
        return self._decide(named, seen[piece, place])

    def _encode(self, named: Mapping[str, Any], inputs: Mapping[str, Any], convolve: Convolve) -> Any:
        """Images become numbers [N, features], numbers stay as they are; side by side."""
        parts = [inputs[VECTOR]] if VECTOR in inputs else []
        for name, picture in self.pictures.items():
            layers = [named[f"{name}.conv.{layer}.{part}"] for layer in range(len(picture.layers)) for part in _PARTS]
            x = convolve(picture, picture.arrange(inputs[name]), layers)
            parts.append(torch.relu(torch.addmm(named[f"{name}.dense.bias"], x, named[f"{name}.dense.weight"])))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _decide(self, named: Mapping[str, Any], x: Any) -> dict[str, Any]:
        """Hidden layers of all towers at once, then the heads."""
        below = x[None]
        for index in range(self.layers):
            weight, bias = named[f"hidden.{index}.weight"], named[f"hidden.{index}.bias"]
            below = self._bend(torch.baddbmm(bias, below.expand(self.towers, -1, -1), weight))
        outputs = {
            "policy": torch.addmm(named["policy.bias"], below[0], named["policy.weight"]),
            "value": torch.addmm(named["value.bias"], below[-1], named["value.weight"])[:, 0],
        }
        return outputs | {"log_std": named["log_std"]} if "log_std" in named else outputs

    def _open_memory(self, name: str, view: np.ndarray, gain: float, rng: Generator) -> None:
        """Each gate by itself; it remembers until it learns to forget (Jozefowicz et al. 2015)."""
        for index, gate in enumerate(np.split(view, 4)):
            gate[...] = orthogonal(gate.shape, gain, rng) if gate.ndim == 2 else float(index == 1)

    def _named(self, weights: Array) -> dict[str, Any]:
        known = self._known  # one tuple, swapped whole: threads that race only do the work twice
        if known[0] is not weights:
            flat = self.place(weights) if isinstance(weights, np.ndarray) else weights.detach()
            known = self._known = (weights, self.names(flat))
        return known[1]


class Module(torch.nn.Module):
    """A network with its weights, for torch's own tools; a recurrent one goes one step at a time."""

    def __init__(self, network: TorchNetwork, weights: Array):
        super().__init__()
        self.network = network
        flat = network.place(weights) if isinstance(weights, np.ndarray) else weights.detach()
        for name, tensor in network.names(flat).items():
            *path, leaf = name.split(".")
            holder: Any = self
            for part in path:
                if part not in holder._modules:
                    holder.add_module(part, torch.nn.Module())
                holder = holder._modules[part]
            holder.register_parameter(leaf, torch.nn.Parameter(tensor.clone()))

    def forward(self, inputs: Mapping[str, Any], carry: Carry | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Outputs for rows [N, ...] of inputs, and the memory to come back with."""
        named = dict(self.named_parameters())
        if not self.network.recurrent:
            return self.network.compute(named, inputs), {}
        if carry is None:
            slots = len(next(iter(inputs.values())))
            carry = {name: named["lstm.bias"].new_zeros(slots, self.network.memory) for name in ("lstm_h", "lstm_c")}
        return self.network.recall(named, inputs, carry)


def _leaf(tensor: Any) -> Any:
    """The same numbers, ready to have a gradient."""
    return tensor.detach().requires_grad_()


def _carried(outputs: Mapping[str, Any], gradients: Mapping[str, Any], to: list[Any]) -> Any:
    given = [gradients[name] for name in gradients]
    return torch.autograd.grad([outputs[name] for name in gradients], to, given, materialize_grads=True)


def _plain(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}


def devices() -> list[str]:
    """Where torch can compute here."""
    if not torch.accelerator.is_available():
        return ["cpu"]
    kind = torch.accelerator.current_accelerator().type
    return ["cpu", *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))]


def _device(name: str) -> Any:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # `meta` takes everything and gives nothing back
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        there = ", ".join(devices())
        raise ConfigError(f"network.device {name!r} cannot be used here: {reason}; there is {there}") from error
    return device
