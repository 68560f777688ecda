"""Policies for use elsewhere: named tensors as safetensors, or the whole function from raw observations as ONNX."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from millstream import playing
from millstream.core.codec import encode_tensors
from millstream.core.errors import AgentError, ConfigError, MissingPart
from millstream.core.files import replace_durably
from millstream.core.spec import Box, Discrete, MultiDiscrete, Space
from millstream.playing import Player

OPSET, IR = 17, 8
"""Versions that runtimes of several years read."""
_OUTPUTS = ("action", "logits", "mean", "log_std", "value")
_LIMIT = 10.0  # agents/features.py cuts normalised numbers there


def export(run: Path, kind: str, out: str | Path | None = None, name: str | None = None) -> Path:
    """Write a run's policy as `safetensors` or `onnx`; the path of the file."""
    writers: dict[str, Callable[[Player], bytes]] = {"safetensors": safetensors, "onnx": onnx}
    if kind not in writers:
        raise ConfigError(f"a policy is exported as {' or '.join(writers)}, got {kind!r}")
    body = writers[kind](playing.load(run, name))
    path = Path(out) if out else run / "exports" / f"policy.{kind}"
    replace_durably(path, body)
    return path


def safetensors(player: Player) -> bytes:
    """Weights under the names of their layers, statistics of normalisation as they are, and what the policy is for."""
    tensors = player.policy.params.tensors
    network: Any = player.agent.network  # type: ignore[attr-defined]
    named = {key: np.ascontiguousarray(tensor) for key, tensor in network.names(tensors["weights"]).items()}
    named |= {key: tensor for key, tensor in tensors.items() if key != "weights"}
    return encode_tensors(named, about(player))


def about(player: Player) -> dict[str, str]:
    """What a file says of itself: algorithm, environment, spaces, network and version."""
    version = player.policy.version
    return {
        "format": "millstream",
        "algo": str(player.about["algo"]),
        "env": player.spec.id,
        "spec": json.dumps(player.about["spec"]),
        "network": json.dumps(player.about["network"]),
        "version": f"{version.epoch}.{version.number}",
    }


def onnx(player: Player) -> bytes:
    """The policy as a graph: raw observations in, parameters of the action distribution, greedy action and value out.

    Inputs bear the names of the observations, with a batch in front; where the policy sees a stack of frames, the
    frames come next, oldest first. A policy that remembers takes `lstm_h` and `lstm_c` and gives them back as
    `lstm_h_next` and `lstm_c_next`; zeros open an episode. Action masks are the caller's: set the logits of what is
    not legal to a large negative number.
    """
    try:
        from onnx import checker, helper
    except ImportError as error:
        raise MissingPart.of("onnx", "onnx") from error
    graph = _Graph()
    _Policy(player, graph).draw()
    made = helper.make_graph(graph.nodes, "policy", graph.inputs, graph.outputs, graph.constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="millstream"
    )
    helper.set_model_props(model, about(player))
    checker.check_model(model)
    body: bytes = model.SerializeToString()
    return body


