"""What should be, what is, and the orders in between."""

from dataclasses import replace

import pytest

from millstream.control.commands import REGISTRY, Checkpoint, Pause, Resume, Scale, Stop, as_request, parse
from millstream.control.follower import Follower
from millstream.control.state import Desired, Intent
from millstream.control.supervisor import Crashes, Supervisor, failure, reconcile, remember
from millstream.core import data
from millstream.core.data import Start, Worker
from millstream.core.errors import ConfigError, EnvLost, WorkerFailed
from millstream.core.topics import COMMANDS
from millstream.wires.memory import MemoryBus


def worker(role, index, epoch=0, exit_code=None, started_at=0.0, error=None):
    return Worker(role, index, epoch, 100 + index, started_at, exit_code, error)


class Clock:
    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    monotonic = now


class FakeHost:
    def __init__(self, clock):
        self.clock, self.here, self.orders = clock, {}, []

    def start(self, order):
        self.orders.append(order)
        self.here[order.name] = worker(order.role, order.index, order.epoch, started_at=self.clock.now())

    def stop(self, order):
        self.orders.append(order)

    def workers(self):
        return list(self.here.values())

    def die(self, name, code=-9, error="killed by SIGKILL"):
        self.here[name] = replace(self.here[name], exit_code=code, error=error)


@pytest.fixture
def scene():
    clock = Clock()
    host, intent = FakeHost(clock), Intent(Desired(actors=2))
    supervisor = Supervisor(host, intent, clock)
    supervisor.step()
    host.orders.clear()
    return supervisor, host, intent, clock


def test_an_empty_host_gets_the_learner_first_and_then_the_actors():
    assert reconcile(Desired(actors=2), [], 0.0) == [Start("learner", 0), Start("actor", 0), Start("actor", 1)]


def test_nothing_is_ordered_when_all_is_as_it_should_be():
    assert reconcile(Desired(actors=1), [worker("learner", 0), worker("actor", 0)], 0.0) == []


def test_a_dead_worker_is_replaced_at_once_with_the_next_epoch():
    observed = [worker("learner", 0, epoch=3, exit_code=-9), worker("actor", 0)]
    assert reconcile(Desired(actors=1), observed, 5.0) == [Start("learner", 0, epoch=4)]


def test_scaling_down_stops_the_highest_and_scaling_up_starts_them():
    three = [worker("learner", 0), *(worker("actor", index) for index in range(3))]
    assert reconcile(Desired(actors=1), three, 0.0) == [data.Stop("actor", 1), data.Stop("actor", 2)]
    assert reconcile(Desired(actors=4), three, 0.0) == [Start("actor", 3)]


def test_a_stopping_run_stops_the_living_and_replaces_nobody():
    observed = [worker("learner", 0), worker("actor", 0, exit_code=-9)]
    assert reconcile(Desired(actors=1, stopping=True), observed, 0.0) == [data.Stop("learner", 0)]


def test_pausing_starts_and_stops_nobody():
    assert reconcile(Desired(actors=1, paused=True), [worker("learner", 0), worker("actor", 0)], 0.0) == []


def test_repeated_fast_crashes_wait_longer_each_time():
    observed = [worker("learner", 0), worker("actor", 0, exit_code=1)]
    waits = [Crashes(n, died_at=100.0).retry_at() - 100.0 for n in range(1, 9)]
    assert waits == [0, 0.5, 1, 2, 4, 8, 16, 30]
    history = {"actor-0": Crashes(3, died_at=100.0)}
    assert reconcile(Desired(actors=1), observed, 100.9, history) == []
    assert reconcile(Desired(actors=1), observed, 101.0, history) == [Start("actor", 0, 1)]


def test_a_killed_worker_comes_back_each_time_however_often_it_is_killed(scene):
    supervisor, host, _, clock = scene
    for epoch in range(1, 30):
        clock.time += 2.0
        host.die("actor-1")
        supervisor.step()
        assert host.here["actor-1"].alive and host.here["actor-1"].epoch == epoch
    assert supervisor.replaced == 29


def test_a_worker_that_keeps_crashing_ends_the_run_with_its_last_words(scene):
    supervisor, host, _, clock = scene
    with pytest.raises(WorkerFailed, match=r"actor-0 died 6 times in a row.*division"):
        for _ in range(100_000):
            if host.here["actor-0"].alive:
                host.die("actor-0", 1, "ZeroDivisionError: division by zero")
            supervisor.step()
            clock.time += 0.01
    assert clock.time < 1000 + 60


