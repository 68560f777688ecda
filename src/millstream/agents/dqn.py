"""Deep Q-learning (Mnih et al. 2015), with what made it better since.

The value of each action is learnt from single steps that are picked from a large table, again and again:

    L = importance * huber(R + discount^n * max_a Q_target(s', a) - Q(s, a))

`double` lets the network itself choose the action that the target network judges (van Hasselt et al. 2016), `dueling`
splits Q into the value of a state and the advantage of each action (Wang et al. 2016), `n_step` looks further ahead,
and `prioritised` picks what surprised more often (Schaul et al. 2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, default_rng

from millstream.agents import optimiser
from millstream.agents.features import Features
from millstream.agents.maths import namespace
from millstream.agents.networks.protocol import Network
from millstream.agents.replayed import Replayed, ReplayedHyper, group, plain
from millstream.core.data import Array, Batch, Carry, Decision, Gradients, Lesson, Params
from millstream.core.errors import ConfigError, Diverged
from millstream.core.settings import setting
from millstream.core.spec import Discrete, EnvSpec


@dataclass(frozen=True)
class DQNHyper(ReplayedHyper):
    """Hyper-parameters of DQN."""

    double: bool = setting(True, applies="learner")
    """Whether the network chooses the action that the target network judges."""
    dueling: bool = setting(False)
    """Whether Q is the value of a state plus the advantage of an action."""
    target_every: int = setting(500, low=1, applies="learner")
    """Gradients between two moves of the target network."""
    target_rate: float = setting(1.0, above=0, high=1, applies="learner")
    """How far it moves towards the network; 1 copies it."""
    epsilon: float = setting(1.0, low=0, high=1, applies="actor")
    """How often an action is random at first."""
    epsilon_end: float = setting(0.05, low=0, high=1, applies="actor")
    """How often in the end."""
    exploration: float = setting(0.2, above=0, high=1, applies="actor")
    """The share of the run over which epsilon falls, in a straight line."""
    max_norm: float = setting(10.0, low=0, applies="learner")
    """Longest gradient; 0 means no limit."""

    def at(self, progress: float) -> DQNHyper:
        """The values in force when this share of the run (0 to 1) is done."""
        explored = min(max(progress, 0.0) / self.exploration, 1.0)
        epsilon = self.epsilon + (self.epsilon_end - self.epsilon) * explored
        return replace(super().at(progress), epsilon=epsilon)


@dataclass
class Learnt:
    """All that learning changes."""

    weights: Array
    target: Array
    adam: optimiser.Adam


class DQN(Replayed):
    """Q-learning from a table."""

    Hyper = DQNHyper

    def __init__(self, spec: EnvSpec, network: Network, features: Features):
        if not isinstance(spec.action, Discrete):
            raise ConfigError(f"DQN chooses one of several actions, {spec.id} wants {spec.action}; try --algo ppo")
        super().__init__(spec, network, features)
        self.actions = spec.action.n

    def init(self, seed: int) -> Learnt:
        """Fresh weights; the target network starts equal."""
        weights = self.network.init(default_rng([seed, 0]))
        return Learnt(weights, namespace(weights).asarray(weights, copy=True), optimiser.Adam.fresh(weights))

    def policy(self, state: Learnt, hyper: DQNHyper) -> Params:
        """A copy: the state goes on changing."""
        return Params({"weights": plain(state.weights)}, {"epsilon": hyper.epsilon})

    def act(
        self,
        params: Params,
        observations: Mapping[str, Array],
        carry: Carry,
        first: Array,
        mask: Array | None,
        rng: Generator | None,
    ) -> tuple[Decision, Carry]:
        """The best action; with a generator, now and then any that is legal."""
        inputs, frames = self.features.observe(observations, carry, first, {})
        outputs, _ = self.network.act(params.tensors["weights"], inputs, {}, first)
        values = outputs["policy"]
        if mask is not None:
            values = np.where(mask, values, -np.inf)
        actions = np.argmax(values, axis=1)
        if rng is not None:
            anyhow = rng.random(len(actions)) < params.hyper["epsilon"]
            luck = rng.random(values.shape)
            lucky = np.argmax(luck if mask is None else np.where(mask, luck, -1.0), axis=1)
            actions = np.where(anyhow, lucky, actions)
        return Decision(actions, {}), frames

    def gradients(self, state: Learnt, minibatch: Batch, hyper: DQNHyper) -> tuple[Gradients, Lesson]:
        """Targets first: a network's outputs live until its next call."""
        targets = self._targets(state, minibatch, hyper)
        outputs, tape = self.network.forward(state.weights, group(minibatch, "in/"))
        chosen = self._chosen(outputs, minibatch["actions"], hyper)
        xp = namespace(chosen)
        error = chosen - targets
        share = 1 / len(error)
        slope = xp.clip(error, -1.0, 1.0) * share
        if "importance" in minibatch:
            slope = slope * minibatch["importance"]
        size = abs(error)
        lesson = {
            "loss": float(xp.sum(xp.where(size < 1, 0.5 * error * error, size - 0.5))) * share,
            "q_values": float(xp.sum(chosen)) * share,
            "td_error": float(xp.sum(size)) * share,
        }
        return self.network.backward(tape, self._back(outputs, minibatch["actions"], slope, hyper)), lesson

    def apply(self, state: Learnt, gradients: Gradients, hyper: DQNHyper) -> Learnt:
        """Clip, then Adam, in place; now and then the target network follows."""
        clipped, norm = optimiser.clip(gradients, hyper.max_norm)
        if not np.isfinite(norm):
            raise Diverged(
                "a gradient is not finite: rewards or observations may be too large; try a smaller learning_rate"
            )
        optimiser.adam(state.weights, clipped, state.adam, hyper.learning_rate, epsilon=1e-8)
        if state.adam.count % hyper.target_every == 0:
            optimiser.follow(state.target, state.weights, hyper.target_rate)
        return state

    def priorities(self, state: Learnt, batch: Batch, hyper: DQNHyper) -> np.ndarray:
        """How much each step of a batch still surprises."""
        targets = self._targets(state, batch, hyper)
        outputs, _ = self.network.forward(state.weights, group(batch, "in/"))
        found: np.ndarray = np.asarray(abs(self._chosen(outputs, batch["actions"], hyper) - targets)) + 1e-6
        return found

    def _targets(self, state: Learnt, minibatch: Batch, hyper: DQNHyper) -> Array:
        inputs = group(minibatch, "next/")
        xp = namespace(minibatch["returns"])
        choice = None
        if hyper.double:
            outputs, _ = self.network.forward(state.weights, inputs)
            choice = xp.argmax(self._legal(outputs["policy"], minibatch), axis=1)
        outputs, _ = self.network.forward(state.target, inputs)
        if choice is None:
            choice = xp.argmax(self._legal(outputs["policy"], minibatch), axis=1)
        return minibatch["returns"] + minibatch["discounts"] * self._chosen(outputs, choice, hyper)

    def _legal(self, values: Array, minibatch: Batch) -> Array:
        if "mask" not in minibatch:
            return values
        xp = namespace(values)
        return xp.where(minibatch["mask"], values, xp.full_like(values, -np.inf))

    def _chosen(self, outputs: Mapping[str, Array], actions: Array, hyper: DQNHyper) -> Array:
        """Q of one action a row."""
        advantages = outputs["policy"]
        xp = namespace(advantages)
        found = xp.take_along_axis(advantages, actions[:, None], axis=1)[:, 0]
        if hyper.dueling:
            found = found + outputs["value"] - xp.mean(advantages, axis=1)
        return found

    def _back(self, outputs: Mapping[str, Array], actions: Array, slope: Array, hyper: DQNHyper) -> dict[str, Array]:
        """The slope at Q of those actions as slopes at the outputs."""
        advantages = outputs["policy"]
        xp = namespace(advantages)
        hot = actions[:, None] == xp.arange(self.actions, device=getattr(advantages, "device", None))[None]
        back = xp.where(hot, slope[:, None], xp.zeros_like(advantages))
        if not hyper.dueling:
            return {"policy": back, "value": xp.zeros_like(slope)}
        return {"policy": back - slope[:, None] / self.actions, "value": slope}