class _Graph:
    """Nodes one after another; each call gives the name of what it computes."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.several(kind, 1, *inputs, **attributes)[0]

    def several(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        from onnx import helper

        names = [f"{kind.lower()}_{len(self.nodes)}_{index}" for index in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype), name))
        return name

    def tensor(self, name: str, value: Any) -> str:
        """A constant under a name of its own: the weights of a layer."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))
        return name

    def take(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """An input, with a batch of any size in front."""
        from onnx import helper

        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        return name

    def give(self, name: str, value: str, shape: tuple[int | str, ...], dtype: str = "float32") -> None:
        """An output."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [value], [name]))
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(helper.make_tensor_value_info(name, kind, list(shape)))

    def number(self, value: str) -> str:
        """The same as float32."""
        from onnx import TensorProto

        return self("Cast", value, to=TensorProto.FLOAT)

    def shaped(self, value: str, *shape: int) -> str:
        """The same numbers in another shape; -1 is the batch."""
        return self("Reshape", value, self.constant(shape, np.int64))


class _Policy:
    """Draws one player's policy, stage by stage, as `Features`, `Mlp` and `TorchNetwork` compute it."""

    def __init__(self, player: Player, graph: _Graph) -> None:
        self.spec, self.agent, self.graph = player.spec, player.agent, graph
        self.network: Any = player.agent.network  # type: ignore[attr-defined]
        self.features: Any = player.agent.features  # type: ignore[attr-defined]
        self.tensors, self.hyper = player.policy.params.tensors, player.policy.params.hyper
        if not type(self.network).__module__.startswith("millstream."):
            kind = f"{type(self.network).__module__}:{type(self.network).__name__}"
            raise AgentError(f"only Millstream's own networks can be written as ONNX, this is {kind}; try safetensors")
        self.named = {key: np.asarray(value) for key, value in self.network.names(self.tensors["weights"]).items()}
        self.pictures: dict[str, Any] = getattr(self.network, "pictures", {})

    def draw(self) -> None:
        """From the observations to the outputs."""
        seen = {name: self.graph.take(_input(name), space.dtype, self._shape(space)) for name, space in self._spaces()}
        parts = [self._numbers(name, space, seen[name]) for name, space in self.features.flat.items()]
        parts += [self._picture(name, seen[name.removeprefix("image/")]) for name in self.pictures]
        encoded = parts[0] if len(parts) == 1 else self.graph("Concat", *parts, axis=1)
        if self.network.recurrent:
            encoded = self._remember(encoded)
        self._decide(encoded)

    def _spaces(self) -> list[tuple[str, Space]]:
        return list(self.spec.observations.items())

    def _shape(self, space: Space) -> tuple[int, ...]:
        return (self.spec.stack, *space.shape) if self.spec.stack > 1 else tuple(space.shape)

    # --- what is seen ------------------------------------------------------------------------------------------------

    def _numbers(self, name: str, space: Space, raw: str) -> str:
        graph, width = self.graph, self.spec.stack * space.width
        if not isinstance(space, Box):
            return graph.shaped(self._one_hot(space, raw), -1, width)
        value = graph.number(raw)
        if f"mean/{name}" in self.tensors:
            shift = graph.tensor(f"{name}.mean", self.tensors[f"mean/{name}"])
            scale = graph.tensor(f"{name}.scale", self.tensors[f"scale/{name}"])
            value = graph("Mul", graph("Sub", value, shift), scale)
            value = graph("Clip", value, graph.constant(-_LIMIT), graph.constant(_LIMIT))
        elif space.is_image:
            value = graph("Mul", value, graph.constant(1 / 255))
        return graph.shaped(value, -1, width)

    def _one_hot(self, space: Discrete | MultiDiscrete, raw: str) -> str:
        """[batch * stack, choices]: each number against all that it could be."""
        graph = self.graph
        sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
        columns = graph.shaped(raw, -1, len(sizes))
        hot = []
        for index, size in enumerate(sizes):
            column = graph("Gather", columns, graph.constant([index], np.int64), axis=1)
            hot.append(graph.number(graph("Equal", column, graph.constant(np.arange(size), np.int64))))
        return hot[0] if len(hot) == 1 else graph("Concat", *hot, axis=1)

    def _picture(self, name: str, raw: str) -> str:
        graph, picture = self.graph, self.pictures[name]
        value = graph.number(raw)
        if len(picture.shape) == 3 and not picture.channels_first:  # the last axis before the other two of an image
            lead = 1 + (self.spec.stack > 1)
            value = graph("Transpose", value, perm=[*range(lead), lead + 2, lead, lead + 1])
        value = graph("Mul", graph.shaped(value, -1, *picture.dimensions), graph.constant(1 / 255))
        for index, layer in enumerate(picture.layers):
            weights = (self._weight(f"{name}.conv.{index}.{part}") for part in ("weight", "bias"))
            side = {"strides": [layer.stride] * 2, "pads": [layer.padding] * 4}
            value = graph("Relu", graph("Conv", value, *weights, **side))
        flat = graph.shaped(value, -1, picture.flat)
        return graph(
            "Relu", graph("Gemm", flat, *(self._weight(f"{name}.dense.{part}") for part in ("weight", "bias")))
        )

    # --- what is remembered ------------------------------------------------------------------------------------------

    def _remember(self, encoded: str) -> str:
        graph, width = self.graph, self.network.memory
        h, c = (graph.take(name, "float32", (width,)) for name in ("lstm_h", "lstm_c"))
        gates = graph("Gemm", encoded, self._weight("lstm.input.weight"), self._weight("lstm.bias"), transB=1)
        gates = graph("Gemm", h, self._weight("lstm.memory.weight"), gates, transB=1)
        take, keep, news, show = graph.several("Split", 4, gates, axis=1)
        kept = graph("Mul", graph("Sigmoid", keep), c)
        c = graph("Add", kept, graph("Mul", graph("Sigmoid", take), graph("Tanh", news)))
        h = graph("Mul", graph("Sigmoid", show), graph("Tanh", c))
        graph.give("lstm_h_next", h, ("batch", width))
        graph.give("lstm_c_next", c, ("batch", width))
        return h

    # --- what is decided ---------------------------------------------------------------------------------------------

    def _decide(self, encoded: str) -> None:
        graph, layers = self.graph, sum(name.startswith("hidden.") for name in self.named) // 2
        towers = [self._tower(encoded, layers, index) for index in range(self.network.towers)]
        policy = graph("Gemm", towers[0], self._weight("policy.weight"), self._weight("policy.bias"))
        value = graph("Gemm", towers[-1], self._weight("value.weight"), self._weight("value.bias"))
        self._act(self._means(policy) if self.hyper.get("atoms", 1) > 1 else policy)
        graph.give("value", graph.shaped(value, -1), ("batch",))

    def _tower(self, below: str, layers: int, tower: int) -> str:
        graph, bend = self.graph, "Tanh" if self._tanh else "Relu"
        for index in range(layers):
            weight, bias = (f"hidden.{index}.{part}" for part in ("weight", "bias"))
            inner = graph.tensor(f"{weight}.{tower}", self.named[weight][tower])
            below = graph(
                bend, graph("Gemm", below, inner, graph.tensor(f"{bias}.{tower}", self.named[bias][tower, 0]))
            )
        return below

    @property
    def _tanh(self) -> bool:
        activation = getattr(self.network, "activation", None)
        return activation == "tanh" if activation else self.network._bend.__name__ == "tanh"

    def _means(self, said: str) -> str:
        """Distributions over returns as their means, one an action, as `agents/worth.py` computes them."""
        graph, atoms, dueling = self.graph, int(self.hyper["atoms"]), int(self.hyper["dueling"])
        actions = self.spec.action.width
        logits = graph.shaped(said, -1, actions + dueling, atoms)
        if dueling:
            advantages, state = graph.several("Split", 2, logits, graph.constant((actions, 1), np.int64), axis=1)
            mean = graph("ReduceMean", advantages, axes=[1], keepdims=1)
            logits = graph("Sub", graph("Add", state, advantages), mean)
        support = graph.constant(np.linspace(self.hyper["v_min"], self.hyper["v_max"], atoms)[:, None])
        return graph.shaped(graph("MatMul", graph("Softmax", logits, axis=2), support), -1, actions)

    def _act(self, policy: str) -> None:
        """The distribution's parameters, and the most probable action where no mask forbids it."""
        graph, action = self.graph, self.spec.action
        if isinstance(action, Box):
            graph.give("mean", policy, ("batch", action.width))
            graph.give("log_std", self._weight("log_std"), (action.width,))
            low, high = (graph.constant(edge) for edge in action.bounds())
            within = graph("Min", graph("Max", graph.shaped(policy, -1, *action.shape), low), high)
            graph.give("action", within, ("batch", *action.shape))
            return
        graph.give("logits", policy, ("batch", action.width))
        if self.spec.masked:
            return
        if isinstance(action, Discrete):
            graph.give("action", graph("ArgMax", policy, axis=1, keepdims=0), ("batch",), "int64")
            return
        sizes = graph.constant(action.nvec, np.int64)
        parts = graph.several("Split", len(action.nvec), policy, sizes, axis=1)
        best = [graph("ArgMax", part, axis=1, keepdims=1) for part in parts]
        graph.give("action", graph("Concat", *best, axis=1), ("batch", len(best)), "int64")

    def _weight(self, name: str) -> str:
        return self.graph.tensor(_input(name), self.named[name])


def _input(name: str) -> str:
    """The name of an observation or a weight, unless an output bears it already."""
    return f"{name}_in" if name in _OUTPUTS else name
