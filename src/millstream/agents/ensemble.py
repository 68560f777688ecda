"""Several agents of one algorithm as one: each learns, in training each leads some slots, in judgement they vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import Generator

from millstream.core.data import Array, Batch, Carry, Decision, Gradients, Lesson, Params, Rollout
from millstream.core.errors import CheckpointError, ConfigError
from millstream.core.ports import Agent
from millstream.core.spec import Box


class Ensemble:
    """Members start from seeds of their own. Those that learn from a table all learn from every step that was picked;
    the others from the slots that they led."""

    def __init__(self, members: Sequence[Agent[Any]]):
        if len(members) < 2:
            raise ConfigError(f"an ensemble has at least 2 members, got {len(members)}")
        if any(getattr(member, "network", None) and member.network.recurrent for member in members):  # type: ignore[attr-defined]
            raise ConfigError("members of an ensemble have no memory; try --network auto")
        first: Any = members[0]
        self.members, self.spec, self.Hyper = list(members), first.spec, first.Hyper
        self.window, self.max_lag, self.sequences = first.window, first.max_lag, first.sequences
        self.replayed = bool(getattr(first, "replayed", False))
        self.grain: int | None = getattr(first, "grain", None)
        if hasattr(first, "priorities"):
            self.priorities = self._priorities
        self.disagreement: float | None = None
        """Of the last judgement, on average over its slots: the share of members outvoted, or the spread of means."""

    def init(self, seed: int) -> dict[str, Any]:
        """A state for each."""
        return {str(index): member.init(seed + 1_000 * index) for index, member in enumerate(self.members)}

    def policy(self, state: Mapping[str, Any], hyper: Any) -> Params:
        """All members' parameters, each under its number."""
        found = [member.policy(state[str(index)], hyper) for index, member in enumerate(self.members)]
        tensors = {
            f"{index}/{name}": array for index, params in enumerate(found) for name, array in params.tensors.items()
        }
        return Params(tensors, found[0].hyper)

    def carry(self, params: Params, slots: int) -> Carry:
        """Earlier frames; the same for all."""
        return self.members[0].carry(self._params(params, 0), slots)

    def act(
        self,
        params: Params,
        observations: Mapping[str, Array],
        carry: Carry,
        first: Array,
        mask: Array | None,
        rng: Generator | None,
    ) -> tuple[Decision, Carry]:
        """With a generator each member leads its own slots; without one all of them choose everywhere, and agree."""
        if rng is None:
            return self._agree(params, observations, carry, first, mask)
        if len(first) < len(self.members):
            raise ConfigError(f"{len(self.members)} members lead at least a slot each, there are {len(first)}")
        parts: list[tuple[Any, Decision, Carry]] = []
        for index, member in enumerate(self.members):
            mine = self._slots(index)
            cut = {name: array[mine] for name, array in observations.items()}
            held = {name: array[mine] for name, array in carry.items()}
            legal = None if mask is None else mask[mine]
            parts.append((mine, *member.act(self._params(params, index), cut, held, first[mine], legal, rng)))
        actions = _woven([(mine, decision.actions) for mine, decision, _ in parts], len(first))
        names, kept = parts[0][1].extras, parts[0][2]
        extras = {name: _woven([(mine, each.extras[name]) for mine, each, _ in parts], len(first)) for name in names}
        held = {name: _woven([(mine, each[name]) for mine, _, each in parts], len(first)) for name in kept}
        return Decision(actions, extras), held

    def prepare(self, state: dict[str, Any], rollouts: Sequence[Rollout], hyper: Any) -> tuple[dict[str, Any], Batch]:
        """Columns of each member under its number; all have as many rows."""
        columns: dict[str, Array] = {}
        for index, member in enumerate(self.members):
            mine = rollouts if self.replayed else [self._led(rollout, index) for rollout in rollouts]
            state[str(index)], batch = member.prepare(state[str(index)], mine, hyper)
            columns |= {f"{index}/{name}": array for name, array in batch.items()}
        return state, columns | {name: columns[f"0/{name}"] for name in ("actions", "valid") if f"0/{name}" in columns}

    def gradients(self, state: Mapping[str, Any], minibatch: Batch, hyper: Any) -> tuple[Gradients, Lesson]:
        """Every member's, one after the other; the lesson is their mean."""
        found = [
            member.gradients(state[str(index)], _part(minibatch, index), hyper)
            for index, member in enumerate(self.members)
        ]
        lesson = {name: float(np.mean([each[name] for _, each in found])) for name in found[0][1]}
        return np.concatenate([np.asarray(gradients) for gradients, _ in found]), lesson

    def apply(self, state: dict[str, Any], gradients: Gradients, hyper: Any) -> dict[str, Any]:
        """Each with its own optimiser."""
        for index, (member, part) in enumerate(zip(self.members, np.split(gradients, len(self.members)), strict=True)):
            state[str(index)] = member.apply(state[str(index)], part, hyper)
        return state

    def adopt(self, state: dict[str, Any], params: Params) -> dict[str, Any]:
        """Start from the weights of another ensemble of as many members."""
        for index, member in enumerate(self.members):
            theirs = self._params(params, index)
            if not theirs.tensors or f"{len(self.members)}/weights" in params.tensors:
                raise CheckpointError(f"this ensemble has {len(self.members)} members, the policy has other ones")
            state[str(index)] = member.adopt(state[str(index)], theirs)  # type: ignore[attr-defined]
        return state

    def _priorities(self, state: Mapping[str, Any], batch: Batch, hyper: Any) -> np.ndarray:
        """How much each step surprises the members, on average."""
        members: list[Any] = self.members
        found = [each.priorities(state[str(index)], _part(batch, index), hyper) for index, each in enumerate(members)]
        return np.asarray(np.mean(found, axis=0))

    def _agree(
        self, params: Params, observations: Mapping[str, Array], carry: Carry, first: Array, mask: Array | None
    ) -> tuple[Decision, Carry]:
        chosen, held = [], carry
        for index, member in enumerate(self.members):
            decision, held = member.act(self._params(params, index), observations, carry, first, mask, None)
            chosen.append(np.asarray(decision.actions))
        stack = np.stack(chosen)  # [members, B, *act]
        if isinstance(self.spec.action, Box):
            actions, doubt = stack.mean(axis=0), stack.std(axis=0).reshape(len(first), -1).mean(axis=1)
        else:
            actions, doubt = _vote(stack)
        self.disagreement = float(doubt.mean())
        return Decision(actions.astype(stack.dtype), {"disagreement": doubt.astype(np.float32)}), held

    def _led(self, rollout: Rollout, index: int) -> Rollout:
        """The slots of a rollout that one member led."""
        if rollout.slots % len(self.members):
            raise ConfigError(
                f"{len(self.members)} members lead as many slots each: envs_per_worker should be a multiple of that, "
                f"got {rollout.slots}"
            )
        mine, count = self._slots(index), len(self.members)
        ends = rollout.final_at[:, 1] % count == index
        at = rollout.final_at[ends].copy()
        at[:, 1] //= count
        return replace(
            rollout,
            observations={name: array[:, mine] for name, array in rollout.observations.items()},
            finals={name: array[ends] for name, array in rollout.finals.items()},
            final_at=at,
            carry={name: array[mine] for name, array in rollout.carry.items()},
            extras={name: array[:, mine] for name, array in rollout.extras.items()},
            **{
                name: getattr(rollout, name)[:, mine]
                for name in ("actions", "rewards", "terminated", "truncated", "first", "valid")
            },
        )

    def _slots(self, index: int) -> slice:
        return slice(index, None, len(self.members))

    def _params(self, params: Params, index: int) -> Params:
        return Params(_part(params.tensors, index), params.hyper)


def _part(columns: Mapping[str, Array], index: int) -> dict[str, Array]:
    prefix = f"{index}/"
    return {name[len(prefix) :]: array for name, array in columns.items() if name.startswith(prefix)}


def _woven(parts: Sequence[tuple[slice, Array]], slots: int) -> np.ndarray:
    """Parts of slots, each put where it belongs."""
    first = np.asarray(parts[0][1])
    whole = np.empty((slots, *first.shape[1:]), first.dtype)
    for mine, array in parts:
        whole[mine] = array
    return whole


def _vote(stack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What most members chose, of equals the first member's; and the share that chose otherwise."""
    flat = stack.reshape(*stack.shape[:2], -1)  # [members, B, parts]
    votes = (flat[:, None] == flat[None]).all(axis=-1).sum(axis=1)  # [members, B]: how many chose as each did
    winner = votes.argmax(axis=0)
    rows = np.arange(stack.shape[1])
    return stack[winner, rows], 1 - votes[winner, rows] / len(stack)
