"""A training on several machines: real processes with addresses of their own, some of which die."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from millstream import DistributedAgent, DistributedEnvironment, DistributedMainLoop, ReplayBufferPool
from millstream.core.errors import ConfigError, RunError
from millstream.loops.asynchronous import PARAMETERS
from millstream.loops.distributed import Cluster

NODE = Path(__file__).with_name("node.py")


class Nodes:
    """Processes of one cluster."""

    def __init__(self, folder: Path, cluster: dict[str, Any], mode: str, steps: int):
        self.folder, self.mode, self.steps = folder, mode, steps
        self.file = folder / "cluster.json"
        self.file.write_text(json.dumps(cluster))
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, node: str, before: Sequence[str] = ()) -> None:
        command = [*before, sys.executable, str(NODE), node, str(self.file), str(self.steps), self.mode]
        self.running[node] = subprocess.Popen(
            [*command, str(self.folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
        )

    def said(self, node: str) -> dict[str, Any]:
        """The next thing that a node tells."""
        out = self.running[node].stdout
        assert out is not None
        line = out.readline()
        if not line:
            error = self.running[node].stderr
            raise AssertionError(f"{node} ended: {error.read()[-2000:] if error else ''}")
        return dict(json.loads(line))

    def result(self, node: str) -> dict[str, Any]:
        """What a node tells at its end."""
        while "stopped_by" not in (said := self.said(node)):
            continue
        assert self.running[node].wait(60) == 0
        return said

    def kill(self, node: str) -> None:
        self.running[node].kill()
        self.running[node].wait()

    def close(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cluster(**settings: Any) -> dict[str, Any]:
    nodes = {"server": f"127.0.0.1:{free_port()}", "one": "127.0.0.2:0", "two": "127.0.0.3:0"}
    return {"server": "server", "nodes": nodes, "linger": 0.5, **settings}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Any]:
    opened: list[Nodes] = []

    def make(mode: str = "async", steps: int = 4_000, **settings: Any) -> Nodes:
        opened.append(Nodes(tmp_path, settings.pop("cluster", None) or cluster(**settings), mode, steps))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_nodes_learn_together_and_every_step_is_counted_once(nodes: Any, mode: str) -> None:
    here = nodes(mode)
    for node in ("one", "two", "server"):  # workers bear that the server comes last
        here.start(node)
    results = {node: here.result(node) for node in ("one", "two", "server")}
    counted = results["server"]["parameter_server"]
    pushed = [results[node]["workers"][0]["accepted"] for node in ("one", "two")]
    assert {result["stopped_by"] for result in results.values()} == {"steps"}
    # the server looks when its steps are done; a worker hears of that with the answer to its next push
    assert min(pushed) > 10 and 0 <= sum(pushed) - counted["accepted"] <= len(pushed)
    assert counted["steps"] >= 4_000 and counted["refused"] == {}
    if mode == "sync":
        assert counted["accepted"] == 2 * counted["rounds"] + counted["waiting"]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_loss_of_a_worker_stops_nobody_else(nodes: Any, mode: str) -> None:
    here = nodes(mode, round_seconds=0.05, steps=2_000)
    for node in ("server", "one", "two"):
        here.start(node)
    while "learning" not in here.said("two"):
        continue
    here.kill("two")
    results = {node: here.result(node) for node in ("one", "server")}
    assert {result["stopped_by"] for result in results.values()} == {"steps"}
    assert results["server"]["parameter_server"]["steps"] >= 2_000


def test_a_server_that_was_killed_comes_back_and_its_workers_carry_on(nodes: Any) -> None:
    here = nodes(steps=10_000)
    for node in ("server", "one"):
        here.start(node)
    while "learning" not in here.said("one"):
        continue
    while not (here.folder / PARAMETERS).exists():
        assert here.running["server"].poll() is None
    here.kill("server")
    here.start("server")
    again = here.said("server")
    assert 0 < again["before"] < 10_000
    results = {node: here.result(node) for node in ("one", "server")}
    assert {result["stopped_by"] for result in results.values()} == {"steps"}
    assert results["server"]["parameter_server"]["version"]["epoch"] == 1
    assert results["server"]["made"] >= 10_000


def test_a_worker_whose_server_never_comes_says_so(nodes: Any) -> None:
    here = nodes(patience=0.5)
    here.start("one")
    _, error = here.running["one"].communicate(timeout=60)
    assert "does not answer" in error and "is it running there?" in error


def test_two_hosts_with_addresses_of_their_own(nodes: Any, tmp_path: Path) -> None:
    """Network namespaces: the worker reaches the server over a link, and only by its address and token."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the program ip")
    tag = f"m{os.getpid() % 10_000}"
    names = [f"{tag}a", f"{tag}b"]
    (tmp_path / "token").write_text("a-word-that-both-hosts-know\n")
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]], check=True)
        for index, name in enumerate(names):
            inside = ["ip", "-n", name]
            subprocess.run(["ip", "link", "set", name, "netns", name], check=True)
            subprocess.run([*inside, "addr", "add", f"10.99.0.{index + 1}/24", "dev", name], check=True)
            subprocess.run([*inside, "link", "set", name, "up"], check=True)
            subprocess.run([*inside, "link", "set", "lo", "up"], check=True)
        places = {"server": "10.99.0.1:50055", "one": "10.99.0.2:0"}
        here = nodes(
            cluster={"server": "server", "nodes": places, "linger": 0.5, "token_file": str(tmp_path / "token")},
            steps=2_000,
        )
        here.start("server", ["ip", "netns", "exec", names[0]])
        here.start("one", ["ip", "netns", "exec", names[1]])
        assert here.said("server")["serving"] == "10.99.0.1:50055"
        assert {here.result(node)["stopped_by"] for node in ("one", "server")} == {"steps"}
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


