"""A sum tree: weights are changed, and found by their running sum, in as many steps as their number has bits.

In C (tree.c) where that was compiled, in NumPy elsewhere.
"""

from __future__ import annotations

import numpy as np

from millstream.core import native


class SumTree:
    """Weights of so many leaves, 0 at first. Node i has the children 2i and 2i + 1; leaves are the last half."""

    def __init__(self, leaves: int):
        self.width = 1 << max(0, leaves - 1).bit_length()
        self.nodes = np.zeros(2 * self.width)
        self._at = native.place(self.nodes)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.nodes[1])

    @property
    def leaves(self) -> np.ndarray:
        """All weights."""
        return self.nodes[self.width :]

    @leaves.setter
    def leaves(self, weights: np.ndarray) -> None:
        """All weights at once."""
        self.nodes[self.width :] = weights
        width = self.width
        while width > 1:
            below = self.nodes[width : 2 * width]
            width //= 2
            np.add(below[::2], below[1::2], out=self.nodes[width : 2 * width])

    def put(self, leaves: np.ndarray, weights: np.ndarray) -> None:
        """Set weights; of a leaf that is named twice the last counts."""
        if native.LIBRARY is not None:
            leaves, weights = np.ascontiguousarray(leaves, np.int64), np.ascontiguousarray(weights, np.float64)
            native.LIBRARY.mill_tree_put(self._at, self.width, len(leaves), native.place(leaves), native.place(weights))
            return
        nodes, at = self.nodes, leaves + self.width
        nodes[at] = weights
        while len(at) and at[0] > 1:
            at = at >> 1
            nodes[at] = nodes[2 * at] + nodes[2 * at + 1]

    def fill(self, start: int, end: int, weight: float) -> None:
        """One weight for all leaves of a stretch."""
        if start >= end:
            return
        if native.LIBRARY is not None:
            native.LIBRARY.mill_tree_fill(self._at, self.width, start, end, weight)
            return
        nodes = self.nodes
        low, high = start + self.width, end - 1 + self.width
        nodes[low : high + 1] = weight
        while low > 1:
            low, high = low >> 1, high >> 1
            children = nodes[2 * low : 2 * high + 2]
            np.add(children[::2], children[1::2], out=nodes[low : high + 1])

    def find(self, spots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For places on the running sum the leaves that they fall into, and the weights of those."""
        if native.LIBRARY is not None:
            spots, leaves, weights = spots.copy(), np.empty(len(spots), np.int64), np.empty(len(spots))
            places = native.place(spots), native.place(leaves), native.place(weights)
            native.LIBRARY.mill_tree_find(self._at, self.width, len(spots), *places)
            return leaves, weights
        nodes, at, left = self.nodes, np.ones(len(spots), np.int64), spots.copy()
        for _ in range(self.width.bit_length() - 1):
            at *= 2
            passed = nodes[at]
            beyond = left >= passed
            beyond &= nodes[at + 1] > 0  # what rounding leaves over must not fall into an empty half
            left -= passed * beyond
            at += beyond
        return at - self.width, nodes[at]
