"""The parts of a PPO run, each by itself on the shapes of the run: how many environment steps a second it could do."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

from millstream import assembly, config
from millstream.config import Experiment
from millstream.doors.options import read_pairs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("env")
    parser.add_argument("settings", nargs="*", help="KEY=VALUE, as after `mill train --set`")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each part; a third of that again to warm up")
    arguments = parser.parse_intermixed_args()
    endless = {"env.id": arguments.env, "total_steps": 2**40, "checkpoint.steps": 0}
    experiment = config.load(overrides={**endless, **read_pairs(arguments.settings, "a setting")})
    found = {part.__name__: part(experiment, arguments.seconds) for part in (environment, inference)}
    print(json.dumps({**found, **roles(experiment, arguments.seconds)}))


def environment(experiment: Experiment, seconds: float) -> float:
    """The environment alone, with random actions."""
    env = assembly.make_env(experiment, experiment.actor.envs)
    env.reset(1)
    actions = itertools.cycle(np.random.default_rng(1).integers(0, env.spec.action.n, (997, env.slots)))

    def work() -> int:
        env.step(next(actions))
        return env.slots

    return rate(work, seconds)


def inference(experiment: Experiment, seconds: float) -> float:
    """The policy alone, asked again and again about what the environment shows first."""
    env = assembly.make_env(experiment, experiment.actor.envs)
    agent, hyper = assembly.make_agent(experiment, env.spec), assembly.hyper_of(experiment)
    params, shown, rng = agent.policy(agent.init(1), hyper), env.reset(1), np.random.default_rng(1)
    carry = agent.carry(params, env.slots)

    def work() -> int:
        agent.act(params, shown.observations, carry, shown.first, shown.masks, rng)
        return env.slots

    return rate(work, seconds)


def rate(work: Callable[[], int], seconds: float) -> float:
    """Steps a second of a piece of work that says how many it did."""
    _for(work, seconds / 3)
    start = time.perf_counter()
    return _for(work, seconds) / (time.perf_counter() - start)


def _for(work: Callable[[], int], seconds: float) -> int:
    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        done += work()
    return done


def roles(experiment: Experiment, seconds: float) -> dict[str, float]:
    """Actor and learner as they are, one after the other in this process, each timed while the other rests."""
    with tempfile.TemporaryDirectory() as folder:
        wiring = assembly.wire_inline(experiment, Path(folder))
        (actor,) = assembly.build("actor", 0, experiment, wiring)
        ingest, learner = assembly.build("learner", 0, experiment, wiring)
        learner.step()  # the first policy
        _turn(actor, ingest, learner)  # grows the work arrays, and is not counted
        spent: list[tuple[float, float]] = []
        while sum(map(sum, spent)) < 2 * seconds:
            spent.append(_turn(actor, ingest, learner))
        learner.close()
    steps = len(spent) * experiment.actor.envs * experiment.actor.unroll
    return {"acting": steps / sum(acting for acting, _ in spent), "learning": steps / sum(each[1] for each in spent)}


def _turn(actor: Any, ingest: Any, learner: Any) -> tuple[float, float]:
    """One rollout and one update: the seconds of each."""
    start = time.perf_counter()
    while not ingest.step():
        actor.step()
    acted = time.perf_counter()
    learner.step()
    while not learner.between_updates:
        learner.step()
    return acted - start, time.perf_counter() - acted


if __name__ == "__main__":
    main()
