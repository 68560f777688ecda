"""The only loop."""

import pytest

from millstream.core.topics import METRICS_ACTORS
from millstream.hosts.heartbeat import Heartbeat, Pulse
from millstream.hosts.shell import Usage, run
from millstream.wires.memory import MemoryBus


class Clock:
    def __init__(self):
        self.time = 0.0
        self.rests = []

    def now(self):
        return 1000.0 + self.time

    def monotonic(self):
        return self.time

    def rest(self, seconds):
        self.rests.append(seconds)
        self.time += seconds


class Worker:
    def __init__(self, name, log, clock, did=1, cost=1.0):
        self.name, self.log, self.clock, self.did, self.cost = name, log, clock, did, cost

    def step(self):
        self.log.append(self.name)
        self.clock.time += self.cost
        return self.did


def after(count, log):
    return lambda: len(log) >= count


def test_who_goes_first_rotates():
    clock, log = Clock(), []
    run([Worker(name, log, clock) for name in "abc"], clock, after(9, log))
    assert "".join(log) == "abcbcacab"


def test_who_only_supervises_rests_longer():
    clock, log = Clock(), []
    run([Worker("a", log, clock, did=0, cost=0.0)], clock, after(20, log), rests=(0.002, 0.01))
    assert clock.rests[0] == 0.002 and max(clock.rests) == clock.rests[-1] == 0.01


def test_a_stop_is_seen_between_two_steps_of_a_round():
    clock, log = Clock(), []
    run([Worker(name, log, clock) for name in "abc"], clock, after(2, log))
    assert log == ["a", "b"]


def test_busy_shells_never_rest_and_idle_ones_rest_longer_and_longer():
    clock, log = Clock(), []
    run([Worker("a", log, clock, did=1)], clock, after(50, log))
    assert clock.rests == []
    log.clear()
    run([Worker("a", log, clock, did=0, cost=0.0)], clock, after(50, log))
    assert clock.rests[0] == pytest.approx(50e-6)
    assert clock.rests == sorted(clock.rests)
    assert max(clock.rests) == pytest.approx(2e-3)


def test_one_busy_role_keeps_the_shell_awake():
    clock, log = Clock(), []
    run([Worker("idle", log, clock, did=0), Worker("busy", log, clock)], clock, after(40, log))
    assert clock.rests == []


def test_roles_that_may_not_step_wait_while_others_go_on():
    clock, log = Clock(), []
    roles = [Worker("paused", log, clock), Worker("heartbeat", log, clock)]
    run(roles, clock, after(5, log), may_step=lambda role: role.name != "paused")
    assert set(log) == {"heartbeat"}


def test_usage_tells_work_from_waiting():
    clock, log, usage = Clock(), [], Usage()
    roles = [Worker("a", log, clock, did=1, cost=3.0), Worker("b", log, clock, did=0, cost=1.0)]
    run(roles, clock, after(8, log), usage=usage)
    assert usage.busy == [12.0, 0.0]
    assert usage.idle == 4.0
    assert usage.share == 0.75


def test_what_a_role_raises_reaches_the_caller():
    class Broken:
        def step(self):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run([Broken()], Clock(), lambda: False)


def test_a_heartbeat_reports_once_a_period_and_is_no_work():
    clock, bus = Clock(), MemoryBus(1)
    beat = Heartbeat(bus, METRICS_ACTORS, "actor-1", 2, clock, about=lambda: {"busy": 0.5})
    reports = bus.subscribe(METRICS_ACTORS, "test")
    for _ in range(30):
        assert beat.step() == 0
        clock.time += 0.1
    seen = [delivery.message for delivery in reports.poll(100)]
    assert len(seen) == 3
    assert seen[0] == {"kind": "heartbeat", "worker": "actor-1", "epoch": 2, "at": 1000.0, "busy": 0.5}


def test_a_silent_worker_is_missed_after_the_timeout():
    pulse = Pulse(timeout=10.0)
    pulse.heard("a", 0.0)
    for now in range(0, 11):
        pulse.heard("b", now)
        assert pulse.missing(now) == []
    assert pulse.missing(11.0) == ["a"]
    pulse.forget("a")
    assert pulse.missing(11.5) == []


def test_nobody_is_missed_because_the_listener_was_away():
    pulse = Pulse(timeout=10.0)
    pulse.heard("a", 0.0)
    pulse.missing(0.0)
    assert pulse.missing(1000.0) == []
    assert pulse.missing(1002.0) == []
