"""Workers as processes: started, heard, stopped, reaped; and nothing left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from millstream.core.clock import SystemClock
from millstream.core.data import Start, Stop
from millstream.core.errors import RunError
from millstream.core.topics import COMMANDS, METRICS_ACTORS
from millstream.hosts.process import Brief, ProcessHost
from millstream.wires.channel import Channel
from millstream.wires.memory import MemoryBus

TOY = [sys.executable, str(Path(__file__).with_name("toy_worker.py"))]
ROOT = [sys.executable, str(Path(__file__).with_name("toy_root.py"))]


class Scene:
    def __init__(self, folder, mood="good", **options):
        self.bus = MemoryBus(2)
        self.mood = mood
        self.reports = self.bus.subscribe(METRICS_ACTORS, "recorder")
        self.seen: list = []
        options = {"grace": 2.0, **options}
        brief = lambda order: Brief({"mood": self.mood})  # noqa: E731
        self.host = ProcessHost(brief, Channel, self.bus, folder / "logs", SystemClock(), os.environ, TOY, **options)

    def until(self, condition, timeout=15.0):
        deadline = time.monotonic() + timeout
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"{self.host.workers()} {self.seen}"
            self.host.step()
            self.seen += [d.message for d in self.reports.poll(100)]
            time.sleep(0.002)
        return answer

    def up(self, index=0, epoch=0):
        return self.until(lambda: [m for m in self.seen if m.get("up") == index and m["epoch"] == epoch])[0]

    def dead(self, name="actor-0"):
        return self.until(lambda: [w for w in self.host.workers() if w.name == name and not w.alive])[0]


@pytest.fixture
def scene(tmp_path):
    made = []

    def make(*arguments, **options):
        made.append(Scene(tmp_path, *arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.host.close()
        assert not any(worker.alive for worker in each.host.workers())


def descriptors():
    return sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())


def gone(pids, timeout=10.0):
    deadline = time.monotonic() + timeout
    while alive := [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]:
        assert time.monotonic() < deadline, f"{alive} still live"
        time.sleep(0.01)
    return True


def test_a_worker_starts_reports_and_stops_when_asked(scene):
    one = scene()
    one.host.start(Start("actor", 0, epoch=4))
    report = one.up(epoch=4)
    assert report["threads"] == "1"
    assert report["pid"] == one.host.workers()[0].pid != os.getpid()
    one.host.stop(Stop("actor", 0))
    worker = one.dead()
    assert (worker.exit_code, worker.error, worker.epoch) == (0, None, 4)


def test_commands_on_the_bus_reach_every_worker(scene):
    one = scene()
    for index in range(2):
        one.host.start(Start("actor", index))
        one.up(index)
    one.bus.publish(COMMANDS, {"command": "stop"})
    assert one.dead("actor-0").exit_code == one.dead("actor-1").exit_code == 0


def test_a_worker_inherits_only_what_it_was_handed(scene):
    one = scene()
    for index in range(2):
        one.host.start(Start("actor", index))
    second = one.up(1)["fds"]
    assert len(second) == 5  # order, two for the log, channel, life


def test_two_workers_of_one_name_are_refused(scene):
    one = scene()
    one.host.start(Start("actor", 0))
    with pytest.raises(RunError, match="running already"):
        one.host.start(Start("actor", 0))


def test_an_error_of_the_user_is_reported_in_its_own_words(scene):
    one = scene("wrong")
    one.host.start(Start("actor", 0))
    worker = one.dead()
    assert worker.exit_code == 2
    assert worker.error == "ConfigError: batch_size must be positive, got -1"


def test_any_other_error_is_one_line_here_and_a_traceback_in_the_log(scene, tmp_path):
    one = scene("broken")
    one.host.start(Start("actor", 0))
    worker = one.dead()
    assert (worker.exit_code, worker.error) == (1, "ZeroDivisionError: on purpose")
    log = (tmp_path / "logs" / "actor-0.log").read_text()
    assert "Traceback" in log and "toy_worker.py" in log


def test_a_worker_that_says_nothing_is_quoted_from_its_log(scene):
    one = scene("abrupt")
    one.host.start(Start("actor", 0))
    worker = one.dead()
    assert (worker.exit_code, worker.error) == (3, "last line of the log")


def test_a_killed_worker_is_seen_and_can_be_replaced(scene):
    one = scene()
    one.host.start(Start("actor", 0))
    os.kill(one.up()["pid"], signal.SIGKILL)
    worker = one.dead()
    assert (worker.exit_code, worker.error) == (-9, "killed by SIGKILL")
    one.host.start(Start("actor", 0, epoch=1))
    one.up(epoch=1)
    assert [w.epoch for w in one.host.workers()] == [1]


def test_what_a_worker_started_dies_with_it(scene):
    one = scene("parent")
    one.host.start(Start("actor", 0))
    pid = one.up()["pid"]
    (grandchild,) = [m["grandchild"] for m in one.seen if "grandchild" in m]
    os.kill(pid, signal.SIGKILL)
    one.dead()
    assert gone([grandchild])


def test_a_deaf_worker_is_killed_after_the_grace(scene):
    one = scene("deaf", grace=0.4)
    one.host.start(Start("actor", 0))
    one.up()
    one.host.stop(Stop("actor", 0))
    assert one.dead().exit_code == -signal.SIGKILL


def test_a_worker_without_a_heartbeat_is_ended_and_said_to_hang(scene):
    one = scene(timeout=3.0)
    one.host.start(Start("actor", 0))
    one.up()
    one.mood = "stuck"
    one.host.start(Start("actor", 1))
    worker = one.dead("actor-1")
    assert "no sign of life for 3 s" in worker.error
    assert [w.alive for w in one.host.workers()] == [True, False]


def test_sigterm_ends_a_worker_after_its_step_and_ctrl_c_does_not(scene):
    one = scene()
    one.host.start(Start("actor", 0))
    pid = one.up()["pid"]
    os.kill(pid, signal.SIGINT)
    one.seen.clear()
    one.until(lambda: one.seen)  # it still reports
    os.kill(pid, signal.SIGTERM)
    assert one.dead().exit_code == 143


def test_close_leaves_no_descriptor_behind(tmp_path):
    before = descriptors()
    one = Scene(tmp_path)
    for index in range(2):
        one.host.start(Start("actor", index))
        one.up(index)
    one.host.close()
    assert descriptors() == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_root_that_is_killed(tmp_path, number):
    command = [*ROOT, str(tmp_path), "good,deaf,parent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as root:
        workers = json.loads(root.stdout.readline())
        family = psutil.Process(root.pid).children(recursive=True)
        assert {process.pid for process in family} > set(workers)
        root.send_signal(number)
    assert gone([process.pid for process in family])


def test_workers_that_are_not_stuck_end_themselves_soon_after_their_root(tmp_path):
    with subprocess.Popen([*ROOT, str(tmp_path), "good,good,good"], stdout=subprocess.PIPE, text=True) as root:
        workers = json.loads(root.stdout.readline())
        root.kill()
    assert gone(workers, timeout=2.5)  # far less than the patience with stuck ones
