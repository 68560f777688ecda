"""The loop that holds the parts together."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import (
    AgentEnsemble,
    AsyncMainLoop,
    DistributedAgent,
    DistributedEnvironment,
    MainLoop,
    ParameterServer,
    ReplayBufferPool,
)
from millstream.core.codec import decode, encode
from millstream.core.data import NONE, Array, Params, Policy, Rollout, Sample, Stamp, Version
from millstream.core.errors import CheckpointError, ConfigError, EnvError, MillError, RunError


def parts(algo: str = "ppo", **settings: Any) -> tuple[DistributedEnvironment, ReplayBufferPool, DistributedAgent]:
    sizes = {"envs_per_worker": 8, "unroll": 16, **settings}
    environment = DistributedEnvironment("CartPole-v1", **sizes)
    return environment, ReplayBufferPool(10_000), DistributedAgent(environment, algo)


def weights(loop: MainLoop) -> np.ndarray:
    found: np.ndarray = loop.agent.parameters().tensors["weights"]
    return found


# --- what it does ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["ppo", "impala", "dqn"])
def test_the_parts_learn_together(algo: str) -> None:
    with MainLoop(*parts(algo)) as loop:
        before = weights(loop).copy()
        progress = loop.run_training(4_000)
        assert progress["stopped_by"] == "steps"
        assert progress["steps"] == progress["made"] >= 4_000
        assert progress["policy_lag"] <= 1 and progress["updates"] > 0 and progress["episodes"] > 0
        assert not np.array_equal(before, weights(loop))


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_sync_training_repeats_bit_for_bit(algo: str) -> None:
    found = []
    for _ in range(2):
        with MainLoop(*parts(algo, num_workers=2)) as loop:
            loop.run_training(3_000)
            found.append(weights(loop))
    assert np.array_equal(*found)


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_run_that_was_kept_goes_on_as_if_it_had_not_been(algo: str, tmp_path: Path) -> None:
    with MainLoop(*parts(algo), folder=tmp_path) as loop:
        loop.run_training(2_048)
        loop.save_checkpoint()
        loop.run_training(4_096)
        whole = weights(loop)
    with MainLoop(*parts(algo), folder=tmp_path) as loop:
        assert loop.load_checkpoint() == 2_048
        progress = loop.run_training(4_096)
        assert np.array_equal(whole, weights(loop))
        assert progress["made"] == 4_096


@pytest.mark.parametrize("unroll", [16, 128])
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_checkpoint_that_was_written_while_training_loses_nothing(algo: str, unroll: int, tmp_path: Path) -> None:
    with MainLoop(*parts(algo, unroll=unroll), folder=tmp_path) as loop:
        loop.run_training(6_144, checkpoint_every=2_048)
        whole = weights(loop)
    for newer in sorted(tmp_path.glob("[0-9]*"))[1:]:
        shutil.rmtree(newer)
    with MainLoop(*parts(algo, unroll=unroll), folder=tmp_path) as loop:
        assert loop.load_checkpoint() < 6_144
        progress = loop.run_training(6_144)
        assert progress["steps"] == progress["made"] == 6_144
        assert np.array_equal(whole, weights(loop))


@pytest.mark.parametrize("sizes", [{"unroll": 16}, {"unroll": 128}, {"unroll": 64, "num_workers": 2}])
def test_each_step_is_learnt_from_as_often_as_was_asked(sizes: dict[str, int]) -> None:
    environment = DistributedEnvironment("CartPole-v1", envs_per_worker=8, **sizes)
    agent = DistributedAgent(environment, "dqn", samples_per_step=32.0, minibatch=64, gradients=16, learning_starts=512)
    with MainLoop(environment, ReplayBufferPool(10_000), agent) as loop:
        counted = loop.run_training(6_144)["workers"][0]
    assert counted["samples"] / (6_144 - 512) == pytest.approx(32, rel=0.05)


def test_looking_before_training_changes_nothing() -> None:
    with MainLoop(*parts()) as loop:
        assert loop.get_training_progress()["made"] == 0
        assert loop.run_training(1_000)["steps"] >= 1_000


def test_a_run_goes_on_after_its_target_and_from_an_older_checkpoint(tmp_path: Path) -> None:
    with MainLoop(*parts(), folder=tmp_path) as loop:
        reached = loop.run_training(100_000, target=15.0)["made"]
        loop.save_checkpoint()
        assert loop.run_training(reached + 2_000)["stopped_by"] == "steps"
        assert loop.load_checkpoint() == reached
        assert loop.run_training(reached + 1_000)["made"] >= reached + 1_000


def test_what_failed_is_told_and_everything_is_closed() -> None:
    environment, buffer, agent = parts()
    closed = []

    class Failing(Swapped):
        def step(self) -> int:
            raise EnvError(f"failure {len(closed)}")

        def close(self) -> None:
            closed.append("agent")
            raise EnvError("failure again")

    shut = environment.close
    environment.close = lambda: (closed.append("environment"), shut())  # type: ignore[method-assign, assignment]
    with pytest.raises(EnvError, match="failure 1"), MainLoop(environment, buffer, Failing(agent)) as loop:
        loop.run_training(1_000)
    assert closed[-1] == "environment" and "agent" not in closed


def test_a_loop_that_was_closed_says_so() -> None:
    with MainLoop(*parts()) as loop:
        loop.run_training(500)
    with pytest.raises(RunError, match="was closed"):
        loop.run_training(1_000)


def test_a_checkpoint_with_other_workers_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with MainLoop(*parts(num_workers=2), folder=tmp_path) as loop:
        loop.run_training(500)
        loop.save_checkpoint()
    with MainLoop(*parts(num_workers=1), folder=tmp_path) as loop:
        with pytest.raises(CheckpointError, match="2 workers"):
            loop.load_checkpoint()
        assert loop.get_training_progress()["made"] == 0


@pytest.mark.parametrize("algo", ["dqn", "ppo"])
def test_a_server_with_the_agents_own_weights_serves_every_algorithm(algo: str) -> None:
    environment, buffer, agent = parts(algo)
    with MainLoop(environment, buffer, agent, ParameterServer(agent.parameters())) as loop:
        assert loop.run_training(1_000)["made"] >= 1_000


def test_checkpoints_come_every_so_many_steps(tmp_path: Path) -> None:
    with MainLoop(*parts(), folder=tmp_path) as loop:
        loop.run_training(4_096, checkpoint_every=1_024)
    assert len(list(tmp_path.glob("[0-9]*"))) == 3  # the newest few


def test_a_checkpoint_of_another_loop_is_refused(tmp_path: Path) -> None:
    with MainLoop(*parts(), folder=tmp_path) as loop:
        loop.save_checkpoint()
    with MainLoop(*parts("dqn"), folder=tmp_path) as other, pytest.raises(Exception, match="state"):
        other.load_checkpoint()


@pytest.mark.parametrize("workers", ["inline", "processes"])
def test_async_training_plays_on_while_it_learns(workers: str) -> None:
    with MainLoop(*parts(workers=workers, num_workers=2)) as loop:
        progress = loop.run_training(6_000, "async")
    assert progress["stopped_by"] == "steps" and progress["made"] >= 6_000
    assert progress["steps"] + progress["ledger"]["stale"] <= progress["made"]
    assert progress["steps"] > 3_000


def test_a_given_server_holds_every_policy_and_its_weights_are_where_training_begins() -> None:
    environment, buffer, agent = parts()
    start = Params({"weights": agent.parameters().tensors["weights"] * 0.5})
    server = ParameterServer(start)
    with MainLoop(environment, buffer, agent, server) as loop:
        assert np.array_equal(loop.evaluate_policy(1)["mean"], loop.evaluate_policy(1)["mean"])
        assert np.array_equal(weights(loop), start.tensors["weights"])
        progress = loop.run_training(1_000)
        assert server.version == Version(1, progress["updates"])
        assert np.array_equal(server.get().params.tensors["weights"], weights(loop))


def test_it_stops_at_its_target_and_when_it_is_told_to() -> None:
    with MainLoop(*parts()) as loop:
        assert loop.run_training(100_000, target=15.0)["stopped_by"] == "target"
    with MainLoop(*parts()) as loop:
        progress = loop.run_training(100_000, on_progress=lambda progress: progress["updates"] < 3)
        assert (progress["stopped_by"], progress["updates"]) == ("callback", 3)


def test_pause_resume_and_stop_work_from_another_thread() -> None:
    with MainLoop(*parts()) as loop:
        begun, looked = threading.Event(), threading.Event()
        found: dict[str, Any] = {}

        def look(progress: Any) -> None:
            begun.set()
            looked.wait(10) if progress["updates"] == 1 else None

        def steer() -> None:
            begun.wait(30)
            loop.pause_training()
            looked.set()
            found["paused"] = loop.get_training_progress()["paused"]
            loop.resume_training()
            found["resumed"] = loop.get_training_progress()["paused"]
            loop.stop_training()

        thread = threading.Thread(target=steer)
        thread.start()
        progress = loop.run_training(10_000_000, on_progress=look)
        thread.join()
        assert found == {"paused": True, "resumed": False}
        assert progress["stopped_by"] == "stopped" and progress["steps"] < 10_000_000


def test_nothing_moves_while_it_is_paused() -> None:
    with MainLoop(*parts()) as loop:
        loop.run_training(1_000)
        before, moved = weights(loop).copy(), []
        loop.pause_training()

        def watch() -> None:
            while loop.get_training_progress()["total_steps"] != 100_000:
                continue  # it has not begun yet
            for _ in range(50):
                moved.append(not np.array_equal(before, weights(loop)))
            loop.stop_training()

        thread = threading.Thread(target=watch)
        thread.start()
        assert loop.run_training(100_000)["steps"] < 2_000
        thread.join()
        assert not any(moved)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_signal_ends_training_in_order(number: signal.Signals, mode: str, tmp_path: Path) -> None:
    program = f"""
