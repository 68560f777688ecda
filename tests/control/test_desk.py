"""Asking and telling a run over its socket."""

import json
import os
import socket
import stat
import threading
import time

import pytest

from millstream.control.desk import Desk, ask
from millstream.control.lock import RunLock
from millstream.control.state import Desired, Intent
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError, Fenced, RunError, UnknownName
from millstream.core.topics import COMMANDS
from millstream.wires.memory import MemoryBus


class Open:
    """A desk that is stepped by a thread, as a root would."""

    def __init__(self, path):
        self.bus = MemoryBus(1)
        self.commands = self.bus.subscribe(COMMANDS, "test")
        self.intent = Intent(Desired(actors=2))
        views = {
            "status": lambda request: {"actors": self.intent.desired.actors, "asked": request.get("detail")},
            "big": lambda request: "x" * 5_000_000,
            "buggy": lambda request: {}["nothing"],
        }
        self.desk = Desk(path, self.intent, self.bus, views, SystemClock())
        self.running = True
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self):
        while self.running:
            if not self.desk.step():
                time.sleep(0.0005)

    def close(self):
        self.running = False
        self.thread.join()
        self.desk.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sock"


@pytest.fixture
def desk(path):
    opened = Open(path)
    yield opened
    opened.close()


def test_a_view_is_answered(desk, path):
    assert ask(path, {"view": "status", "detail": 3}) == {"actors": 2, "asked": 3}


def test_a_command_changes_what_should_be_and_goes_to_the_workers(desk, path):
    assert ask(path, {"command": "scale", "actors": 5}) == {"revision": 1}
    assert desk.intent.desired.actors == 5
    assert [d.message for d in desk.commands.poll(10)] == [{"command": "scale", "actors": 5}]


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        ({"command": "pasue"}, UnknownName, "did you mean pause"),
        ({"view": "statsu"}, UnknownName, "status"),
        ({"command": "scale"}, ConfigError, "needs actors"),
        ({"command": "scale", "actors": "many"}, ConfigError, "type int"),
        ({"command": "scale", "actors": 17}, ConfigError, "0 to 16"),
        ({"command": "scale", "actors": True}, ConfigError, "type int"),
        ({"command": "pause", "when": 3}, UnknownName, "when"),
        ({}, ConfigError, "a request is"),
        ([1], ConfigError, "JSON object"),
        ({"view": "buggy"}, RunError, "could not answer"),
    ],
)
def test_a_bad_request_gets_a_clear_error_and_changes_nothing(desk, path, request_, error, text):
    with pytest.raises(error, match=text):
        ask(path, request_)
    assert desk.intent.desired == Desired(actors=2)
    assert desk.commands.poll(10) == []


def test_what_is_not_json_is_answered_too(desk, path):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(path))
        end.sendall(b"\xff not json\n")
        answer = json.loads(end.makefile().readline())
    assert answer["ok"] is False
    assert "one line of JSON" in answer["text"]


def test_several_requests_on_one_line_each_get_their_answers_in_order(desk, path):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(path))
        end.sendall(b'{"command": "pause"}\n{"view": "status", "detail": 1}\n{"view": "sta')
        lines = end.makefile()
        assert json.loads(lines.readline())["result"] == {"revision": 1}
        assert json.loads(lines.readline())["result"]["asked"] == 1
        end.sendall(b'tus"}\n')
        assert json.loads(lines.readline())["ok"]


def test_a_client_that_does_not_read_holds_up_nobody(desk, path):
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(path))
        slow.sendall(b'{"view": "big"}\n' * 3)
        assert ask(path, {"view": "status"})["actors"] == 2
        assert len(ask(path, {"view": "big"})) == 5_000_000


def test_an_endless_line_is_refused(desk, path):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(path))
        try:
            end.sendall(b"x" * 3_000_000)
        except BrokenPipeError:
            return
        assert json.loads(end.makefile().readline())["ok"] is False


def test_more_clients_than_places_still_get_answers(desk, path):
    idle = [socket.socket(socket.AF_UNIX) for _ in range(80)]
    for end in idle:
        end.connect(str(path))
    assert ask(path, {"view": "status"})["actors"] == 2
    for end in idle:
        end.close()


def test_only_the_owner_may_connect(desk, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_run_that_is_not_there_is_said_to_be_not_running(tmp_path):
    with pytest.raises(RunError, match="is not running"):
        ask(tmp_path / "run.sock", {"view": "status"})


def test_the_socket_of_a_dead_run_is_replaced(path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.listen()
    dead.close()
    with pytest.raises(RunError, match="is not running"):
        ask(path, {"view": "status"})
    assert not path.exists()  # whoever looks removes it
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    opened = Open(path)
    assert ask(path, {"view": "status"})["actors"] == 2
    opened.close()
    assert not path.exists()


def test_a_second_desk_for_a_living_run_is_refused(desk, path):
    with pytest.raises(RunError, match="running already"):
        Desk(path, Intent(Desired()), MemoryBus(1), {}, SystemClock())
    assert ask(path, {"view": "status"})["actors"] == 2


def test_a_path_too_long_for_the_kernel_works_like_any_other(tmp_path):
    path = tmp_path / ("long" * 40) / "run.sock"
    assert len(os.fsencode(path)) > 108
    with pytest.raises(RunError, match="not running"):
        ask(path, {"view": "status"})
    opened = Open(path)
    assert ask(path, {"view": "status"})["actors"] == 2
    opened.close()
    assert not path.exists()


def test_a_run_that_does_not_answer_is_named_after_the_timeout(path):
    silent = Desk(path, Intent(Desired()), MemoryBus(1), {}, SystemClock())
    with pytest.raises(RunError, match="did not answer"):
        ask(path, {"view": "status"}, timeout=0.05)
    silent.close()


def test_a_run_has_one_root_at_a_time(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(Fenced, match=str(os.getpid())):
        RunLock(tmp_path)
    lock.close()
    RunLock(tmp_path).close()
