"""One version of the parameters: never changed, only replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millstream.core.data import Params, Policy, Version
from millstream.parameters.layout import Layout


@dataclass(frozen=True, slots=True)
class Held:
    """What a server holds."""

    layout: Layout
    weights: np.ndarray  # [size] float32, read-only; the policy's trained tensors are views of it
    policy: Policy

    @classmethod
    def of(cls, layout: Layout, params: Params, version: Version, steps: int = 0) -> Held:
        """Copies of these parameters; raises when they do not fit or are not finite."""
        weights = layout.flat(params)
        return cls(layout, weights, Policy(version, layout.over(weights, layout.kept(params)), steps))

    def moved_to(self, weights: np.ndarray, samples: float) -> Held:
        """The next version, over weights that are nobody else's."""
        old = self.policy
        version = Version(old.version.epoch, old.version.number + 1)
        policy = Policy(version, self.layout.over(weights, old.params), old.steps + int(samples))
        return Held(self.layout, weights, policy)

    @property
    def trained(self) -> Sequence[str]:
        """The names of the tensors that pushes move."""
        return [*self.layout.trained]
