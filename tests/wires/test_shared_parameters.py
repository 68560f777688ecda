"""Worker processes that push through shared memory: real processes, real kills."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from millstream.core.clock import SystemClock
from millstream.core.data import Version
from millstream.core.errors import RunError, TimedOut, Unavailable
from millstream.hosts import shell
from millstream.parameters.server import ParameterServer
from millstream.wires.parameters import PushedParameters, SharedParameters

START = Version(0, 0)
WORKER = """
import sys
import numpy as np
from millstream.wires.parameters import PushedParameters
client = PushedParameters(*map(int, sys.argv[1:4]))
print("up", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[4])):
    policy = client.get()
    assert (policy.params.tensors["weights"] == policy.version.number).all(), "half of an update"
    receipt = client.push_gradients(sys.argv[5], policy.version, np.full(5000, -1.0))
    assert receipt.accepted and client.version >= receipt.version, receipt
    print(number, flush=True)
"""


def started(role: SharedParameters, name: str, pushes: int) -> subprocess.Popen[str]:
    with role.seat() as seat:
        command = [sys.executable, "-c", WORKER, *map(str, seat), str(pushes), name]
        return subprocess.Popen(
            command, pass_fds=seat, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


def go(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        assert worker.stdout.readline() == "up\n", worker.communicate()[1]
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()


def stepped_until(role: SharedParameters, holds, seconds: float = 60.0) -> None:
    clock = SystemClock()
    end = clock.monotonic() + seconds
    shell.run([role], clock, lambda: holds() or clock.monotonic() > end)
    assert holds()


@pytest.fixture
def server():
    return ParameterServer(np.zeros(5000), learning_rate=1.0)


@pytest.fixture
def role(server):
    made = SharedParameters(server)
    yield made
    made.close()


def client(role: SharedParameters, **options) -> PushedParameters:
    with role.seat() as seat:
        return PushedParameters(*map(os.dup, seat), **options)


def test_eight_processes_that_push_at_once_lose_nothing(server, role):
    workers = [started(role, f"worker-{index}", 50) for index in range(8)]
    go(workers)
    stepped_until(role, lambda: role.workers == 0)
    for worker in workers:
        assert worker.communicate(timeout=30)[1] == "" and worker.returncode == 0
    told = server.statistics()
    assert (told.accepted, told.rounds, told.refused) == (400, 400, {})
    assert set(server.get().params.tensors["weights"]) == {400.0}


def test_a_worker_that_is_killed_gives_its_seat_back_and_holds_nobody_up(server, role):
    doomed, other = started(role, "doomed", 10**9), started(role, "other", 100)
    go([doomed, other])
    stepped_until(role, lambda: server.statistics().accepted >= 20)
    doomed.kill()
    doomed.communicate(timeout=30)
    stepped_until(role, lambda: role.workers == 0)
    assert other.communicate(timeout=30)[1] == "" and other.returncode == 0
    replacement = started(role, "doomed", 5)
    go([replacement])
    stepped_until(role, lambda: role.workers == 0)
    assert replacement.communicate(timeout=30)[1] == "" and replacement.returncode == 0
    told = server.statistics()
    assert told.accepted == told.rounds and set(server.get().params.tensors["weights"]) == {float(told.rounds)}


def test_a_push_that_was_written_before_its_worker_died_is_still_applied(server, role):
    one, errors = client(role), []

    def push() -> None:
        with pytest.raises(Unavailable) as raised:
            one.push_gradients("a", START, np.ones(5000))
        errors.append(raised.value)

    pushing = threading.Thread(target=push)
    pushing.start()
    while not role._seats[0].ring.waiting:
        pushing.join(0.01)
    one._channel._end.shutdown(2)  # as the system does when a process is killed
    pushing.join(20)
    assert role.step() and server.statistics().accepted == 1 and role.workers == 0 and len(errors) == 1


def test_workers_see_that_their_parent_has_ended(server):
    role = SharedParameters(server)
    one, waiting = client(role), client(role)
    role.close()
    with pytest.raises(Unavailable, match="has ended"):
        one.push_gradients("a", START, np.ones(5000))
    with pytest.raises(Unavailable, match="has ended"):
        waiting.wait(START, timeout=60)
    assert one.get().version == START  # what is in its memory can still be read


PARENT = """
import subprocess, sys
import numpy as np
from millstream.parameters.server import ParameterServer
from millstream.wires.parameters import SharedParameters
role = SharedParameters(ParameterServer(np.zeros(5000), learning_rate=1.0))
with role.seat() as seat:
    worker = subprocess.Popen([sys.executable, "-c", sys.argv[1], *map(str, seat), "1000000", "a"],
                              pass_fds=seat, stdin=subprocess.PIPE)
worker.stdin.write(b"go\\n")
worker.stdin.flush()
print(worker.pid, flush=True)
while True:
    role.step()
"""


def test_a_worker_whose_parent_was_killed_ends_with_one_clear_error(tmp_path: Path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, WORKER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert int(parent.stdout.readline()) and parent.stdout.readline() == "up\n"
    assert parent.stdout.readline() == "0\n"
    parent.kill()
    _, errors = parent.communicate(timeout=60)  # the worker holds these pipes too: it has ended
    assert "Unavailable: the process that holds the parameters has ended" in errors


def test_a_parent_that_does_not_step_is_a_timeout_and_a_late_receipt_is_not_taken_for_another(server, role):
    one = client(role, timeout=0.2)
    with pytest.raises(TimedOut, match=r"did not answer in 0.2 s; does it step its SharedParameters\?"):
        one.push_gradients("a", START, np.full(5000, -1.0))
    with pytest.raises(TimedOut):  # its slab is still taken
        one.push_gradients("a", START, np.full(5000, -1.0))
    assert role.step() == 1 and server.version == Version(0, 1)
    answers = []
    pushing = threading.Thread(target=lambda: answers.append(one.push_gradients("a", Version(0, 1), np.zeros(5000))))
    one._timeout = 20
    pushing.start()
    stepped_until(role, lambda: bool(answers))
    pushing.join(20)
    assert answers[0].version == Version(0, 2) and server.statistics().accepted == 2


def test_what_the_owner_changes_is_shown_too(server, role):
    one = client(role)
    assert role.step() == 0
    server.push_gradients("owner", START, np.full(5000, -7.0))
    role.step()
    assert one.version == Version(0, 1) and one.latest(START).params.tensors["weights"][0] == 7


def test_parameters_come_before_seats():
    with pytest.raises(RunError, match="no parameters yet"):
        SharedParameters(ParameterServer())


def test_nothing_is_left_open(server):
    before = memory_and_pairs()
    for _ in range(5):
        role = SharedParameters(server)
        clients = [client(role) for _ in range(3)]
        for one in clients[:2]:
            one.close()
        role.step()
        assert role.workers == 1
        clients[2].close()
        role.close()
    assert memory_and_pairs() <= before


def memory_and_pairs() -> set[str]:
    """What this process has open of shared memory and of sockets without a port: others may close theirs meanwhile."""
    found = set()
    ports = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder's own, which is closed by now
            target = str(fd.readlink())
            if target.startswith("/memfd") or (target.startswith("socket:") and target[8:-1] not in ports):
                found.add(f"{fd.name} {target}")
    return found
