"""Networks where a gradient runs through critics into the action: a policy, and two critics of what it does.

Both are made of what there is. The policy is a perceptron with one tower; the critics are one with two towers that
reads observation and action side by side, and of which one tower answers as `policy`, the other as `value`. All weights
are one flat vector: first the policy's, then the critics'. Actors need the first part alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.agents.features import VECTOR, Features
from millstream.agents.maths import namespace
from millstream.agents.networks.mlp import Mlp
from millstream.agents.networks.registry import on_a_cpu
from millstream.core.data import Array, Carry
from millstream.core.errors import ConfigError
from millstream.core.spec import Box, EnvSpec


class Twins:
    """For actions in a box with bounds. `outputs` numbers of the policy stand for each number of an action."""

    recurrent = False
    images = False
    grain = 128
    """Rows that are worth a thread: each goes through seven passes."""

    def __init__(
        self,
        spec: EnvSpec,
        outputs: int,
        kind: str = "auto",
        hidden: Sequence[int] = (256, 256),
        activation: str = "relu",
        device: str = "cpu",
    ):
        action = spec.action
        assert isinstance(action, Box)
        if kind not in ("auto", "mlp", "torch"):
            raise ConfigError(f"critics of actions are made of mlp or torch, got the network {kind!r}; try auto")
        if kind == "mlp":
            on_a_cpu(device)
        self.width, self.actions = Features(spec).width, action.width
        low, high = (np.asarray(edge, np.float32).reshape(-1) for edge in action.bounds())
        self.middle, self.reach = (low + high) / 2, (high - low) / 2
        self.outputs = outputs * action.width
        self.shape: dict[str, Any] = {"hidden": tuple(hidden), "activation": activation}
        self.player = Mlp(self.width, self.outputs, **self.shape, shared=True)
        self.judge = Mlp(self.width + self.actions, 1, **self.shape)
        self.kind, self.device = kind if device == "cpu" else "torch", device
        self.size = self.player.size + self.judge.size
        self._learning: Any = None

    def init(self, rng: Generator) -> Array:
        """Fresh weights of all three."""
        return self.place(np.concatenate([self.player.init(rng), self.judge.init(rng)]))

    def names(self, weights: Array) -> dict[str, Array]:
        """The flat vector as named tensors; of the policy alone where nothing else is given."""
        player, judge = self.parts(weights)
        found = {f"player.{name}": view for name, view in self.player.names(player).items()}
        if len(judge):
            found |= {f"judge.{name}": view for name, view in self.judge.names(judge).items()}
        return found

    def parts(self, weights: Array) -> tuple[Array, Array]:
        """The policy's weights and the critics'."""
        return weights[: self.player.size], weights[self.player.size :]

    def place(self, array: Array) -> Array:
        """An array put where gradients are computed."""
        return self.learning[0].place(array)

    def carry(self, slots: int) -> Carry:
        """Nothing is remembered."""
        return {}

    def act(
        self, weights: Array, inputs: Mapping[str, Array], carry: Carry, first: Array
    ) -> tuple[dict[str, Array], Carry]:
        """What the policy says, from its own weights alone."""
        return self.player.act(weights, inputs, {}, first)

    def plays(self, weights: Array, inputs: Mapping[str, Array]) -> tuple[Array, Any]:
        """What the policy says [N, outputs], and a tape."""
        outputs, tape = self.learning[0].forward(weights, inputs)
        return outputs["policy"], tape

    def judges(self, weights: Array, inputs: Mapping[str, Array], actions: Array) -> tuple[Array, Array, Any]:
        """What the two critics think of actions between -1 and 1: [N] each, and a tape."""
        joined = namespace(actions).concat([inputs[VECTOR], actions], axis=-1)
        outputs, tape = self.learning[1].forward(weights, {VECTOR: joined})
        return outputs["policy"][:, 0], outputs["value"], tape

    def teach_player(self, tape: Any, slope: Array, gradient: Array) -> None:
        """Write the gradient at the policy's weights from that at what it says."""
        nothing = namespace(slope).zeros_like(slope[:, 0])
        self.learning[0].backward(tape, {"policy": slope, "value": nothing}, self.parts(gradient)[0])

    def teach_judges(self, tape: Any, one: Array, other: Array, gradient: Array) -> None:
        """Write the gradient at the critics' weights from those at what they think."""
        self.learning[1].backward(
            tape, {"policy": one[:, None], "value": other}, gradient[self.player.size : self.size]
        )

    def slopes(self, tape: Any, one: Array, other: Array) -> Array:
        """The gradient at the actions from those at what critics think of them."""
        return self.learning[1].slopes(tape, {"policy": one[:, None], "value": other})[:, self.width :]

    @property
    def learning(self) -> Any:
        """Policy and critics as they learn; those of torch are made where there is something to learn."""
        if self._learning is None:
            self._learning = self._in_torch() if self.kind == "torch" else (self.player, self.judge)
        return self._learning

    def _in_torch(self) -> Any:
        from millstream.agents.networks.torch import TorchNetwork

        def of(width: int, outputs: int, shared: bool) -> TorchNetwork:
            spec = EnvSpec("numbers", {VECTOR: Box((width,))}, Box((1,)))
            return TorchNetwork(spec, outputs, **self.shape, shared=shared, device=self.device)

        return of(self.width, self.outputs, True), of(self.width + self.actions, 1, False)
