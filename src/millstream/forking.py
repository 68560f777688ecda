"""Forks: a run goes on from one of its checkpoints as a new run with other settings. The old one is not touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from numpy.random import default_rng

from millstream import assembly, training
from millstream import config as configuration
from millstream.config import Experiment
from millstream.core import settings, tree
from millstream.core.data import Policy, Version
from millstream.core.errors import CheckpointError, ConfigError, RunError
from millstream.core.files import replace_durably
from millstream.core.spec import EnvSpec
from millstream.learner.checkpoint import Checkpoints
from millstream.parameters.keeping import Keeper
from millstream.running import Callbacks, Watch
from millstream.telemetry.views import LINEAGE, run_view
from millstream.training import Run, Tell

Handover: TypeAlias = Callable[[dict[str, Any], Experiment, Experiment], dict[str, Any]]
"""(a checkpoint's state, the old run's settings, the new one's) -> the state that the new run begins with."""


@dataclass(frozen=True)
class Branch:
    """All that a fork begins with, checked, before anything of it is written."""

    experiment: Experiment
    lineage: Mapping[str, Any]
    """Where it comes from: run, checkpoint, steps, and what was set anew."""
    state: Mapping[str, Any]
    about: Mapping[str, Any]
    policy: Policy
    warnings: Sequence[str] = ()
    """Newer checkpoints that were passed over because they are damaged."""


def fork(
    run: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    at: int | None = None,
    started_at: float | None = None,
    watch: Sequence[Watch] = (),
    callbacks: Callbacks | None = None,
    tell: Tell = lambda text: None,
) -> Run:
    """Go on from a checkpoint of a run, its newest whole one unless `at` says which, as a new run with other settings.

    Settings are dotted: `{"learning_rate": 1e-4, "actor.count": 2}`. Algorithm, network and the environment's spaces
    stay as they are; every other setting may change as far as the checkpoint still fits.
    """
    return grow(branch(run, overrides, at), started_at=started_at, watch=watch, callbacks=callbacks, tell=tell)


def grow(
    branch: Branch,
    *,
    started_at: float | None = None,
    watch: Sequence[Watch] = (),
    callbacks: Callbacks | None = None,
    tell: Tell = lambda text: None,
) -> Run:
    """The new run of a branch, from its folder to its result."""

    def begin(folder: Path) -> int:
        return plant(branch, folder)

    return training.start(
        branch.experiment, started_at=started_at, watch=watch, callbacks=callbacks, tell=tell, begin=begin
    )


# --- reading and checking --------------------------------------------------------------------------------------------


def branch(
    run: str | Path,
    overrides: Mapping[str, Any] | None = None,
    at: int | None = None,
    handover: Handover | None = None,
) -> Branch:
    """Read a checkpoint, and refuse what could not go on from it.

    A `handover` other than `hand_over` is for checkpoints that do not hold all of their state.
    """
    folder, changes = Path(run).resolve(), dict(overrides or {})
    before = configuration.from_plain(training.read_config(folder))
    after = _settings(folder, before, changes)
    number, state, about, warnings = Checkpoints(folder / "checkpoints").load(at)
    steps = int(state["learner"]["counters"]["trained"])
    _check_worth(folder, after, number, steps, changes)
    spec = assembly.spec_of(after)
    if difference := EnvSpec.from_json(about["spec"]).difference(spec):
        raise CheckpointError(f"a fork keeps the spaces of its environment: {difference}; for others start a new run")
    state = (handover or _handover(folder, before))(state, before, after)
    policy = _policy(after, spec, number, state, about)
    lineage = {"run": folder.name, "checkpoint": number, "steps": steps, "set": _set(changes, after)}
    about = {**about, "env": after.env.id, "spec": spec.to_json()}
    return Branch(after, lineage, state, about, policy, warnings)


def _settings(folder: Path, before: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """The new run's, which stands beside the old one unless told otherwise."""
    nested = configuration.nest(changes)
    if (algo := nested.get("algo", before.algo)) != before.algo:
        raise ConfigError(
            f"a fork keeps its algorithm: {folder.name} learns by {before.algo}; for {algo} start a new run"
        )
    beside = {} if Path(before.folder).resolve() == folder.parent else {"folder": str(folder.parent)}
    after = configuration.from_plain(
        configuration.merge(configuration.to_plain(before), {**beside, "warm_start": None}, nested)
    )
    _check_network(before, after)
    assembly.check(after)
    return after


def _set(changes: Mapping[str, Any], after: Experiment) -> dict[str, Any]:
    """What was set anew under the names that were used, with the values that came of it."""
    values = configuration.to_plain(after)
    return {name: _at(values, name if name.split(".")[0] in values else f"hyper.{name}") for name in changes}


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[part]
    return values


def _check_network(before: Experiment, after: Experiment) -> None:
    """Weights mean something in their own network alone; on which device it computes is free."""
    old, new = (settings.plain(config.network) for config in (before, after))
    changed = [name for name in old if old[name] != new[name] and name != "device"]
    if changed:
        words = ", ".join(f"network.{name} is {old[name]}, not {new[name]}" for name in changed)
        raise ConfigError(f"a fork keeps its network: {words}; for another one start a new run")


def _check_worth(folder: Path, after: Experiment, number: int, steps: int, changes: Mapping[str, Any]) -> None:
    """A fork that has done what it should already would end at once."""
    where = f"{folder.name} at checkpoint {number}"
    if steps >= after.total_steps:
        raise RunError(f"{where} has trained {steps:,} of {after.total_steps:,} steps; add --total-steps {2 * steps}")
    result = run_view(folder)["result"] or {}
    ended_here = result.get("stopped_by") == "target" and result["steps"] == steps
    if ended_here and after.target is not None and "target" not in changes:
        raise RunError(f"{where} has reached its target {after.target:g}; add --target none, or fork an earlier one")


def _policy(
    config: Experiment, spec: EnvSpec, number: int, state: Mapping[str, Any], about: Mapping[str, Any]
) -> Policy:
    """What the new run knows at its beginning; building it shows whether the state fits."""
    agent, learner = assembly.make_agent(config, spec), state["learner"]
    try:
        learnt = tree.rebuild(agent.init(config.seed), learner["state"])
    except CheckpointError as error:
        raise CheckpointError(
            f"the checkpoint does not fit these settings: {error}; start a new run for them"
        ) from error
    params = agent.policy(learnt, assembly.hyper_of(config))
    return Policy(Version(about["epoch"], number), params, int(learner["counters"]["trained"]))


# --- handing over ----------------------------------------------------------------------------------------------------


def _handover(folder: Path, before: Experiment) -> Handover:
    """How the state of a run changes hands: what it has in a log stays there."""
    if before.topology != "kafka":
        return hand_over
    from millstream import streaming  # late: it needs a client library that others do without

    return lambda state, before, after: hand_over(streaming.leave_log(folder.name, state, before, after), before, after)


def hand_over(state: dict[str, Any], before: Experiment, after: Experiment) -> dict[str, Any]:
    """The whole state of a checkpoint that holds all of it; a table of other settings is refused."""
    if assembly.learns_from_a_table(after):
        _check_table(before, after)
    return adapt(state, before, after)


def adapt(state: dict[str, Any], before: Experiment, after: Experiment) -> dict[str, Any]:
    """The state less what the new settings make meaningless: generators of another seed, games of another world."""
    learner = dict(state["learner"])
    if "table" in learner.get("source", {}):
        learner["source"] = {**learner["source"], "table": _adapt_table(learner["source"]["table"], before, after)}
    if before.seed != after.seed:
        learner["rng"] = default_rng([after.seed, assembly.LEARNER]).bit_generator.state
    same_world = (before.env, before.data) == (after.env, after.data)
    same_games = same_world and (before.seed, before.actor.envs) == (after.seed, after.actor.envs)
    companions = {
        name: kept
        for name, kept in state["companions"].items()
        if (same_games or not name.startswith("actor-")) and (same_world or name != "recorder")
    }
    return {**state, "learner": learner, "companions": companions}


def _adapt_table(kept: Mapping[str, Any], before: Experiment, after: Experiment) -> dict[str, Any]:
    """What is kept of a table: itself, or within what says where in a log its rollouts stand."""
    if "places" in kept:
        return {**kept, "table": _adapt_table(kept["table"], before, after)}
    table = {**kept, "sampled": _balanced(kept, before, after)}
    if before.seed != after.seed:
        table["rng"] = default_rng([after.seed, assembly.REPLAY]).bit_generator.state
    return table


def _check_table(before: Experiment, after: Experiment) -> None:
    """Rows and priorities stand where the table's own settings put them."""
    old, new = (assembly.replay_table(assembly.hyper_of(config), config).about() for config in (before, after))
    changed = [
        f"{name} {old.get(name, 'none')}, not {new.get(name, 'none')}" for name in new if old.get(name) != new[name]
    ]
    if changed:
        raise ConfigError(f"a fork keeps its table: it has {', '.join(changed)}; for another one start a new run")


def _balanced(table: Mapping[str, Any], before: Experiment, after: Experiment) -> int:
    """How many samples the table should count, so that by the new limit nobody is further ahead than by the old."""
    inserted, sampled = int(table["inserted"]), int(table["sampled"])
    old, new = (assembly.replay_limit(assembly.hyper_of(config), 1) for config in (before, after))
    if not sampled or (old.ratio, old.least) == (new.ratio, new.least):
        return sampled
    ahead = inserted - old.least - sampled / old.ratio
    return max(0, round((inserted - new.least - ahead) * new.ratio))


# --- writing ---------------------------------------------------------------------------------------------------------


def plant(branch: Branch, folder: Path) -> int:
    """Put into a run's empty folder where it comes from, its policy, and last the checkpoint; the number of that."""
    spec, number = EnvSpec.from_json(branch.about["spec"]), int(branch.lineage["checkpoint"])
    replace_durably(folder / LINEAGE, json.dumps(branch.lineage, indent=1).encode())
    Keeper(folder, assembly.policy_about(branch.experiment, spec)).keep("latest", branch.policy)
    Checkpoints(folder / "checkpoints").save(number, branch.state, branch.about)
    return number
