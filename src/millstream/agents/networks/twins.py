"""Networks where a gradient runs through critics into the action: a policy, and two critics of what it does.

Both are made of what there is. The policy is a perceptron with one tower; the critics are one with two towers that
reads observation and action side by side, and of which one tower answers as `policy`, the other as `value`. All weights
are one flat vector: first the policy's, then the critics'. Actors need the first part alone, and no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.agents.features import VECTOR, Features
from millstream.agents.maths import namespace
from millstream.agents.networks.mlp import Mlp
from millstream.core.data import Array, Carry
from millstream.core.spec import Box, EnvSpec


class Twins:
    """For actions in a box with bounds. `outputs` numbers of the policy stand for each number of an action."""

    recurrent = False
    images = False

    def __init__(
        self,
        spec: EnvSpec,
        outputs: int,
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        device: str = "cpu",
    ):
        action = spec.action
        assert isinstance(action, Box)
        self.width, self.actions = Features(spec).width, action.width
        low, high = (np.asarray(edge, np.float32).reshape(-1) for edge in action.bounds())
        self.middle, self.reach = (low + high) / 2, (high - low) / 2
        self.outputs = outputs * action.width
        self.shape: dict[str, Any] = {"hidden": tuple(hidden), "activation": activation}
        self.player = Mlp(self.width, self.outputs, **self.shape, shared=True)
        self.judge = Mlp(self.width + self.actions, 1, **self.shape)
        self.device = device
        self.size = self.player.size + self.judge.size
        self._torch: Any = None

    def init(self, rng: Generator) -> Array:
        """Fresh weights of all three."""
        return self.place(np.concatenate([self.player.init(rng), self.judge.init(rng)]))

    def names(self, weights: Array) -> dict[str, Array]:
        """The flat vector as named tensors."""
        parts = self.parts(weights)
        found = {f"player.{name}": view for name, view in self.player.names(parts[0]).items()}
        return found | {f"judge.{name}": view for name, view in self.judge.names(parts[1]).items()}

    def parts(self, weights: Array) -> tuple[Array, Array]:
        """The policy's weights and the critics'."""
        return weights[: self.player.size], weights[self.player.size :]

    def place(self, array: Array) -> Array:
        """A tensor on the device."""
        return self.learning[0].place(array)

    def carry(self, slots: int) -> Carry:
        """Nothing is remembered."""
        return {}

    def act(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry, first: Array
    ) -> tuple[dict[str, Array], Carry]:
        """What the policy says, from its own weights alone."""
        return self.player.act(weights, inputs, {}, first)

    def plays(self, named: Mapping[str, Array], inputs: Mapping[str, Array]) -> Array:
        """What the policy says [N, outputs], with a graph behind it."""
        found: Array = self.learning[0].compute(named, inputs)["policy"]
        return found

    def judges(self, named: Mapping[str, Array], inputs: Mapping[str, Array], actions: Array) -> tuple[Array, Array]:
        """What the two critics think of actions between -1 and 1: [N] each."""
        joined = namespace(actions).concat([inputs[VECTOR], actions], axis=-1)
        outputs = self.learning[1].compute(named, {VECTOR: joined})
        return outputs["policy"][:, 0], outputs["value"]

    @property
    def learning(self) -> Any:
        """The same two networks in torch; made where there is something to learn."""
        if self._torch is None:
            from millstream.agents.networks.torch import TorchNetwork

            def of(width: int, outputs: int, shared: bool) -> TorchNetwork:
                spec = EnvSpec("numbers", {VECTOR: Box((width,))}, Box((1,)))
                return TorchNetwork(spec, outputs, **self.shape, shared=shared, device=self.device)

            self._torch = of(self.width, self.outputs, True), of(self.width + self.actions, 1, False)
        return self._torch
