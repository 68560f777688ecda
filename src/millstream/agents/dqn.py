"""Deep Q-learning (Mnih et al. 2015), with what made it better since.

The value of each action is learnt from single steps that are picked from a large table, again and again:

    L = importance * huber(R + discount^n * max_a Q_target(s', a) - Q(s, a))

`double` lets the network itself choose the action that the target network judges (van Hasselt et al. 2016), `dueling`
splits Q into the value of a state and the advantage of each action (Wang et al. 2016), `n_step` looks further ahead,
`prioritised` picks what surprised more often (Schaul et al. 2016), and `atoms` learns how returns are distributed
rather than their mean (C51, Bellemare et al. 2017): `worth.py` has both ways of saying what an action is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from millstream.agents import optimiser
from millstream.agents.adopting import adopted
from millstream.agents.features import Features
from millstream.agents.maths import namespace
from millstream.agents.networks.protocol import Network
from millstream.agents.networks.registry import build
from millstream.agents.replayed import Replayed, ReplayedHyper, group, plain
from millstream.agents.worth import Compared, Worth, worth_of
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
    atoms: int = setting(1, low=1, high=1_000)
    """Numbers whose probabilities say what an action is worth, 51 in C51; 1 learns the mean alone."""
    v_min: float = setting(-10.0)
    """The lowest of them: no return should be lower."""
    v_max: float = setting(10.0)
    """The highest of them: no return should be higher."""

    def __post_init__(self) -> None:
        if self.v_min >= self.v_max:
            raise ConfigError(f"hyper.v_min should be below hyper.v_max, got {self.v_min:g} and {self.v_max:g}")

    def at(self, progress: float) -> DQNHyper:
        """The values in force when this share of the run (0 to 1) is done."""
        explored = min(max(progress, 0.0) / self.exploration, 1.0)
        epsilon = self.epsilon + (self.epsilon_end - self.epsilon) * explored
        return replace(super().at(progress), epsilon=epsilon)


_SHAPE: Mapping[str, float] = {"dueling": 0.0, "atoms": 1, "v_min": -1.0, "v_max": 1.0}
"""What says how outputs are read. An actor is told where there are atoms; the best of plain numbers is the largest."""


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
        super().__init__(spec, network, features)
        self.actions = _choices(spec)

    @classmethod
    def refuses(cls, spec: EnvSpec) -> str | None:
        """Why it cannot learn this, if it cannot."""
        return None if isinstance(spec.action, Discrete) else "chooses one of several actions"

    @classmethod
    def build(cls, spec: EnvSpec, hyper: DQNHyper, **network: Any) -> Network:
        """A network as wide as actions and atoms are many."""
        return build(spec, _worth(_choices(spec), vars(hyper)), **network)

    def init(self, seed: int) -> Learnt:
        """Fresh weights; the target network starts equal."""
        weights = self.network.init(default_rng([seed, 0]))
        return Learnt(weights, namespace(weights).asarray(weights, copy=True), optimiser.Adam.fresh(weights))

    def adopt(self, state: Learnt, params: Params) -> Learnt:
        """Start from the weights of a trained policy of the same shape."""
        for mine in (state.weights, state.target):
            adopted(mine, params.tensors["weights"], self.network.place)
        return state

    def policy(self, state: Learnt, hyper: DQNHyper) -> Params:
        """A copy: the state goes on changing."""
        shape = {name: float(getattr(hyper, name)) for name in _SHAPE} if hyper.atoms > 1 else {}
        return Params({"weights": plain(state.weights)}, {"epsilon": hyper.epsilon, **shape})

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
        values = _worth(self.actions, params.hyper).values(outputs)
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
        """The goal first: a network's outputs live until its next call."""
        worth = _worth(self.actions, vars(hyper))
        outputs, tape, found = self._compare(worth, state, minibatch, hyper)
        xp, share = namespace(found.slope), 1 / len(found.slope)
        slope = found.slope * share
        if "importance" in minibatch:
            weights = minibatch["importance"]
            slope = slope * xp.reshape(weights, (len(weights), *(1,) * (slope.ndim - 1)))
        lesson = {
            "loss": float(xp.sum(found.loss)) * share,
            "q_values": float(xp.sum(found.worth)) * share,
            "td_error": float(xp.sum(found.surprise)) * share,
        }
        return self.network.backward(tape, worth.backward(outputs, minibatch["actions"], slope)), lesson

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
        _, _, found = self._compare(_worth(self.actions, vars(hyper)), state, batch, hyper)
        surprise = found.surprise if isinstance(found.surprise, np.ndarray) else found.surprise.detach().cpu().numpy()
        return surprise + 1e-6

    def _compare(
        self, worth: Worth, state: Learnt, minibatch: Batch, hyper: DQNHyper
    ) -> tuple[Mapping[str, Array], Any, Compared]:
        """What is said of the steps against what should have been, with the outputs and their tape."""
        goal = self._goal(worth, state, minibatch, hyper)
        outputs, tape = self.network.forward(state.weights, group(minibatch, "in/"))
        return outputs, tape, worth.compare(outputs, minibatch["actions"], goal)

    def _goal(self, worth: Worth, state: Learnt, minibatch: Batch, hyper: DQNHyper) -> Array:
        inputs = group(minibatch, "next/")
        choice = None
        if hyper.double:
            outputs, _ = self.network.forward(state.weights, inputs)
            choice = _best(worth.values(outputs), minibatch)
        outputs, _ = self.network.forward(state.target, inputs)
        if choice is None:
            choice = _best(worth.values(outputs), minibatch)
        return worth.goal(outputs, choice, minibatch["returns"], minibatch["discounts"])


def _choices(spec: EnvSpec) -> int:
    assert isinstance(spec.action, Discrete)
    return spec.action.n


def _worth(actions: int, hyper: Mapping[str, Any]) -> Worth:
    """By the settings of a learner, or by those of them that an actor has."""
    dueling, atoms, low, high = (hyper.get(name, default) for name, default in _SHAPE.items())
    return worth_of(actions, bool(dueling), int(atoms), low, high)


def _best(values: Array, minibatch: Batch) -> Array:
    """The best action that is legal."""
    xp = namespace(values)
    if "mask" in minibatch:
        values = xp.where(minibatch["mask"], values, xp.full_like(values, -np.inf))
    return xp.argmax(values, axis=1)
