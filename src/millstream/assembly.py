"""The only module that knows every room: from an experiment to wires, from wires to roles."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from numpy.random import SeedSequence, default_rng

from millstream import config as configuration
from millstream.actor.evaluation import Evaluation, Evaluator
from millstream.actor.reading import Reader
from millstream.actor.unroll import Actor
from millstream.agents import presets
from millstream.agents import registry as agents
from millstream.config import Experiment
from millstream.control.desk import SOCKET, sweep
from millstream.control.follower import Follower
from millstream.control.journal import Journal
from millstream.control.journal import read as read_journal
from millstream.control.lock import RunLock
from millstream.control.state import MOST_ACTORS, Desired
from millstream.core import settings
from millstream.core.clock import SystemClock
from millstream.core.data import Policy, Rollout, Step
from millstream.core.errors import AgentError, CheckpointError, ConfigError
from millstream.core.ports import Adopts, Agent, Bus, Clock, Env, PolicyStore, Role, Snapshots, Subscription
from millstream.core.spec import EnvSpec
from millstream.core.topics import COMMANDS, EXPERIENCES, METRICS_ACTORS, METRICS_TRAINING, Report, Topic
from millstream.envs import recording
from millstream.envs import registry as envs
from millstream.hosts import shell
from millstream.hosts.heartbeat import Heartbeat
from millstream.learner import batches
from millstream.learner.checkpoint import Checkpoints
from millstream.learner.course import Course
from millstream.learner.learner import Keeping, Learner
from millstream.learner.rereading import Rereading
from millstream.learner.saving import Beside, Saver
from millstream.learner.sources import Fresh, Picked, Source
from millstream.parameters import keeping
from millstream.parameters.keeping import Keeper
from millstream.replay.cut import n_step
from millstream.replay.ingest import Ingest
from millstream.replay.limit import Lifted, SamplesPerInsert
from millstream.replay.refilled import Refilled, Reread
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import Oldest, Table, queue
from millstream.wires.channel import Channel
from millstream.wires.memory import MemoryBus, MemoryPolicies
from millstream.wires.policies import SharedPolicies
from millstream.wires.ring import Ring
from millstream.wires.shared import SharedBus

if TYPE_CHECKING:
    from millstream.envs.minari import Dataset

_ACTOR, _EVALUATOR = 1, 3
LEARNER, REPLAY = 2, 4
"""What separates the random streams of one seed."""


@dataclass
class Wiring:
    """What the roles of one process are connected by."""

    bus: Bus
    policies: PolicyStore
    folder: Path
    epoch: int = 0
    clock: Clock = field(default_factory=SystemClock)
    timed: bool = True
    """Whether time may influence anything; False makes a run repeatable."""
    companions: Callable[[], Mapping[str, Snapshots]] = dict
    """Roles of this process whose state belongs into the learner's checkpoint, by name."""
    actors: Callable[[], int] | None = None
    """How many actors there should be now; None where that never changes."""
    asked: Callable[[], int] = int
    """How many checkpoints people have asked for so far."""
    reread: Reread | None = None
    """Gives rollouts again, where the bus is a log that keeps them."""

    def report(self, report: dict[str, Any]) -> bool:
        """Tell the recorder."""
        return self.bus.publish(METRICS_TRAINING, report)


# --- from words to an experiment -------------------------------------------------------------------------------------


