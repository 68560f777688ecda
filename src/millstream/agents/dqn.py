"""Deep Q-learning (Mnih et al. 2015), with what made it better since.

The value of each action is learnt from single steps that are picked from a large table, again and again:

    L = importance * huber(R + discount^n * max_a Q_target(s', a) - Q(s, a))

`double` lets the network itself choose the action that the target network judges (van Hasselt et al. 2016), `dueling`
splits Q into the value of a state and the advantage of each action (Wang et al. 2016), `n_step` looks further ahead,
and `prioritised` picks what surprised more often (Schaul et al. 2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, default_rng

from millstream.agents import optimiser
from millstream.agents.features import Features
from millstream.agents.maths import namespace
from millstream.agents.networks.protocol import Network
from millstream.core.data import Array, Batch, Carry, Decision, Gradients, Lesson, Params, Rollout
from millstream.core.errors import ConfigError, Diverged
from millstream.core.settings import setting
from millstream.core.spec import Discrete, EnvSpec


@dataclass(frozen=True)
class DQNHyper:
    """Hyper-parameters of DQN."""

    learning_rate: float = setting(1e-3, above=0, high=1, applies="learner")
    """Step size of Adam."""
    learning_rate_end: float | None = setting(None, low=0, high=1, applies="learner")
    """Where the step size goes, in a straight line over the run; none keeps it."""
    discount: float = setting(0.99, low=0, high=1, applies="learner")
    """How much a reward is worth one step later."""
    minibatch: int = setting(64, low=1, applies="learner")
    """Steps in one gradient."""
    gradients: int = setting(16, low=1, high=10_000, applies="learner")
    """Gradients between two policies, each of a minibatch of its own."""
    double: bool = setting(True, applies="learner")
    """Whether the network chooses the action that the target network judges."""
    dueling: bool = setting(False)
    """Whether Q is the value of a state plus the advantage of an action."""
    n_step: int = setting(1, low=1, high=100)
    """How many steps of reward a target sums before it trusts the target network."""
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
    capacity: int = setting(100_000, low=1)
    """Steps that the table holds."""
    learning_starts: int = setting(1_000, low=1)
    """Steps in the table before the first is learnt from."""
    samples_per_step: float = setting(8.0, above=0)
    """How often each step is learnt from, on average."""
    prioritised: bool = setting(False)
    """Whether steps that surprised are picked more often."""
    priority_exponent: float = setting(0.6, low=0, high=10)
    """How much more: 0 not at all, 1 in proportion to the surprise."""
    importance: float = setting(0.4, low=0, high=1)
    """How far the picking is corrected for in the loss."""

    epochs = 1

    def at(self, progress: float) -> DQNHyper:
        """The values in force when this share of the run (0 to 1) is done."""
        done = min(max(progress, 0.0), 1.0)
        rate, end = self.learning_rate, self.learning_rate_end
        explored = min(done / self.exploration, 1.0)
        return replace(
            self,
            learning_rate=rate if end is None else rate + (end - rate) * done,
            epsilon=self.epsilon + (self.epsilon_end - self.epsilon) * explored,
        )


@dataclass
class Learnt:
    """All that learning changes."""

    weights: Array
    target: Array
    adam: optimiser.Adam


class DQN:
    """Q-learning from a table."""

    Hyper = DQNHyper
    window = 4
    """Rollouts an actor may be ahead: the table copies them at once."""
    max_lag: int | None = None
    sequences = False
    replayed = True
    """Learns from a table, not from each rollout once."""

    def __init__(self, spec: EnvSpec, network: Network, features: Features):
        if not isinstance(spec.action, Discrete):
            raise ConfigError(f"DQN chooses one of several actions, {spec.id} wants {spec.action}; try --algo ppo")
        if network.recurrent:
            raise ConfigError("DQN learns from single steps, a network with memory needs more; try --network auto")
        self.spec, self.network, self.features = spec, network, features
        self.grain: int | None = getattr(network, "grain", None)
        self.actions = spec.action.n

    def init(self, seed: int) -> Learnt:
        """Fresh weights; the target network starts equal."""
        weights = self.network.init(default_rng([seed, 0]))
        return Learnt(weights, namespace(weights).asarray(weights, copy=True), optimiser.Adam.fresh(weights))

    def policy(self, state: Learnt, hyper: DQNHyper) -> Params:
        """A copy: the state goes on changing."""
        weights = state.weights
        plain = weights.copy() if isinstance(weights, np.ndarray) else weights.detach().cpu().numpy().copy()
        return Params({"weights": plain}, {"epsilon": hyper.epsilon, "dueling": float(hyper.dueling)})

    def carry(self, params: Params, slots: int) -> Carry:
        """Earlier frames, all empty."""
        return self.features.carry(slots)

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

    def prepare(self, state: Learnt, rollouts: Sequence[Rollout], hyper: DQNHyper) -> tuple[Learnt, Batch]:
        """Rewards of the steps that count are summed; what follows them is judged later."""
        parts = [self._read(rollout, hyper) for rollout in rollouts]
        batch = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return state, {name: self.network.place(array) for name, array in batch.items()}

    def gradients(self, state: Learnt, minibatch: Batch, hyper: DQNHyper) -> tuple[Gradients, Lesson]:
        """Targets first: a network's outputs live until its next call."""
        targets = self._targets(state, minibatch, hyper)
        outputs, tape = self.network.forward(state.weights, _group(minibatch, "in/"))
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
            state.target += hyper.target_rate * (state.weights - state.target)
        return state

    def priorities(self, state: Learnt, batch: Batch, hyper: DQNHyper) -> np.ndarray:
        """How much each step of a batch still surprises."""
        targets = self._targets(state, batch, hyper)
        outputs, _ = self.network.forward(state.weights, _group(batch, "in/"))
        found: np.ndarray = np.asarray(abs(self._chosen(outputs, batch["actions"], hyper) - targets)) + 1e-6
        return found

    def _read(self, rollout: Rollout, hyper: DQNHyper) -> dict[str, np.ndarray]:
        """Rows of picked windows [n, B]: the first step, rewards from there on, what follows the last that counts."""
        now, after = self.features.ends(rollout)
        steps = rollout.valid.sum(axis=0)
        decay = hyper.discount ** np.arange(rollout.steps, dtype=np.float32)[:, None]
        over = rollout.terminated[np.maximum(steps, 1) - 1, np.arange(rollout.slots)]
        columns = {f"in/{name}": array for name, array in self.features.inputs(now, {}).items()}
        columns |= {f"next/{name}": array for name, array in self.features.inputs(after, {}).items()}
        if "mask" in rollout.extras:
            columns["mask"] = rollout.extras["mask"][-1]
        return columns | {
            "actions": rollout.actions[0],
            "returns": (rollout.rewards * decay * rollout.valid).sum(axis=0, dtype=np.float32),
            "discounts": np.where(over, 0, hyper.discount**steps).astype(np.float32),
        }

    def _targets(self, state: Learnt, minibatch: Batch, hyper: DQNHyper) -> Array:
        inputs = _group(minibatch, "next/")
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


def _group(batch: Batch, prefix: str) -> dict[str, Array]:
    return {name[len(prefix) :]: array for name, array in batch.items() if name.startswith(prefix)}
