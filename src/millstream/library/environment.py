"""Experience in a user's hands: workers that play with the newest policy."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

from millstream import assembly
from millstream.actor.evaluation import Evaluation
from millstream.control.state import Desired, Intent
from millstream.control.supervisor import Supervisor
from millstream.core import settings
from millstream.core.clock import SystemClock
from millstream.core.data import NONE, Policy, Rollout, Stamp
from millstream.core.errors import CheckpointError, ConfigError, RunError
from millstream.core.ports import Clock, Role, Snapshots, Subscription
from millstream.core.spec import EnvSpec
from millstream.core.topics import EXPERIENCES, METRICS_ACTORS, METRICS_TRAINING, Report
from millstream.crew import Crew
from millstream.telemetry.progress import Progress
from millstream.wires.memory import MemoryBus
from millstream.wires.shared import SharedBus

Workers = Literal["inline", "processes"]


class DistributedEnvironment:
    """Copies of one environment, played by several workers at once.

    env: a name (`mill envs`), or your own as `module:factory`.
    num_workers: how many play, each `envs_per_worker` copies, which hand out a rollout every `unroll` steps; what is
    left out of these two is as the algorithm's preset has it.
    workers: "inline" plays in this process, in turn, whenever experience is asked for, and repeats bit for bit;
    "processes" gives each worker a process of its own that plays on by itself; one that dies is replaced.
    device: where workers compute actions.
    """

    def __init__(
        self,
        env: str = "CartPole-v1",
        num_workers: int = 1,
        *,
        envs_per_worker: int | None = None,
        unroll: int | None = None,
        workers: Workers = "inline",
        args: Mapping[str, Any] | None = None,
        wrappers: Sequence[str] = (),
        device: str = "cpu",
        seed: int = 1,
    ):
        if workers not in get_args(Workers):
            raise ConfigError(f"workers are {' or '.join(get_args(Workers))}, got {workers!r}")
        if num_workers < 1:
            raise ConfigError(f"at least 1 worker plays, got {num_workers}")
        self.env, self.num_workers, self.workers, self.device, self.seed = env, num_workers, workers, device, seed
        self._sizes = {"actor.envs": envs_per_worker, "actor.unroll": unroll}
        self._settings: dict[str, Any] = {"env.args": dict(args or {}), "env.wrappers": tuple(wrappers)}
        self._config = self._experiment("ppo")
        self.spec: EnvSpec = assembly.spec_of(self._config)
        self._players: _Inline | _Processes | None = None
        self._progress = Progress(started_at=SystemClock().now())
        self._told: deque[Report] = deque(maxlen=4096)

    @property
    def stride(self) -> int:
        """Steps that all workers bring together when each hands out a rollout."""
        return self.num_workers * self._config.actor.envs * self._config.actor.unroll

    def connect(self, agent: Any, policies: Any, clock: Clock | None = None) -> None:
        """Play for this agent from now on, with the newest of the policies in this store."""
        self.close()
        clock = clock or SystemClock()
        if hasattr(agent, "algo"):
            self._config = self._experiment(agent.algo, agent.network, settings.plain(agent.hyper))
        if self.workers == "inline":
            acting = agent.acting(self.device) if hasattr(agent, "acting") else agent
            self._players = _Inline(self._config, acting, policies, clock)
            return
        if not getattr(agent, "by_name", False):
            kind = type(agent).__name__
            raise ConfigError(f"workers in processes build their agent by name, {kind} has none; use workers='inline'")
        self._players = _Processes(self._config, policies, clock)

    def generate(self, limit: int = 8) -> list[Rollout]:
        """Play, and hand out up to `limit` finished rollouts; none: ask again. Give each back with `release`."""
        players = self._connected()
        players.tend()
        players.play()
        found = [delivery.message for delivery in players.experiences.poll(limit)]
        self._hear()
        return found

    def tend(self) -> None:
        """Hand the newest policy to workers who play by themselves, and replace who died."""
        self._connected().tend()

    def release(self, stamp: Stamp) -> None:
        """This rollout, and those before it from its worker, are done with: their memory is used again."""
        self._connected().experiences.release(stamp)

    def evaluate(
        self, agent: Any, policy: Policy, episodes: int = 10, seed: int = 10_000, stochastic: bool = False
    ) -> Mapping[str, Any]:
        """Mean, IQM and 95 % interval over episodes of their own; greedy unless `stochastic`."""
        if episodes < 1:
            raise ConfigError(f"an evaluation needs at least one episode, got {episodes}")
        env = assembly.make_env(self._config, min(episodes, 16))
        try:
            evaluation = Evaluation(env, agent, policy, episodes, seed, stochastic)
            while not evaluation.done:
                evaluation.step()
        finally:
            env.close()
        return asdict(evaluation.summary())

    def reports(self) -> list[Report]:
        """What there is to tell since the last call."""
        return [self._told.popleft() for _ in range(len(self._told))]

    def statistics(self) -> Mapping[str, Any]:
        """How much was played, and how well."""
        progress, players = self._progress, self._players
        return {
            "workers": self.num_workers,
            "environments": self.num_workers * self._config.actor.envs,
            "steps": progress.made,
            "episodes": progress.episodes,
            "mean_return": progress.train_return,
            "replaced": 0 if players is None else players.replaced,
        }

    def worker(self, index: int) -> DistributedEnvironment:
        """One worker's share: the same environment, with a seed of its own."""
        return DistributedEnvironment(
            self.env,
            envs_per_worker=self._sizes["actor.envs"],
            unroll=self._sizes["actor.unroll"],
            args=self._settings["env.args"],
            wrappers=self._settings["env.wrappers"],
            device=self.device,
            seed=self.seed + 1 + index,
        )

    def snapshot(self) -> Mapping[str, Any]:
        """Where every worker stands, where that can be told: inline, in environments that can be kept."""
        players = self._connected()
        return {"players": players.snapshot() if isinstance(players, Snapshots) else {}}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        players = self._connected()
        if isinstance(players, Snapshots):
            players.restore(snapshot["players"])

    def reopen(self, number: int) -> None:
        """At checkpoint `number`: what cannot be kept starts anew, here as in a run that is continued."""
        players = self._connected()
        if isinstance(players, _Inline):
            players.reopen(number)

    def close(self) -> None:
        """End the workers."""
        if self._players is not None:
            self._players.close()
            self._players = None

    def _experiment(
        self, algo: str, network: Mapping[str, Any] | None = None, hyper: Mapping[str, Any] | None = None
    ) -> Any:
        given = {name: value for name, value in self._sizes.items() if value is not None}
        return assembly.experiment(
            overrides={
                "env.id": self.env,
                "algo": algo,
                "seed": self.seed,
                "actor.count": self.num_workers,
                **self._settings,
                **given,
                **{f"hyper.{name}": value for name, value in (hyper or {}).items()},
                **{f"network.{name}": value for name, value in {**(network or {}), "device": self.device}.items()},
            },
            environ={},
        )

    def _hear(self) -> None:
        for report in self._connected().heard():
            self._progress.take(report)
            self._told.append(report)

    def _connected(self) -> _Inline | _Processes:
        if self._players is None:
            raise RunError("nobody plays yet; give this environment to a MainLoop, or call `connect`")
        return self._players


