"""Several machines: one node holds the parameters, the others compute gradients for it over the network."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream import service
from millstream.core import settings
from millstream.core.data import NONE
from millstream.core.errors import Busy, ConfigError, RunError, TimedOut, Unavailable
from millstream.core.ports import Clock, Role
from millstream.core.settings import setting
from millstream.hosts import shell
from millstream.loops.asynchronous import AsyncMainLoop
from millstream.loops.main import Mode
from millstream.loops.worker import Worker
from millstream.service import ServiceConfig

MOST_WORKERS = 1_000
"""Of one node, as far as seeds are concerned."""
AWAY = (Unavailable, TimedOut, Busy)
"""What may pass by itself: the server restarts, or is asked too much."""


@dataclass(frozen=True)
class Cluster:
    """Who takes part, and where."""

    server: str = "server"
    """The node that holds the parameters."""
    nodes: dict[str, str] = setting({"server": "127.0.0.1:50055"})
    """Node -> host:port. Only the server listens; a node that listens beyond loopback needs a token."""
    workers: tuple[str, ...] = ()
    """Nodes that play and learn; none named: all but the server."""
    token_file: str | None = None
    """A file that holds the token which all nodes share."""
    tls_certificate: str | None = None
    """The server's certificate (PEM). With it, everything is encrypted."""
    tls_key: str | None = None
    """The certificate's key (PEM); only the server needs that file."""
    patience: float = setting(60.0, low=0)
    """Seconds for which workers bear that the server is away."""
    round_seconds: float = setting(10.0, above=0)
    """Seconds after which a round of a server in mode "sync" ends without the workers that it still lacks."""
    linger: float = setting(1.0, low=0)
    """Seconds without a push after which a server that ends knows that every worker has heard of it."""

    @classmethod
    def of(cls, given: Cluster | Mapping[str, Any] | str | Path) -> Cluster:
        """From a mapping, or from a .toml or .json file."""
        if isinstance(given, cls):
            return given
        values = given if isinstance(given, Mapping) else _read(Path(str(given)))
        found: Cluster = settings.parse(cls, values, "cluster_config")
        for node in (found.server, *found.workers):
            found.address(node)
        return found

    def address(self, node: str) -> tuple[str, int]:
        """Host and port of a node."""
        if node not in self.nodes:
            raise ConfigError(f"the cluster has the nodes {', '.join(sorted(self.nodes))}; there is no {node!r}")
        host, _, port = self.nodes[node].rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"cluster_config.nodes.{node} should be host:port, got {self.nodes[node]!r}")
        return host.strip("[]"), int(port)

    def service(self) -> ServiceConfig:
        """How the server listens."""
        host, port = self.address(self.server)
        return ServiceConfig(host, port, self.token_file, self.tls_certificate, self.tls_key)

    def works(self, node: str) -> bool:
        """Whether this node plays and learns."""
        return node in self.workers if self.workers else node != self.server


