"""What every algorithm with a policy and a value shares: its network, statistics, Adam. No algorithm is in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from millstream.agents import optimiser
from millstream.agents.adopting import adopted
from millstream.agents.distributions import for_space
from millstream.agents.features import Features
from millstream.agents.maths import following_values, namespace
from millstream.agents.networks.protocol import Network
from millstream.agents.normalise import Moments, RewardScale
from millstream.core.data import Array, Batch, Carry, Decision, Gradients, Params, Rollout
from millstream.core.errors import Diverged
from millstream.core.settings import setting
from millstream.core.spec import EnvSpec

ADOPTED = 10_000.0
"""How many observations the statistics of an adopted policy stand for: enough to hold, few enough to move."""


@dataclass(frozen=True)
class ActorCriticHyper:
    """Hyper-parameters of every algorithm with a policy and a value."""

    learning_rate: float = setting(3e-4, above=0, high=1, applies="learner")
    """Step size of Adam."""
    learning_rate_end: float | None = setting(None, low=0, high=1, applies="learner")
    """Where the step size goes, in a straight line over the run; none keeps it."""
    discount: float = setting(0.99, low=0, high=1, applies="learner")
    """How much a reward is worth one step later."""
    entropy: float = setting(0.0, low=0, high=10, applies="learner")
    """Weight of the entropy bonus."""
    entropy_end: float | None = setting(None, low=0, high=10, applies="learner")
    """Where that weight goes, in a straight line over the run; none keeps it."""
    value_weight: float = setting(0.5, low=0, high=100, applies="learner")
    """Weight of the value loss."""
    max_norm: float = setting(0.5, low=0, applies="learner")
    """Longest gradient; 0 means no limit."""
    normalise_observations: bool = setting(False)
    """Shift and scale observations by their running statistics."""
    normalise_rewards: bool = setting(False)
    """Scale rewards by the running spread of returns."""

    def at(self, progress: float) -> Any:
        """The values in force when this share of the run (0 to 1) is done."""
        changes = {}
        for name in ("learning_rate", "entropy"):
            start, end = getattr(self, name), getattr(self, f"{name}_end")
            if end is not None:
                changes[name] = start + (end - start) * min(max(progress, 0.0), 1.0)
        return replace(self, **changes) if changes else self


@dataclass
class Learnt:
    """All that learning changes."""

    weights: Array
    adam: optimiser.Adam
    observations: dict[str, Moments] = field(default_factory=dict)
    rewards: RewardScale = field(default_factory=RewardScale)


class ActorCritic:
    """Acting, statistics and the optimiser's step."""

    def __init__(self, spec: EnvSpec, network: Network, features: Features):
        self.spec, self.network, self.features = spec, network, features
        self.distribution = for_space(spec.action)
        self.grain: int | None = getattr(network, "grain", None)
        """Rows that are worth a thread of their own, where each costs much; None: as usual."""

    def init(self, seed: int) -> Learnt:
        """Fresh weights and empty statistics."""
        weights = self.network.init(default_rng([seed, 0]))
        moments = {name: Moments.of(self.spec.observations[name].shape) for name in self.features.normal}
        return Learnt(weights, optimiser.Adam.fresh(weights), moments)

    def adopt(self, state: Learnt, params: Params) -> Learnt:
        """Start from the weights of a trained policy of the same shape."""
        adopted(state.weights, params.tensors["weights"], self.network.place)
        for name, moments in state.observations.items():
            if f"mean/{name}" in params.tensors:
                moments.mean = params.tensors[f"mean/{name}"].astype(np.float64)
                moments.variance = params.tensors[f"scale/{name}"].astype(np.float64) ** -2
                moments.count = ADOPTED
        return state

    def policy(self, state: Learnt, hyper: Any) -> Params:
        """A copy: the state goes on changing."""
        weights = state.weights
        plain = weights.copy() if isinstance(weights, np.ndarray) else weights.detach().cpu().numpy().copy()
        return Params({"weights": plain, **self._statistics(state, hyper)})

    def carry(self, params: Params, slots: int) -> Carry:
        """Earlier frames and recurrent state, all empty."""
        return {**self.features.carry(slots), **self.network.carry(slots)}

    def act(
        self,
        params: Params,
        observations: Mapping[str, Array],
        carry: Carry,
        first: Array,
        mask: Array | None,
        rng: Generator | None,
    ) -> tuple[Decision, Carry]:
        """Sample, or with no generator take the most probable action."""
        inputs, frames = self.features.observe(observations, carry, first, params.tensors)
        outputs, memory = self.network.act(params.tensors["weights"], inputs, carry, first)
        actions, log_prob = self.distribution.sample(outputs, mask, rng)
        extras = {"log_prob": log_prob.astype(np.float32, copy=False), "value": outputs["value"].copy()}
        return Decision(actions, extras), {**frames, **memory}

    def apply(self, state: Learnt, gradients: Gradients, hyper: Any) -> Learnt:
        """Clip, then Adam, in place: the old state is used up. Numbers that are not finite never reach the weights."""
        clipped, norm = optimiser.clip(gradients, hyper.max_norm)
        if not np.isfinite(norm):
            raise Diverged(
                "a gradient is not finite: rewards or observations may be too large; "
                "try --set normalise_observations=true, normalise_rewards=true or a smaller learning_rate"
            )
        optimiser.adam(state.weights, clipped, state.adam, hyper.learning_rate)
        return state

    def _statistics(self, state: Learnt, hyper: Any) -> dict[str, np.ndarray]:
        """Means and scales, frozen, as actors get them."""
        if not hyper.normalise_observations:
            return {}
        found = {}
        for name, moments in state.observations.items():
            found[f"mean/{name}"] = moments.mean.astype(np.float32)
            found[f"scale/{name}"] = (1 / np.sqrt(moments.variance + 1e-8)).astype(np.float32)
        return found

    def _see(self, state: Learnt, rollout: Rollout, hyper: Any) -> None:
        """Move the statistics, after the batch was read with those its policy had."""
        if hyper.normalise_observations:
            for name, moments in state.observations.items():
                moments.see(rollout.observations[name][:-1][rollout.valid])

    def _rewards(self, state: Learnt, rollout: Rollout, hyper: Any) -> np.ndarray:
        if not hyper.normalise_rewards:
            return rollout.rewards
        state.rewards.see(rollout, hyper.discount)
        return state.rewards.apply(rollout.rewards)

    def _read(self, state: Learnt, rollout: Rollout, hyper: Any, anew: bool = False) -> dict[str, np.ndarray]:
        """Columns [T, B, ...] of one rollout, with what follows each step already known.

        Read `anew`, values are those of the present policy, and `log_ratio` says how far its probabilities are from
        those that the actions were drawn with.
        """
        statistics = self._statistics(state, hyper)
        stacked = self.features.unroll(rollout)
        inputs = self.features.inputs(stacked, statistics)
        drawn_with, now = rollout.extras["log_prob"], np.empty(rollout.rewards.shape, np.float32) if anew else None
        values, last, memory = self._values(state, rollout, inputs, now)
        finals = np.zeros_like(values)
        cut = rollout.truncated[tuple(rollout.final_at.T)]
        if cut.any():
            at = rollout.final_at[cut]
            ends = {name: rows[cut] for name, rows in self.features.finals(rollout, stacked).items()}
            carry = {name: state_[at[:, 0], at[:, 1]] for name, state_ in memory.items()}
            outputs, _ = self.network.act(
                state.weights, self.features.inputs(ends, statistics), carry, np.zeros(len(at), bool)
            )
            finals[tuple(at.T)] = outputs["value"]
        columns = {f"in/{name}": array for name, array in inputs.items()}
        return columns | {
            "actions": rollout.actions,
            "log_prob": drawn_with,
            **({} if now is None else {"log_ratio": now - drawn_with}),
            "rewards": self._rewards(state, rollout, hyper),
            "values": values,
            "next_values": following_values(values, last, rollout.terminated, rollout.truncated, finals),
            "continues": (~(rollout.terminated | rollout.truncated)).astype(np.float32),
            "valid": rollout.valid,
            "first": rollout.first,
            **({"mask": rollout.extras["mask"]} if "mask" in rollout.extras else {}),
            **{f"carry/{name}": array for name, array in rollout.carry.items() if not name.startswith("frames/")},
        }

    def _values(
        self, state: Learnt, rollout: Rollout, inputs: Mapping[str, Array], log_prob: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, Carry]:
        """Values [T, B], the one after the last step [B], and memory after each step [T, B, ...].

        With `log_prob` [T, B] none of it is the actor's: values are the present ones, and it is filled with theirs.
        """
        if log_prob is None and not self.network.recurrent:
            ends = {name: array[-1] for name, array in inputs.items()}
            outputs, _ = self.network.act(state.weights, ends, {}, rollout.first[-1])
            return rollout.extras["value"], outputs["value"].copy(), {}
        carry: Carry = {name: array for name, array in rollout.carry.items() if not name.startswith("frames/")}
        values, memory = np.empty(rollout.first.shape, np.float32), []
        for t, first in enumerate(rollout.first):
            outputs, carry = self.network.act(
                state.weights, {name: array[t] for name, array in inputs.items()}, carry, first
            )
            values[t] = outputs["value"]
            memory.append(carry)
            if log_prob is not None and t < rollout.steps:
                mask = rollout.extras["mask"][t] if "mask" in rollout.extras else None
                log_prob[t] = self.distribution.evaluate(outputs, rollout.actions[t], mask)[0]
        return values[:-1], values[-1], {name: np.stack([each[name] for each in memory[:-1]]) for name in carry}

    def _forward(self, state: Learnt, minibatch: Batch, sequences: bool) -> tuple[Mapping[str, Array], Any]:
        """Rows through the network; sequences [b, T, ...] answer as b * T rows."""
        inputs = {name[3:]: array for name, array in minibatch.items() if name.startswith("in/")}
        if sequences and self.network.recurrent:
            carry = {name[6:]: array for name, array in minibatch.items() if name.startswith("carry/")}
            return self.network.forward(state.weights, inputs, carry, minibatch["first"])
        if sequences:
            inputs = {name: rows(array) for name, array in inputs.items()}
        return self.network.forward(state.weights, inputs)


def rows(array: Array) -> Array:
    """[b, T, ...] -> [b * T, ...]."""
    return namespace(array).reshape(array, (array.shape[0] * array.shape[1], *array.shape[2:]))


def slots_first(array: Array) -> Array:
    """[T, B, ...] -> [B, T, ...]."""
    return np.ascontiguousarray(np.swapaxes(array, 0, 1))
