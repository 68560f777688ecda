"""What a network promises to an algorithm. A class of one's own that keeps it can be named in `network.kind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.random import Generator

from millstream.core.data import Array, Carry


class Network(Protocol):
    """Forwards and back over one flat float32 vector of weights.

    Inputs are `vector` [N, width] and `image/<name>`; outputs are `policy` [N, P], `value` [N] and, for
    continuous actions, `log_std` [P]. A recurrent network reads [B, T, ...] and answers in rows, slot by slot.
    """

    size: int
    recurrent: bool
    images: bool
    """Whether it wants images whole."""

    def init(self, rng: Generator) -> Array:
        """Fresh flat weights."""

    def names(self, weights: Array) -> Mapping[str, Array]:
        """The flat vector as named tensors, for export."""

    def place(self, array: Array) -> Array:
        """An array put where this network computes."""

    def carry(self, slots: int) -> Carry:
        """What is remembered when an episode opens."""

    def act(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry, first: Array
    ) -> tuple[Mapping[str, Array], Carry]:
        """NumPy in, NumPy out, no gradients: one step of all slots. Memory is cleared where `first`."""

    def forward(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry | None = None, first: Array | None = None
    ) -> tuple[Mapping[str, Array], Any]:
        """Outputs for rows, and a tape for `backward`."""

    def backward(self, tape: Any, gradients: Mapping[str, Array]) -> Array:
        """Gradients at the outputs carried back to the flat weights."""