class DistributedMainLoop(AsyncMainLoop):
    """One node of a training on several machines; the same program runs on each, with its own `node_id`.

    cluster_config: a `Cluster`, a mapping of its fields, or a .toml or .json file. The server node serves its
    `parameter_server`, or one of its own with the agent's weights and optimiser; the others reach it at its address.
    Each working node has `num_workers` workers in threads. A worker that is lost is missed by nobody; a server that
    comes back from its checkpoint is found again.
    """

    def __init__(
        self,
        environment: Any,
        replay_buffer: Any,
        agent: Any,
        parameter_server: Any = None,
        node_id: str = "server",
        cluster_config: Any = None,
        num_workers: int = 1,
        *,
        folder: str | Path = "checkpoints",
        clock: Clock | None = None,
    ):
        self.cluster = Cluster.of(cluster_config or {})
        self.cluster.address(node_id)
        self.node_id, self.serves = node_id, node_id == self.cluster.server
        if not self.serves and not self.cluster.works(node_id):
            raise ConfigError(f"{node_id} neither holds the parameters nor works; name it among cluster_config.workers")
        if not self.serves:
            parameter_server = self._remote()
        super().__init__(environment, replay_buffer, agent, parameter_server, num_workers, folder=folder, clock=clock)
        self._served: Any = None

    @property
    def address(self) -> str:
        """Where the server node answers; it does so from its first use on, or from `serve`."""
        return str(self._served.address) if self._served else self.cluster.nodes[self.cluster.server]

    def serve(self) -> str:
        """Begin to answer other nodes, on the server node; the address."""
        if not self.serves:
            raise RunError(f"{self.node_id} does not hold the parameters; {self.cluster.server} serves them")
        if self._served is None:
            from millstream.services.parameters import offer
            from millstream.services.serving import Served

            self._served = Served(service.listening(self.cluster.service()), [offer(self.parameter_server)])
            self._served.start()
        return self.address

    def save_checkpoint(self, folder: str | Path | None = None) -> Path:
        """Write what the server holds, on the server node."""
        if not self.serves:
            raise RunError(
                f"{self.cluster.server} holds the parameters and keeps them, {self.node_id} has none to save"
            )
        return super().save_checkpoint(folder)

    def load_checkpoint(self, folder: str | Path | None = None) -> int:
        """Go on from what a server held, on the server node; workers follow by themselves."""
        if not self.serves:
            raise RunError(f"load the checkpoint on {self.cluster.server}; {self.node_id} follows by itself")
        return super().load_checkpoint(folder)

    def run_training(self, total_steps: int, mode: Mode = "sync", **how: Any) -> Mapping[str, Any]:
        """Train until all nodes together made so many steps, or this one is stopped; `mode` is the server's own."""
        if how.get("target") is not None:
            raise ConfigError("a target is seen by one node alone; give total_steps, or stop by on_progress")
        return super().run_training(total_steps, mode, **how)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._check_open()
        if self.serves:
            self.serve()
        if self._workers or not self.cluster.works(self.node_id):
            return
        looking = Patient(_Looking(self.parameter_server), self.cluster.patience, self.clock)
        shell.run([looking], self.clock, lambda: looking.worker.found or self._stop.is_set())
        if not looking.worker.found:
            return  # somebody lost patience sooner
        place = sorted(self.cluster.nodes).index(self.node_id) * MOST_WORKERS  # luck of its own for each worker
        self._workers = [self._worker(place + index, f"{self.node_id}/{index}") for index in range(self.num_workers)]

    def _run(self, mode: Mode, *always: Any) -> None:
        if self.serves:
            always = (*always, _Rounds(self.parameter_server, self.cluster.round_seconds, self.clock))
        super()._run(mode, *always)

    def _all_made(self) -> bool:
        if any(worker.agent.algorithm.closed for worker in self._workers):
            self._stopped("steps" if super()._all_made() else "server")
            return True
        return super()._all_made()

    def _keep_every(self, steps: int) -> None:
        super()._keep_every(steps if self.serves else 0)  # the same program runs everywhere

    def _close(self, finish: bool) -> None:
        with ExitStack() as stack:
            if self._served is not None:
                stack.callback(self._served.drain)
                stack.callback(self._say_that_it_is_over)
                self._served = None
            if not self.serves:
                stack.callback(self.parameter_server.close)
            super()._close(finish)

    def _say_that_it_is_over(self) -> None:
        """Refuse pushes until nobody tries any more: so every worker hears of it."""
        self.parameter_server.close()
        quiet = _Quiet(self.parameter_server, self.cluster.linger, self.clock)
        shell.run([quiet], self.clock, quiet.over)

    def _role(self, worker: Worker) -> Role:
        return Patient(worker, self.cluster.patience, self.clock)

    def _may_step(self, role: Any) -> bool:
        return super()._may_step(role.worker if isinstance(role, Patient) else role)

    def _made(self) -> int:
        """Steps of all nodes together, as the server counts them."""
        if self.serves:
            latest = self.parameter_server.latest()
            return 0 if latest is None else int(latest.steps)
        return max((int(worker.agent.algorithm.steps) for worker in self._workers), default=0)

    def _remote(self) -> Any:
        from millstream.wires.grpc import RemoteParameters

        cluster = self.cluster
        word = service.token(cluster.token_file) if cluster.token_file else None
        return RemoteParameters(cluster.nodes[cluster.server], word, cluster.tls_certificate, patience=1.0)


class Patient:
    """A worker who bears for a while that the server is away. What it was about to push is lost, and no more."""

    def __init__(self, worker: Any, patience: float, clock: Clock):
        self.worker, self.patience, self.clock = worker, patience, clock
        self._away_since: float | None = None

    def step(self) -> int:
        """The worker's step; 0 while the server is away."""
        try:
            did = self.worker.step()
        except AWAY:
            now = self.clock.monotonic()
            self._away_since = now if self._away_since is None else self._away_since
            if now - self._away_since > self.patience:
                raise
            return 0
        self._away_since = None
        return did


class _Looking:
    """The role that looks whether the server has parameters yet."""

    def __init__(self, server: Any):
        self.server, self.found = server, False

    def step(self) -> int:
        """Unavailable while there are none."""
        self.found = self.server.latest() is not None
        if not self.found:
            raise Unavailable("the server answers, but has no parameters yet; is it training?")
        return 1


class _Rounds:
    """The role that ends a round whose workers are gone."""

    def __init__(self, server: Any, seconds: float, clock: Clock):
        self.server, self.seconds, self.clock = server, seconds, clock
        self._seen, self._since = (NONE, 0), clock.monotonic()

    def step(self) -> int:
        """Once nothing has come into an open round for so long."""
        counts, now = self.server.statistics(), self.clock.monotonic()
        seen = (counts.version, counts.waiting)
        if seen != self._seen or not counts.waiting:
            self._seen, self._since = seen, now
            return 0
        if now - self._since < self.seconds:
            return 0
        self.server.end_round()
        return 1


class _Quiet:
    """The role that waits until nobody pushes any more."""

    def __init__(self, server: Any, seconds: float, clock: Clock):
        self.server, self.seconds, self.clock = server, seconds, clock
        self._pushes, self._since = -1, clock.monotonic()

    def step(self) -> int:
        """Look how many pushes there were."""
        counts = self.server.statistics()
        pushes = counts.accepted + sum(counts.refused.values())
        if pushes != self._pushes:
            self._pushes, self._since = pushes, self.clock.monotonic()
        return 0

    def over(self) -> bool:
        """Whether it has been quiet for long enough."""
        return self.clock.monotonic() - self._since > self.seconds


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        return dict(tomllib.loads(text) if path.suffix == ".toml" else json.loads(text))
    except OSError as error:
        raise ConfigError(f"cannot read the cluster's file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the cluster's file {path} is neither TOML nor JSON: {error}") from error
