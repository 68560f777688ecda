"""A trained policy in a user's hands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import default_rng

from millstream.agents import registry as agents
from millstream.core.data import Array, Carry, Policy
from millstream.core.errors import EnvError
from millstream.core.ports import Agent
from millstream.core.spec import SINGLE, Box, EnvSpec
from millstream.parameters import keeping


class Player:
    """Chooses actions for one observation or for many. Where the policy remembers, so does it; `reset` forgets."""

    def __init__(self, agent: Agent[Any], policy: Policy, about: Mapping[str, Any], seed: int = 0):
        self.agent, self.policy, self.about = agent, policy, dict(about)
        self._rng = default_rng(seed)
        self._carry: Carry | None = None
        self._fresh = True

    @property
    def spec(self) -> EnvSpec:
        """What it expects to see, and what it answers."""
        return self.agent.spec

    def reset(self) -> None:
        """A new episode begins."""
        self._carry, self._fresh = None, True

    def act(self, observation: Any, mask: Array | None = None, stochastic: bool = False) -> Any:
        """An action for one observation, or actions for a batch of them. The most probable ones unless `stochastic`."""
        many, rows = self._rows(observation)
        slots = len(next(iter(rows.values())))
        if self._carry is None or any(len(array) != slots for array in self._carry.values()):
            self._carry, self._fresh = self.agent.carry(self.policy.params, slots), True
        first = np.full(slots, self._fresh)
        masks = None if mask is None else self._masks(mask, slots)
        rng = self._rng if stochastic else None
        decision, self._carry = self.agent.act(self.policy.params, rows, self._carry, first, masks, rng)
        self._fresh = False
        actions = np.array(decision.actions)
        if isinstance(self.spec.action, Box):
            low, high = self.spec.action.bounds()
            actions = np.clip(actions, low, high).astype(self.spec.action.dtype)
        return actions if many else actions[0] if actions.ndim > 1 else actions[0].item()

    def _masks(self, mask: Any, slots: int) -> np.ndarray:
        found, width = np.asarray(mask, bool), self.spec.mask_width
        if found.shape not in ((slots, width), (width,) if slots == 1 else ()):
            raise EnvError(f"a mask should have shape {(slots, width)}, got {found.shape}")
        return found.reshape(slots, width)

    def _rows(self, observation: Any) -> tuple[bool, dict[str, np.ndarray]]:
        """Whether it is a batch, and the observations with slots leading."""
        given = observation if isinstance(observation, Mapping) else {SINGLE: observation}
        wanted = self.spec.observations
        if set(given) != set(wanted):
            raise EnvError(f"the policy expects {sorted(wanted)}, got {sorted(map(str, given))}")
        arrays = {name: _array(name, given[name], space.dtype) for name, space in wanted.items()}
        batched = set()
        for name, space in wanted.items():
            shape, inner = arrays[name].shape, tuple(space.shape)
            if shape != inner and shape[1:] != inner:
                raise EnvError(f"{name} should have shape {inner}, or that with a batch in front; got {shape}")
            batched.add(shape != inner)
        many = batched.pop()
        if batched or (many and len({len(array) for array in arrays.values()}) > 1):
            raise EnvError("some observations come in a batch and others alone, or in one of another size")
        return many, arrays if many else {name: array[None] for name, array in arrays.items()}


def _array(name: str, value: Any, dtype: str) -> np.ndarray:
    try:
        array = np.asarray(value, dtype=dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise EnvError(f"{name} should hold numbers of type {dtype}: {error}") from error
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise EnvError(f"{name} should hold finite numbers, got {array[~np.isfinite(array)].flat[0]}")
    return array


def load(run: str | Path, name: str | None = None) -> Player:
    """The policy of a run's folder: the best by evaluation, or the latest, or the one named."""
    policy, about = keeping.read(keeping.find(Path(run), name))
    spec = EnvSpec.from_json(about["spec"])
    return Player(agents.make(about["algo"], spec, about["network"], about.get("hyper")), policy, about)