import sys
from millstream import DistributedAgent, DistributedEnvironment, MainLoop, ReplayBufferPool
environment = DistributedEnvironment("CartPole-v1")
with MainLoop(environment, ReplayBufferPool(), DistributedAgent(environment), folder={str(tmp_path)!r}) as loop:
    told = []
    progress = loop.run_training(10**9, {mode!r}, on_progress=lambda p: told or told.append(print("begun", flush=True)))
    loop.save_checkpoint()
    print(progress["stopped_by"])
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    child.send_signal(number)
    said, _ = child.communicate(timeout=60)
    assert (said, child.returncode) == ("interrupted\n", 0)
    assert list(tmp_path.glob("[0-9]*/MANIFEST.json"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda loop: loop.run_training(0), "at least 1 step"),
        (lambda loop: loop.run_training("many"), "total_steps='many'"),
        (lambda loop: loop.run_training(10, "slow"), "mode='slow'"),
        (lambda loop: loop.evaluate_policy(0), "at least one episode"),
        (lambda loop: loop.load_checkpoint("nowhere"), "nowhere"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[MainLoop], Any], words: str) -> None:
    with MainLoop(*parts()) as loop, pytest.raises(Exception, match=words):
        call(loop)


def test_what_goes_wrong_in_the_background_is_raised_here() -> None:
    environment, buffer, agent = parts()

    class Broken(Swapped):
        def generate(self, limit: int = 8) -> list[Rollout]:
            raise EnvError("the world ended")

    with MainLoop(Broken(environment), buffer, agent) as loop, pytest.raises(EnvError, match="the world ended"):
        loop.run_training(1_000, "async")