def experiment(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Experiment:
    """An experiment that has been checked as far as it can be without starting anything."""
    found = configuration.load(file, overrides, environ, presets.preset)
    hyper_of(found)
    return found


def hyper_of(config: Experiment) -> Any:
    """The hyper-parameters, checked against the algorithm's own schema."""
    return settings.parse(agents.find(config.algo).Hyper, config.hyper, "hyper")


def make_env(config: Experiment, slots: int, render: bool = False) -> Env:
    """The experiment's environment."""
    env = config.env
    return envs.make(env.id, slots, env.args, env.wrappers, env.vector, env.stack or None, render)


def spec_of(config: Experiment) -> EnvSpec:
    """What the environment shows and takes."""
    env = make_env(config, 1)
    try:
        return env.spec
    finally:
        env.close()


def make_agent(config: Experiment, spec: EnvSpec) -> Agent[Any]:
    """The experiment's algorithm for a spec."""
    return agents.make(config.algo, spec, settings.plain(config.network), config.hyper)


# --- flow ------------------------------------------------------------------------------------------------------------


def evaluates(config: Experiment) -> bool:
    """Whether policies are judged while training."""
    return config.evaluation.every > 0 and config.evaluation.episodes > 0


def rollouts_per_update(config: Experiment) -> int:
    """One from each actor unless said otherwise."""
    return config.learner.rollouts or max(1, config.actor.count)


def threads_for(agent: Agent[Any], config: Experiment, timed: bool) -> int:
    """Threads for the learner: one a shard as far as processors go.

    Where actors work at the same time they keep theirs, unless rows are so much work that threads pay nevertheless.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    heavy = batches.grain_of(agent) < batches.GRAIN
    return max(1, min(config.learner.shards, cores if heavy or not timed else cores - config.actor.count))


def rollouts_now(config: Experiment, wiring: Wiring) -> int:
    """The same for a run that was scaled: never more than its actors have credit for, or nobody could go on."""
    if wiring.actors is None:
        return rollouts_per_update(config)
    actors = max(1, wiring.actors())
    return min(config.learner.rollouts or actors, actors * window_of(config, wiring.timed))


def window_of(config: Experiment, timed: bool) -> int:
    """How many rollouts an actor may have under way: what one update takes from it, once for each update of lag."""
    lag = config.learner.max_policy_lag
    ahead = agents.find(config.algo).window if lag is None else lag + 1
    return (ahead if timed else 1) * math.ceil(rollouts_per_update(config) / max(1, config.actor.count))


def max_lag_of(config: Experiment) -> int | None:
    """The oldest policy whose experience may be learnt from."""
    lag = config.learner.max_policy_lag
    return agents.find(config.algo).max_lag if lag is None else lag


def wire_inline(config: Experiment, folder: Path, epoch: int = 0, clock: Clock | None = None) -> Wiring:
    """Everything in this process, nothing timed."""
    bus = MemoryBus(window_of(config, timed=False))
    return Wiring(bus, MemoryPolicies(), folder, epoch, clock or SystemClock(), timed=False)


# --- from wires to roles ---------------------------------------------------------------------------------------------


def build(role: str, index: int, config: Experiment, wiring: Wiring) -> list[Role]:
    """The roles of one worker. A pod, a child process and the embedded run start from this call."""
    makers: dict[str, Callable[[int, Experiment, Wiring], list[Role]]] = {
        "actor": _build_actor,
        "learner": _build_learner,
        "evaluator": _build_evaluator,
    }
    return makers[role](index, config, wiring)


def _build_actor(index: int, config: Experiment, wiring: Wiring) -> list[Role]:
    if config.data is not None:
        return [_reader(index, config, wiring)]
    return [actor(index, config, wiring)]


def actor(index: int, config: Experiment, wiring: Wiring, agent: Agent[Any] | None = None) -> Actor:
    """An actor of the experiment, who plays for its algorithm or for another that is given."""
    env = make_env(config, config.actor.envs)
    seeds = _actor_seeds(index, config, wiring)
    return Actor(
        experiment=wiring.folder.name,
        index=index,
        epoch=wiring.epoch,
        env=env,
        agent=agent or make_agent(config, env.spec),
        bus=wiring.bus,
        policies=wiring.policies,
        rng=default_rng(seeds),
        seed=int(seeds.generate_state(1)[0]),
        unroll=config.actor.unroll,
        clock=wiring.clock,
        # a table takes rollouts while the learner works: none may be half done when a checkpoint is taken
        stride=config.actor.unroll if wiring.timed or learns_from_a_table(config) else 32,
        budget=0.05 if wiring.timed else None,
    )


def _actor_seeds(index: int, config: Experiment, wiring: Wiring) -> SeedSequence:
    return SeedSequence([config.seed, _ACTOR, index, wiring.epoch])


def _reader(index: int, config: Experiment, wiring: Wiring) -> Reader:
    """In an actor's place: rollouts of as many steps as an actor's, out of a dataset."""
    spec = spec_of(config)
    return Reader(
        experiment=wiring.folder.name,
        index=index,
        epoch=wiring.epoch,
        spec=spec,
        data=open_data(config, spec),
        bus=wiring.bus,
        policies=wiring.policies,
        seed=int(_actor_seeds(index, config, wiring).generate_state(1)[0]),
        steps=config.actor.envs * config.actor.unroll,
        clock=wiring.clock,
    )


def open_data(config: Experiment, spec: EnvSpec) -> Dataset:
    """The dataset that an experiment learns from."""
    from millstream.envs.minari import open_dataset  # late: hardly a run has one

    assert config.data is not None
    return open_dataset(config.data, spec)


def learns_from_a_table(config: Experiment) -> bool:
    """Whether steps are picked again and again, rather than each rollout learnt from once."""
    return getattr(agents.find(config.algo), "replayed", False)


def _build_learner(index: int, config: Experiment, wiring: Wiring) -> list[Role]:
    lock = RunLock(wiring.folder, "learner")
    try:
        return _learner(config, wiring, lock)
    except BaseException:
        lock.close()  # this process may live on and try again
        raise


def _learner(config: Experiment, wiring: Wiring, lock: RunLock) -> list[Role]:
    spec, journal = spec_of(config), wiring.folder / "journal.jsonl"
    course = None if wiring.reread is None else Course(read_journal(journal))
    ingest, learner = learning(
        config, wiring, spec, course, lambda: _saver(config, wiring, spec), Journal(journal).append, lock.close
    )
    if not cast(Saver, learner.saver).restore(learner) and config.warm_start:
        _warm_start(learner, spec, Path(config.warm_start))
    return [ingest, learner]


def learning(
    config: Experiment,
    wiring: Wiring,
    spec: EnvSpec,
    course: Course | None,
    saver: Callable[[], Keeping],
    journal: Callable[[dict[str, Any]], None] = lambda entry: None,
    let_go: Callable[[], object] = lambda: None,
) -> tuple[Ingest, Learner]:
    """A learner as it is before its first update, and what brings it rollouts."""
    agent, hyper = make_agent(config, spec), hyper_of(config)
    subscription: Any = wiring.bus.subscribe(EXPERIENCES, "learner")
    ingest, source = _intake(hyper, config, wiring, _reading(wiring, subscription, course), course)
    return ingest, Learner(
        agent=agent,
        state=agent.init(config.seed),
        hyper=hyper,
        source=source,
        policies=wiring.policies,
        rng=default_rng([config.seed, LEARNER]),
        clock=wiring.clock,
        epoch=wiring.epoch,
        report=wiring.report,
        journal=journal,
        saver=saver(),
        let_go=let_go,
        refused=getattr(subscription, "refused", tuple),
        course=course,
        total_steps=config.total_steps,
        shards=config.learner.shards,
        threads=config.learner.threads or threads_for(agent, config, wiring.timed),
    )


def _reading(wiring: Wiring, subscription: Any, course: Course | None) -> Subscription[Rollout]:
    """The subscription, or where the bus is a log: each rollout of it once, its place kept in checkpoints."""
    if course is None:
        found: Subscription[Rollout] = subscription
        return found
    reading = Rereading(subscription, course, subscription.ended)
    _keep(wiring, "experiences", Beside({"wire": subscription, "reading": reading}))
    return reading


def _keep(wiring: Wiring, name: str, companion: Snapshots) -> None:
    """Into the learner's checkpoint with it."""
    others = wiring.companions
    wiring.companions = lambda: {**others(), name: companion}


def _intake(
    hyper: Any, config: Experiment, wiring: Wiring, subscription: Subscription[Rollout], course: Course | None
) -> tuple[Ingest, Source]:
    """From the bus to what updates learn from: a queue of fresh rollouts, or a table that is picked from."""
    if not learns_from_a_table(config):
        fresh = queue(MOST_ACTORS * window_of(config, wiring.timed))
        rollouts = lambda: rollouts_now(config, wiring)  # noqa: E731
        correct = config.learner.stale == "correct"
        source = Fresh(fresh, rollouts, max_lag_of(config), subscription.release, course, correct)
        return Ingest(subscription, fresh), source
    table = replay_table(hyper, config, course)
    if wiring.reread is not None:
        refilled = Refilled(table, wiring.reread)
        picked = Picked(refilled, course)
        return Ingest(subscription, refilled, copied=picked.note, placed=refilled.placed), picked
    picked = Picked(table)
    ingest = Ingest(subscription, table, copied=picked.note)
    if not wiring.timed:  # elsewhere the bus delivers again what was not released
        _keep(wiring, "ingest", ingest)
    return ingest, picked


def replay_table(hyper: Any, config: Experiment, course: Course | None = None) -> Table:
    """The table of an algorithm that learns from old steps; a course that is redone knows what comes when."""
    bound = replay_limit(hyper, config.actor.envs * config.actor.unroll * max(1, config.actor.count))
    limit = bound if course is None else Lifted(bound, lambda: course.redoing)
    select = Prioritised(hyper.priority_exponent, hyper.importance) if hyper.prioritised else Uniform()
    rng = default_rng([config.seed, REPLAY])
    return Table(n_step(hyper.n_step), select, Oldest(), limit, hyper.capacity, rng)


def replay_limit(hyper: Any, stride: int) -> SamplesPerInsert:
    """How far actors, who bring `stride` steps at a time, and the learner may be ahead of each other."""
    slack = 2 * max(hyper.minibatch * hyper.gradients / hyper.samples_per_step, stride)
    return SamplesPerInsert(hyper.samples_per_step, hyper.learning_starts, slack)


def _saver(config: Experiment, wiring: Wiring, spec: EnvSpec) -> Saver:
    keeper = Keeper(wiring.folder, about=policy_about(config, spec))
    return Saver(
        Checkpoints(wiring.folder / "checkpoints", config.checkpoint.keep),
        about={"env": config.env.id, "algo": config.algo, "spec": spec.to_json()},
        keep=lambda policy: keeper.keep("latest", policy),
        report=wiring.report,
        clock=wiring.clock,
        steps=config.checkpoint.steps,
        seconds=config.checkpoint.seconds if wiring.timed else 0,
        companions=wiring.companions,
        asked=wiring.asked,
    )


def _warm_start(learner: Learner, spec: EnvSpec, run: Path) -> None:
    path = keeping.find(run)
    policy, about = keeping.read(path)
    difference = EnvSpec.from_json(about["spec"]).difference(spec)
    if not isinstance(learner.agent, Adopts):
        raise AgentError(
            f"{type(learner.agent).__name__} cannot start from other weights: it has no `adopt` "
            f"(see core/ports.py, Adopts); leave --from out"
        )
    try:
        if difference:
            raise CheckpointError(difference)
        learner.state = learner.agent.adopt(learner.state, policy.params)
    except CheckpointError as error:
        raise CheckpointError(f"the policy {path} does not fit this experiment: {error}") from error


def _build_evaluator(index: int, config: Experiment, wiring: Wiring) -> list[Role]:
    env = make_env(config, min(config.evaluation.episodes, 16))
    keeper = Keeper(wiring.folder, about=policy_about(config, env.spec))
    return [
        Evaluator(
            env,
            make_agent(config, env.spec),
            wiring.policies,
            wiring.report,
            keeper.keep_best,
            wiring.clock,
            every=config.evaluation.every,
            episodes=config.evaluation.episodes,
            seed=int(SeedSequence([config.seed, _EVALUATOR]).generate_state(1)[0]),
            stochastic=config.evaluation.stochastic,
        )
    ]


def policy_about(config: Experiment, spec: EnvSpec) -> dict[str, Any]:
    """What a policy's file says of itself, enough to play it."""
    network, hyper = settings.plain(config.network), settings.plain(config.hyper)
    return {"algo": config.algo, "network": network, "hyper": hyper, "spec": spec.to_json()}


# --- workers ---------------------------------------------------------------------------------------------------------


def run_worker(order: Mapping[str, Any], channel: Channel, ending: Callable[[], bool]) -> None:
    """The life of a worker process: build its roles, run the shell, close them."""
    config, role, index = configuration.from_plain(order["config"]), order["role"], order["index"]
    if config.topology == "kafka":
        from millstream import streaming  # late: it needs a client library that others do without

        return streaming.run_worker(order, config, channel, ending)
    window = window_of(config, timed=True)
    bus = SharedBus([Ring(descriptor, window) for descriptor in order["fds"]["rings"]], channel)
    follower = Follower(bus.subscribe(COMMANDS, "worker"), Desired(**order["desired"]))
    wiring = Wiring(
        bus,
        SharedPolicies(order["fds"]["policies"]),
        Path(order["folder"]),
        order["first_epoch"] + order["epoch"],
    )
    beat = Heartbeat(bus, beats_on(role), f"{role}-{index}", order["epoch"], wiring.clock)
    work(role, index, config, wiring, follower, lambda roles: [beat], ending)
    if not follower.stopping():  # ended without being told to: the root may be gone
        sweep(wiring.folder / SOCKET)
    return None


def work(
    role: str,
    index: int,
    config: Experiment,
    wiring: Wiring,
    follower: Follower,
    besides: Callable[[Sequence[Role]], Sequence[Role]],
    ending: Callable[[], bool],
    alone: Callable[[], bool] = lambda: False,
) -> list[Role]:
    """Build the roles of a worker and run them, with what goes on besides, until it should end; then close them.

    Who is alone, without a root that says when all steps are trained, ends by itself then.
    """
    wiring.asked = lambda: follower.desired.checkpoints
    wiring.actors = lambda: follower.desired.actors
    roles = build(role, index, config, wiring)
    always: list[Role] = [follower, *besides(roles)]
    shell.run(
        [*roles, *always],
        wiring.clock,
        stopping=lambda: ending() or follower.stopping() or (alone() and finished(roles)),
        may_step=lambda each: each in always or not follower.paused(),
    )
    close(roles)
    return roles


def finished(roles: Sequence[Role]) -> bool:
    """Whether a learner among them has trained all its steps."""
    return any(getattr(role, "finished", False) for role in roles)


def beats_on(role: str) -> Topic[Report]:
    """Where a worker gives signs of life."""
    return METRICS_ACTORS if role == "actor" else METRICS_TRAINING


def close(roles: Sequence[Role]) -> None:
    """End roles that have something to bring to an end."""
    for role in roles:
        if hasattr(role, "close"):
            role.close()


# --- judging ---------------------------------------------------------------------------------------------------------


def evaluation(
    config: Experiment, folder: Path, episodes: int, seed: int, stochastic: bool, name: str | None = None
) -> Evaluation:
    """Episodes of a run's policy, ready to be played."""
    policy, env = _at_home(config, folder, name, min(episodes, 16))
    return Evaluation(env, make_agent(config, env.spec), policy, episodes, seed, stochastic)


def record(config: Experiment, folder: Path, out: str | Path | None, seed: int, name: str | None = None) -> Path:
    """A video of one episode of a run's policy."""
    policy, env = _at_home(config, folder, name, 1, render=True)
    agent = make_agent(config, env.spec)
    carry = agent.carry(policy.params, 1)

    def act(step: Step) -> Any:
        nonlocal carry
        decision, carry = agent.act(policy.params, step.observations, carry, step.first, step.masks, None)
        return decision.actions

    path = Path(out) if out else folder / "videos" / f"policy-{policy.version.number}"
    try:
        return recording.record(recording.play(env, act, seed), path, env.spec.fps)
    finally:
        env.close()


def _at_home(
    config: Experiment, folder: Path, name: str | None, slots: int, render: bool = False
) -> tuple[Policy, Env]:
    """A run's policy, and the environment that it was trained for."""
    policy, about = keeping.read(keeping.find(folder, name))
    env = make_env(config, slots, render)
    difference = EnvSpec.from_json(about["spec"]).difference(env.spec)
    if difference:
        env.close()
        raise CheckpointError(f"the policy of {folder} was trained for another environment: {difference}")
    return policy, env


def check(config: Experiment) -> None:
    """What can be said at once: names that exist, parts that are what they should be, numbers in their bounds."""
    hyper_of(config)
    envs.check(config.env.id, config.env.wrappers)
    if ":" in config.network.kind or config.network.device != "cpu":
        make_agent(config, spec_of(config))  # whether they are what they should be is known when they are used
    elif agents.selective(config.algo):
        agents.check(config.algo, spec_of(config))
    if config.actor.count < 1:
        raise ConfigError("actor.count should be at least 1 to train")
    _check_data(config)
    _check_stale(config)
    if config.topology == "inline" and config.learner.rollouts % config.actor.count:
        # otherwise rollouts wait, or are half made, when a checkpoint is taken, and a resumed run would lack them
        raise ConfigError(
            f"learner.rollouts should be a multiple of actor.count ({config.actor.count}) in the inline topology, "
            f"got {config.learner.rollouts}"
        )


def _check_stale(config: Experiment) -> None:
    """Whether the algorithm can correct experience, where it should."""
    if config.learner.stale != "correct" or hasattr(agents.find(config.algo), "correct"):
        return
    able = [name for name in agents.names() if hasattr(agents.find(name), "correct")]
    raise ConfigError(
        f"{config.algo} cannot correct stale experience; leave learner.stale at drop, "
        f"or try --algo {', '.join(able[:-1])} or {able[-1]}"
    )


def _check_data(config: Experiment) -> None:
    """Whether what there is to learn from is what the algorithm can learn from."""
    kind = agents.find(config.algo)
    if config.data is None:
        if getattr(kind, "recorded", False):
            raise ConfigError(
                f"{config.algo} learns from recorded episodes; name a dataset with --data (mill export-data writes one)"
            )
        return
    if not learns_from_a_table(config):
        able = [name for name in agents.names() if getattr(agents.find(name), "replayed", False)]
        raise ConfigError(
            f"{config.algo} learns from what its own newest policy does, never from recorded data; "
            f"leave --data out, or try --algo {', '.join(able[:-1])} or {able[-1]}"
        )
    open_data(config, spec_of(config))
