"""Networks by kind. One's own joins as `module:Class`.

It is called with the arguments of `Mlp`; if its first is named `spec`, with those of `TorchNetwork`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any, Protocol

from millstream.agents.features import Features
from millstream.agents.networks.protocol import Network
from millstream.core.errors import ConfigError, UnknownName
from millstream.core.spec import Box, EnvSpec

KINDS = ("auto", "mlp", "torch", "lstm")
_ATTRIBUTES = ("size", "recurrent", "images", "init", "names", "place", "carry", "act", "forward", "backward")


class Head(Protocol):
    """What the outputs of a network are for."""

    @property
    def width(self) -> int:
        """How many numbers of `policy` it gives."""

    @property
    def spread(self) -> int:
        """How many numbers of `log_std` it keeps."""


def build(
    spec: EnvSpec,
    head: Head,
    kind: str = "auto",
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    memory: int = 64,
    device: str = "cpu",
) -> Network:
    """The network for a spec. `auto` is NumPy for numbers and torch for images."""
    pictures = any(isinstance(space, Box) and space.is_image for space in spec.observations.values())
    if kind == "auto":
        kind = "torch" if pictures or device != "cpu" else "mlp"
    heads: dict[str, Any] = {"outputs": head.width, "spread": head.spread}
    shape: dict[str, Any] = {"hidden": tuple(hidden), "activation": activation, "shared": shared}
    if kind == "mlp":
        on_a_cpu(device)
        from millstream.agents.networks.mlp import Mlp

        return Mlp(Features(spec).width, **heads, **shape)
    if kind in ("torch", "lstm"):
        from millstream.agents.networks.torch import TorchNetwork

        return TorchNetwork(spec, **heads, **shape, memory=memory if kind == "lstm" else 0, device=device)
    if ":" not in kind:
        raise UnknownName.of("network", kind, KINDS, "(your own: module:Class)")
    module, _, name = kind.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # the last two: no or a relative module
        raise UnknownName(f"the network {kind!r} cannot be found: {error}") from error
    if not callable(found):
        raise ConfigError(f"{kind} is not a network but {found!r}; name a class")
    signature = inspect.signature(found)
    first: Any = Features(spec).width
    given = {**heads, **shape}
    if next(iter(signature.parameters), "") == "spec":
        first, given = spec, {**given, "memory": memory, "device": device}
    try:
        signature.bind(first, **given)
    except TypeError as error:
        raise ConfigError(
            f"{kind} is not a network: it should take a width (or `spec`) and {', '.join(given)}: {error}"
        ) from error
    network: Network = found(first, **given)
    missing = [attribute for attribute in _ATTRIBUTES if not hasattr(network, attribute)]
    if missing:
        raise ConfigError(f"{kind} is not a network: it lacks {', '.join(missing)}; see networks/protocol.py")
    return network


def on_a_cpu(device: str) -> None:
    """Refuse any other device for networks in NumPy."""
    if device != "cpu":
        raise ConfigError(f"the network mlp computes on the CPU, not on {device!r}; try --network torch")