# --- parts of one's own: each of the five can be another class with the same methods ---------------------------------


class Swapped:
    """A part of one's own that asks ours; it counts what it was asked."""

    def __init__(self, inner: Any):
        self.inner, self.asked = inner, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.inner, name)


class PlainEnvironment:
    """Plays one CartPole after another, a step at a time."""

    def __init__(self) -> None:
        self.inner = DistributedEnvironment("CartPole-v1", envs_per_worker=2, unroll=32)
        self.spec, self.num_workers, self.made = self.inner.spec, 1, 0

    def connect(self, agent: Any, policies: Any, clock: Any) -> None:
        self.inner.connect(agent, policies, clock)

    def generate(self, limit: int = 8) -> list[Rollout]:
        found = [decode(encode(rollout)) for rollout in self.inner.generate(limit)]
        for rollout in found:
            self.inner.release(rollout.stamp)
        self.made += sum(rollout.count for rollout in found)
        return found

    def evaluate(self, *arguments: Any) -> Any:
        return self.inner.evaluate(*arguments)


class PlainBuffer:
    """A list of rollouts, newest last; hands out the oldest, once."""

    def __init__(self) -> None:
        self.held: list[Rollout] = []

    @property
    def waiting(self) -> int:
        return len(self.held)

    def insert(self, rollout: Rollout) -> bool:
        if len(self.held) >= 4:
            return False
        self.held.append(rollout)
        return True

    def sample(self, size: int) -> Sample | None:
        if len(self.held) < size:
            return None
        found, self.held = self.held[:size], self.held[size:]
        return Sample(found, np.arange(size))

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        raise AssertionError("nobody asked for priorities")