class _Inline:
    """Workers in this process, who play when they are asked to."""

    replaced = 0

    def __init__(self, config: Any, agent: Any, policies: Any, clock: Clock):
        bus = MemoryBus(assembly.window_of(config, timed=True))
        wiring = assembly.Wiring(bus, policies, Path("library"), 0, clock, timed=False)
        self.experiences: Subscription[Rollout] = bus.subscribe(EXPERIENCES, "library")
        self._reports = bus.subscribe(METRICS_ACTORS, "library")
        self.actors = [assembly.actor(index, config, wiring, agent) for index in range(config.actor.count)]
        for actor in self.actors:
            actor.stride = actor.unroll  # whole rollouts: whoever keeps a run finds nothing half made

    def tend(self) -> None:
        """Nothing: who plays here looks for the newest policy before each rollout."""

    def play(self) -> None:
        """Up to a rollout each; those who lack a policy or credit do nothing."""
        for actor in self.actors:
            actor.step()

    def heard(self) -> list[Report]:
        """What the workers told."""
        return [delivery.message for delivery in self._reports.poll(1024)]

    def snapshot(self) -> Mapping[str, Any]:
        """Every actor."""
        return {str(actor.index): actor.snapshot() for actor in self.actors}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Every actor."""
        if len(snapshot) != len(self.actors):
            raise CheckpointError(f"it was kept with {len(snapshot)} workers, there are {len(self.actors)} now")
        for actor in self.actors:
            actor.restore(snapshot[str(actor.index)])

    def reopen(self, number: int) -> None:
        """Environments that cannot be kept start anew."""
        for actor in self.actors:
            actor.reopen(number)

    def close(self) -> None:
        """Close the environments."""
        assembly.close(self.actors)


class _Processes:
    """Workers in processes of their own, under a supervisor."""

    def __init__(self, config: Any, policies: Any, clock: Clock):
        intent = Intent(Desired(actors=config.actor.count, learner=0))
        self._folder = tempfile.TemporaryDirectory(prefix="millstream-")
        self._crew = Crew(config, Path(self._folder.name), 0, intent, clock)
        self._events: list[Report] = []
        self._supervisor = Supervisor(self._crew.host, intent, clock, self._events.append)
        self._roles: list[Role] = [self._crew.host, self._supervisor]
        self._policies, self._relayed = policies, NONE
        self.experiences: Subscription[Rollout] = SharedBus(self._crew.rings).subscribe(EXPERIENCES, "library")
        self._reports = [self._crew.bus.subscribe(topic, "library") for topic in (METRICS_ACTORS, METRICS_TRAINING)]

    @property
    def replaced(self) -> int:
        """Workers that were started in the place of a dead one."""
        return self._supervisor.replaced

    def play(self) -> None:
        """They do, by themselves."""

    def tend(self) -> None:
        """Hand them the newest policy, and look after them."""
        newer = self._policies.latest(self._relayed)
        if newer is not None:
            self._crew.policies.publish(newer)
            self._relayed = newer.version
        for role in self._roles:
            role.step()

    def heard(self) -> list[Report]:
        """What the workers told, and what became of them."""
        events, self._events[:] = list(self._events), []
        return [*events, *(delivery.message for source in self._reports for delivery in source.poll(1024))]

    def close(self) -> None:
        """End the processes."""
        self._crew.close()
        self._folder.cleanup()
