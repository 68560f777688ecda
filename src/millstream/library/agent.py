"""A learning agent in a user's hands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.random import default_rng

from millstream import assembly
from millstream.agents import presets
from millstream.agents import registry as agents
from millstream.config import NetworkConfig
from millstream.core import settings
from millstream.core.clock import SystemClock
from millstream.core.data import Array, Carry, Decision, Gradients, Lesson, Params, Rollout, Stamp
from millstream.core.errors import ConfigError, RunError
from millstream.core.ports import Adopts, Agent, Clock, Snapshots
from millstream.core.spec import EnvSpec
from millstream.core.topics import Report
from millstream.learner.learner import Learner
from millstream.learner.pushing import Applying, Pushing
from millstream.learner.sources import Fresh, Picked
from millstream.wires.memory import MemoryPolicies

FOREVER = 1 << 62


class DistributedAgent:
    """An algorithm with all that it has learnt.

    environment: what it plays, or only its spec. algo: a name (`mill algos`), or `module:Class`.
    network: settings of its network, such as {"hidden": [256, 256]}; device: where torch computes.
    Hyper-parameters come by name, `learning_rate=1e-3`; those left out are the preset's for this environment, where
    there is one, or the algorithm's own.
    """

    by_name = True
    """Whether `algo` is enough to build it elsewhere."""

    def __init__(
        self,
        environment: Any,
        algo: str = "ppo",
        *,
        network: Mapping[str, Any] | None = None,
        device: str = "cpu",
        seed: int = 1,
        **hyper: Any,
    ):
        spec = getattr(environment, "spec", environment)
        if not isinstance(spec, EnvSpec):
            raise ConfigError(f"an agent is made for an environment, or for its spec; got {environment!r}")
        self.spec, self.algo, self.seed, self.device = spec, algo, seed, device
        known = presets.preset(spec.id, algo)
        self.network = {**known.get("network", {}), **(network or {}), "device": device}
        self.hyper = settings.parse(agents.find(algo).Hyper, {**known.get("hyper", {}), **hyper}, "hyper")
        self.algorithm: Any = self._algorithm()
        self.state = self.algorithm.init(seed)
        self.policies: MemoryPolicies | None = None
        """Where it publishes to, if not to the parameter server itself."""
        self._rng = default_rng([seed, assembly.LEARNER])
        self._learner: Learner | None = None
        self._source: Any = None
        self._reports: deque[Report] = deque(maxlen=1024)
        self._gone_on: Mapping[str, Any] | None = None

    # --- acting ------------------------------------------------------------------------------------------------------

    @property
    def replayed(self) -> bool:
        """Whether it learns from old steps again and again, rather than from each rollout once."""
        return bool(getattr(self.algorithm, "replayed", False))

    @property
    def releases(self) -> bool:
        """Whether it gives rollouts back itself, after the update that used them."""
        return not self.replayed

    def parameters(self) -> Params:
        """All that is needed to act: weights, and statistics that go with them."""
        return self.algorithm.policy(self._state(), self.hyper)

    def set_parameters(self, params: Params) -> None:
        """Go on from these weights; CheckpointError when they do not fit."""
        self._put(_adopting(self.algorithm).adopt(self._state(), params))

    def carry(self, params: Params, slots: int) -> Carry:
        """What a policy remembers at the start of an episode."""
        return self.algorithm.carry(params, slots)

    def act(
        self,
        params: Params,
        observations: Mapping[str, Array],
        carry: Carry,
        first: Array,
        mask: Array | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Decision, Carry]:
        """Choose for all slots; with no generator, the best it knows."""
        return self.algorithm.act(params, observations, carry, first, mask, rng)

    def acting(self, device: str) -> Agent[Any]:
        """The same algorithm for actors, computing there."""
        return self.algorithm if device == self.device else self._algorithm(device=device)

    # --- learning ----------------------------------------------------------------------------------------------------

    def connect(
        self,
        environment: Any,
        replay_buffer: Any,
        policies: Any,
        clock: Clock | None = None,
        release: Callable[[Stamp], None] = lambda stamp: None,
    ) -> None:
        """Learn from this buffer, and publish to this store, from now on; `release` what is done with."""
        if self.replayed:
            self._source = Picked(replay_buffer)
        else:
            rollouts = getattr(environment, "num_workers", 1)
            self._source = Fresh(replay_buffer, lambda: rollouts, self.algorithm.max_lag, release)
        latest = policies.latest()
        self._learner = Learner(
            agent=self.algorithm,
            state=self.state,
            hyper=self.hyper,
            source=self._source,
            policies=policies,
            rng=self._rng,
            clock=clock or SystemClock(),
            epoch=0 if latest is None else latest.version.epoch + 1,
            report=self._reports.append,
            journal=lambda entry: None,
            saver=_Nobody(),
            total_steps=FOREVER,
        )
        if self._gone_on is not None:
            self._learner.restore(self._gone_on)
            self._gone_on = None

    def learn_for(self, total_steps: int) -> None:
        """Schedules end after so many steps; learning goes on as long as there is experience."""
        self._connected().schedule = total_steps

    def see(self, rollout: Rollout) -> None:
        """This one is in the buffer now."""
        if isinstance(self._source, Picked):
            self._source.note(rollout)

    def step(self) -> int:
        """One piece of learning; 0: it needs more experience first."""
        learner = self._connected()
        pushing = self.algorithm if isinstance(self.algorithm, Pushing) else None
        if pushing and (pushing.in_a_round or learner.between_updates):
            # before anything is begun: a server that is away costs nothing then
            waiting, learner.state = self.algorithm.waiting(learner.state)
            if waiting:
                return 0
        return learner.step()

    def learn(self, rollouts: Sequence[Rollout]) -> Lesson:
        """Learn from these alone, in one gradient."""
        gradients, lesson = self.compute_gradients(rollouts)
        self.apply_gradients(gradients)
        return lesson

    def compute_gradients(self, rollouts: Sequence[Rollout]) -> tuple[Gradients, Lesson]:
        """The mean gradient over all steps of these rollouts, and what they taught."""
        state, batch = self.algorithm.prepare(self._state(), rollouts, self.hyper)
        self._put(state)
        return self.algorithm.gradients(state, batch, self.hyper)

    def apply_gradients(self, gradients: Gradients) -> None:
        """One step of the algorithm's own optimiser."""
        self._put(self.algorithm.apply(self._state(), gradients, self.hyper))

    def optimiser(self) -> Applying:
        """The algorithm's optimiser, for a parameter server that should use it."""
        algorithm = self._algorithm()
        return Applying(_adopting(algorithm), algorithm.init(self.seed), self.hyper)

    def worker(self, index: int, server: Any, name: str | None = None) -> DistributedAgent:
        """The same agent for one of several workers: its gradients go to the server, its weights come from there."""
        if not self.by_name:
            raise ConfigError(f"{type(self).__name__} learns in one place; workers share a DistributedAgent")
        replica = DistributedAgent(
            self.spec,
            self.algo,
            network={name: value for name, value in self.network.items() if name != "device"},
            device=self.device,
            seed=self.seed,
            **settings.plain(self.hyper),
        )
        replica.algorithm = Pushing(replica.algorithm, server, name or f"worker-{index}")
        replica.state = replica.algorithm.pull(replica.state)
        replica.policies = MemoryPolicies()
        replica._rng = default_rng([self.seed, assembly.LEARNER, index])
        return replica

    # --- looking and keeping -----------------------------------------------------------------------------------------

    def reports(self) -> list[Report]:
        """What there is to tell since the last call."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def statistics(self) -> Mapping[str, Any]:
        """Counts of learning."""
        counters = asdict(self._learner.counters) if self._learner else {}
        pushed = self.algorithm if isinstance(self.algorithm, Pushing) else None
        told = {} if pushed is None else {"accepted": pushed.accepted, "refused": pushed.refused}
        return {"algo": self.algo, **counters, **told}

    def snapshot(self) -> Mapping[str, Any]:
        """All that the next update depends on."""
        learner = self._connected()
        if not learner.between_updates:
            raise RunError("an agent is kept between two updates, not within one")
        if isinstance(self._source, Picked) and not isinstance(self._source.table, Snapshots):
            kind = type(self._source.table).__name__
            raise ConfigError(f"{kind} cannot be kept: it has no `snapshot` and `restore` (see core/ports.py)")
        return learner.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there; before `connect` it is kept until then."""
        if self._learner is None:
            self._gone_on = snapshot
        else:
            self._learner.restore(snapshot)

    @property
    def between_updates(self) -> bool:
        """Whether nothing is half done."""
        return self._learner is None or self._learner.between_updates

    def close(self) -> None:
        """Bring an update that was begun to its end."""
        if self._learner is not None:
            self._learner.close()

    def _algorithm(self, **changes: Any) -> Agent[Any]:
        network = settings.plain(settings.parse(NetworkConfig, {**self.network, **changes}, "network"))
        return agents.make(self.algo, self.spec, network, settings.plain(self.hyper))

    def _state(self) -> Any:
        return self.state if self._learner is None else self._learner.state

    def _put(self, state: Any) -> None:
        self.state = state
        if self._learner is not None:
            self._learner.state = state

    def _connected(self) -> Learner:
        if self._learner is None:
            raise RunError("this agent has nothing to learn from yet; give it to a MainLoop, or call `connect`")
        return self._learner


class _Nobody:
    """Who saves the learner of an agent in a user's hands: the loop does, or nobody."""

    def save_when_due(self, learner: Learner) -> None:
        """Not here."""

    def save(self, learner: Learner) -> None:
        """Not here."""


def _adopting(algorithm: Any) -> Any:
    if not isinstance(algorithm, Adopts):
        raise ConfigError(f"{type(algorithm).__name__} cannot take other weights: it has no `adopt` (core/ports.py)")
    return algorithm