class RandomAgent:
    """Learns nothing, and says so."""

    def __init__(self, environment: Any):
        self.spec, self.learnt = environment.spec, 0

    def connect(
        self, environment: Any, replay_buffer: Any, policies: Any, clock: Any, release: Callable[[Stamp], None]
    ) -> None:
        self.buffer, self.policies = replay_buffer, None
        policies.publish(Policy(Version(0, 1), self.parameters()))

    def parameters(self) -> Params:
        return Params({"weights": np.zeros(1, np.float32)})

    def carry(self, params: Params, slots: int) -> dict[str, Any]:
        return {}

    def act(self, params: Any, observations: Any, carry: Any, first: Any, mask: Any, rng: Any) -> Any:
        from millstream.core.data import Decision

        return Decision(np.random.default_rng(1).integers(0, 2, len(first)), {}), {}

    def step(self) -> int:
        sample = self.buffer.sample(1)
        if sample is None:
            return 0
        self.learnt += sum(rollout.count for rollout in sample.rollouts)
        return 1


class PlainServer:
    """Remembers the last policy."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []

    def publish(self, policy: Policy) -> None:
        self.policies.append(policy)

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        return self.policies[-1] if self.policies and self.policies[-1].version > newer_than else None


def test_an_environment_of_ones_own() -> None:
    environment = PlainEnvironment()
    with MainLoop(environment, ReplayBufferPool(), DistributedAgent(environment)) as loop:
        progress = loop.run_training(2_000)
        assert progress["steps"] == progress["made"] == environment.made >= 2_000
        assert loop.evaluate_policy(3)["episodes"] == 3


@pytest.mark.parametrize("workers", ["inline", "processes"])
def test_a_replay_buffer_of_ones_own(workers: str) -> None:
    environment, _, agent = parts(workers=workers)
    with MainLoop(environment, PlainBuffer(), agent) as loop:
        assert loop.run_training(2_000, "async")["steps"] > 1_000


def test_an_agent_of_ones_own() -> None:
    environment = DistributedEnvironment("CartPole-v1", envs_per_worker=2, unroll=16)
    agent = RandomAgent(environment)
    with MainLoop(environment, PlainBuffer(), agent) as loop:
        assert loop.run_training(500)["made"] >= 500
        assert agent.learnt >= 500
        assert 5 < loop.evaluate_policy(5)["mean"] < 60


def test_a_parameter_server_of_ones_own() -> None:
    server = PlainServer()
    with MainLoop(*parts(), server) as loop:
        progress = loop.run_training(1_000)
        assert [policy.version.number for policy in server.policies] == list(range(progress["updates"] + 1))


def test_a_loop_of_ones_own_over_our_parts() -> None:
    environment, buffer, agent = parts("dqn")
    server = ParameterServer()
    environment.connect(agent, server)
    buffer.connect(environment, agent)
    agent.connect(environment, buffer, server)
    while agent.statistics()["trained"] < 2_000:
        if not agent.step():
            for rollout in environment.generate():
                assert buffer.insert(rollout)
                agent.see(rollout)
                environment.release(rollout.stamp)
    assert environment.statistics()["steps"] >= 2_000


# --- A3C -------------------------------------------------------------------------------------------------------------


def test_workers_compute_gradients_and_the_server_applies_them() -> None:
    environment, buffer, agent = parts()
    before = agent.parameters().tensors["weights"].copy()
    with AsyncMainLoop(environment, buffer, agent, num_workers=3) as loop:
        progress = loop.run_training(6_000)
        server = progress["parameter_server"]
        pushed = [worker["accepted"] for worker in progress["workers"]]
        assert progress["stopped_by"] == "steps" and progress["made"] >= 6_000
        assert min(pushed) > 0 and sum(pushed) == server["accepted"] == server["rounds"]
        assert server["steps"] == progress["steps"]  # every step that was learnt from is counted once
        assert loop.evaluate_policy(2)["episodes"] == 2
    assert not np.array_equal(before, agent.parameters().tensors["weights"])


def test_a_server_in_mode_sync_applies_a_round_at_a_time() -> None:
    environment, buffer, agent = parts()
    server = ParameterServer(agent.parameters(), mode="sync", quorum=3, optimiser=agent.optimiser())
    with AsyncMainLoop(environment, buffer, agent, server, num_workers=3) as loop:
        counted = loop.run_training(6_000)["parameter_server"]
    assert counted["refused"] == {} and counted["lag_max"] == 0
    assert counted["rounds"] > 3 and counted["accepted"] == 3 * counted["rounds"] + counted["waiting"]


def test_what_the_server_holds_is_kept_and_found_again(tmp_path: Path) -> None:
    environment, buffer, agent = parts()
    with AsyncMainLoop(environment, buffer, agent, num_workers=2, folder=tmp_path) as loop:
        loop.run_training(2_000)
        loop.save_checkpoint()
        steps, held = loop.parameter_server.get().steps, weights(loop)
    with AsyncMainLoop(*parts(), num_workers=2, folder=tmp_path) as loop:
        assert loop.load_checkpoint() == steps
        assert np.array_equal(loop.parameter_server.get().params.tensors["weights"], held)
        assert loop.run_training(steps + 1_000)["made"] >= 1_000


def test_an_error_of_one_worker_ends_all() -> None:
    environment, buffer, agent = parts()

    class Broken(Swapped):
        def worker(self, index: int) -> Any:
            share = self.inner.worker(index)
            if index == 1:
                share.generate = lambda limit=8: (_ for _ in ()).throw(EnvError("the world ended"))
            return share

    with AsyncMainLoop(Broken(environment), buffer, agent, num_workers=2) as loop, pytest.raises(EnvError):
        loop.run_training(1_000_000)


def test_what_cannot_be_learnt_together_is_refused() -> None:
    with AsyncMainLoop(*parts("dqn"), num_workers=2) as loop, pytest.raises(MillError, match="keeps more than weights"):
        loop.run_training(100)
    environment, buffer, _ = parts()
    with pytest.raises(ConfigError, match="normalise_observations"):
        AsyncMainLoop(environment, buffer, DistributedAgent(environment, normalise_observations=True), num_workers=2)
    ensemble = AgentEnsemble(environment, "ppo", 2)
    with (
        AsyncMainLoop(environment, buffer, ensemble, num_workers=2) as loop,
        pytest.raises(ConfigError, match="one place"),
    ):
        loop.run_training(100)
    with AsyncMainLoop(*parts(), ParameterServer(), num_workers=2) as loop, pytest.raises(ConfigError, match="empty"):
        loop.run_training(100)
    with pytest.raises(ConfigError, match="at least 1 worker"):
        AsyncMainLoop(*parts(), num_workers=0)