def test_crashes_with_long_lives_between_them_are_forgiven(scene):
    supervisor, host, _, clock = scene
    for _ in range(20):
        clock.time += 60
        host.die("learner-0", 1, "OSError: sometimes")
        supervisor.step()
        assert host.here["learner-0"].alive


def test_an_error_of_the_user_is_not_tried_again(scene):
    supervisor, host, _, _ = scene
    host.die("actor-0", 2, "ConfigError: env must be one of ...")
    with pytest.raises(WorkerFailed, match="actor-0 failed: ConfigError: env must be"):
        supervisor.step()
    assert host.orders == []


def test_errors_while_stopping_are_no_failures(scene):
    supervisor, host, intent, _ = scene
    intent.desired = Stop().apply(intent.desired)
    for name in list(host.here):
        host.die(name, 2, "too late")
    supervisor.step()
    assert supervisor.done()


def test_a_worker_is_asked_to_stop_only_once(scene):
    supervisor, host, intent, _ = scene
    intent.desired = Scale(1).apply(intent.desired)
    assert supervisor.step() == 1
    assert supervisor.step() == 0
    assert host.orders == [data.Stop("actor", 1)]


def test_scaling_down_and_up_again_gives_a_new_life(scene):
    supervisor, host, intent, _ = scene
    intent.desired = Scale(1).apply(intent.desired)
    supervisor.step()
    intent.desired = Scale(2).apply(intent.desired)
    supervisor.step()
    host.die("actor-1", 0, None)
    supervisor.step()
    assert host.orders[-1] == Start("actor", 1, epoch=1)


def test_a_learner_that_finished_ends_the_run(scene):
    supervisor, host, intent, _ = scene
    host.die("learner-0", 0, None)
    supervisor.step()
    assert (intent.desired.stopping, intent.desired.stopped_by) == (True, "steps")
    assert host.orders == [data.Stop("actor", 0), data.Stop("actor", 1)]
    assert not supervisor.done()
    for name in ("actor-0", "actor-1"):
        host.die(name, 0, None)
    assert supervisor.done()


@pytest.mark.parametrize("bad", [{"actors": 17}, {"actors": -1}, {"learner": 2}])
def test_impossible_states_are_refused(bad):
    with pytest.raises(ConfigError):
        Desired(**bad)


def test_commands_change_the_state_and_its_revision():
    desired = Desired(actors=2)
    for command in (Pause(), Scale(3), Checkpoint(), Resume(), Stop("enough"), Stop("again")):
        desired = command.apply(desired)
    assert desired == Desired(actors=3, stopping=True, stopped_by="stopped", reason="enough", checkpoints=1, revision=5)


def test_a_command_that_changes_nothing_is_no_revision():
    desired = Desired(actors=2, paused=True)
    assert Pause().apply(desired) is desired
    assert Scale(2).apply(desired) is desired


def test_every_command_has_help_and_survives_a_round_trip():
    for name, kind in REGISTRY.items():
        made = kind(actors=2) if name == "scale" else kind()
        assert parse(as_request(made)) == made
        assert kind.__doc__ and "(" not in kind.__doc__.split(".")[0]  # not the text that dataclass invents


def test_a_worker_follows_commands_by_itself_and_survives_unknown_ones():
    bus = MemoryBus(1)
    follower = Follower(bus.subscribe(COMMANDS, "actor-0"), Desired())
    bus.publish(COMMANDS, {"command": "pause"})
    bus.publish(COMMANDS, {"command": "from the future"})
    assert follower.step() == 0
    assert follower.paused() and not follower.stopping()
    assert follower.refused == 1
    bus.publish(COMMANDS, {"command": "stop"})
    follower.step()
    assert follower.stopping()


def test_a_worker_whose_environment_was_killed_is_replaced_like_one_that_was_killed_itself():
    lost = worker("actor", 0, exit_code=EnvLost.exit_code)
    assert failure(Desired(actors=1), lost, remember(lost, None, now=2.0)) is None
    assert remember(lost, Crashes(3, 0.0), now=2.0).in_a_row == 0