# --- bad input -------------------------------------------------------------------------------------------------------


def loop(**settings: Any) -> DistributedMainLoop:
    hyper = settings.pop("hyper", {})
    environment = DistributedEnvironment("CartPole-v1", envs_per_worker=2, unroll=8)
    return DistributedMainLoop(environment, ReplayBufferPool(), DistributedAgent(environment, **hyper), **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_id": "three", "cluster_config": cluster()}, "no 'three'"),
        ({"cluster_config": cluster(server="boss")}, "no 'boss'"),
        ({"cluster_config": cluster(nodes={"server": "here"})}, "host:port, got 'here'"),
        ({"cluster_config": cluster(speed=3)}, "speed"),
        ({"cluster_config": "nowhere.toml"}, "cannot read the cluster's file nowhere.toml"),
        ({"cluster_config": cluster(), "hyper": {"normalise_observations": True}}, "normalise_observations"),
        ({"cluster_config": cluster(), "num_workers": 0}, "at least 1 worker"),
        ({"cluster_config": cluster(workers=["one"]), "node_id": "two"}, "two neither holds the parameters nor works"),
        ({"cluster_config": cluster(token_file="nowhere"), "node_id": "one"}, "nowhere cannot be read"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_with_the_reason(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        loop(**settings)


def test_a_target_is_no_end_for_a_cluster() -> None:
    with loop(cluster_config=cluster()) as here, pytest.raises(ConfigError, match="one node alone"):
        here.run_training(100, target=10.0)


def test_a_server_that_is_stopped_tells_its_workers(nodes: Any) -> None:
    here = nodes(steps=1_000_000)
    for node in ("server", "one", "two"):
        here.start(node)
    for node in ("one", "two"):
        while "learning" not in here.said(node):
            continue
    here.running["server"].terminate()
    results = {node: here.result(node) for node in ("server", "one", "two")}
    assert [results[node]["stopped_by"] for node in results] == ["interrupted", "server", "server"]


def test_workers_of_all_nodes_have_luck_of_their_own() -> None:
    settings = cluster(workers=["server", "one"])
    with loop(cluster_config=settings) as here:
        here.run_training(50)
        mine = here._workers[0].environment.seed
        with loop(cluster_config=settings, node_id="one", num_workers=2) as there:
            there._open()
            assert len({mine, *(worker.environment.seed for worker in there._workers)}) == 3


def test_leaving_loopback_needs_a_token() -> None:
    with (
        loop(cluster_config=cluster(nodes={"server": "0.0.0.0:0"})) as outside,
        pytest.raises(ConfigError, match="needs a token"),
    ):
        outside.serve()


def test_only_the_server_serves_saves_and_loads() -> None:
    with loop(cluster_config=cluster(), node_id="one") as worker:
        for call in (worker.serve, worker.save_checkpoint, worker.load_checkpoint):
            with pytest.raises(RunError, match="server"):
                call()


def test_the_server_alone_can_work_too(tmp_path: Path) -> None:
    alone = {"server": "server", "nodes": {"server": "127.0.0.1:0"}, "workers": ["server"], "linger": 0.0}
    with loop(cluster_config=alone, folder=tmp_path) as both:
        assert both.run_training(200)["made"] >= 200
        assert both.evaluate_policy(2)["episodes"] == 2
        assert both.save_checkpoint().exists()


def test_a_cluster_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('server = "a"\npatience = 3\n[nodes]\na = "[::1]:50055"\nb = "host:1"\n')
    found = Cluster.of(path)
    assert found.address("a") == ("::1", 50055) and found.patience == 3.0
    assert found.works("b") and not found.works("a")
