"""Several workers in threads, each with its own environment: they compute gradients, the server applies them (A3C)."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

from millstream.core.errors import ConfigError
from millstream.core.ports import Clock, Role
from millstream.hosts import shell
from millstream.loops.main import Keeping, MainLoop, Mode
from millstream.loops.worker import Worker
from millstream.parameters.server import ParameterServer

PARAMETERS = "parameters.safetensors"


class AsyncMainLoop(MainLoop):
    """Trains one agent by `num_workers` workers at once, after Mnih et al. (2016).

    Each has a share of its own of environment and replay buffer, made by their `worker(index)`, and a replica of the
    agent, made by its `worker(index, server)`. Gradients are applied as they come; by a server in mode "sync", a round
    at a time.
    """

    def __init__(
        self,
        environment: Any,
        replay_buffer: Any,
        agent: Any,
        parameter_server: Any = None,
        num_workers: int = 8,
        *,
        folder: str | Path = "checkpoints",
        clock: Clock | None = None,
    ):
        if num_workers < 1:
            raise ConfigError(f"at least 1 worker learns, got num_workers={num_workers}")
        if getattr(getattr(agent, "hyper", None), "normalise_observations", False):
            raise ConfigError(
                "every worker has statistics of its own; learn together with normalise_observations=False"
            )
        super().__init__(environment, replay_buffer, agent, parameter_server, folder=folder, clock=clock)
        self.num_workers = num_workers
        self._total = self._before = 0

    def save_checkpoint(self, folder: str | Path | None = None) -> Path:
        """Write what the server holds: weights, optimiser, steps. Environments are not kept, they begin anew."""
        path = Path(folder or self.folder) / PARAMETERS
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(self.parameter_server.save(path))

    def load_checkpoint(self, folder: str | Path | None = None) -> int:
        """Go on from a server's parameters; how many steps they have behind them."""
        self.parameter_server.load(Path(folder or self.folder) / PARAMETERS)
        self._workers, self._before = [], int(self.parameter_server.latest().steps)
        return self._before

    def _server(self) -> Any:
        """One that starts with the agent's weights and uses its optimiser."""
        return ParameterServer(self.agent.parameters(), optimiser=self.agent.optimiser())

    def _judged(self) -> Any:
        self.agent.set_parameters(self.parameter_server.latest().params)
        return self.agent

    def _open(self) -> None:
        self._check_open()
        if self._workers:
            return
        if self.parameter_server.latest() is None:
            raise ConfigError("this parameter server is empty; make it with agent.parameters(), or leave it out")
        self._workers = [self._worker(index, f"worker-{index}") for index in range(self.num_workers)]

    def _worker(self, index: int, name: str) -> Worker:
        parts = self.environment.worker(index), self.replay_buffer.worker(index)
        replica = self.agent.worker(index, self.parameter_server, name)
        return Worker(*parts, replica, self.parameter_server, self.clock)

    def _run(self, mode: Mode, *always: Any) -> None:
        failed: deque[BaseException] = deque()
        threads = [
            threading.Thread(target=self._work, args=(worker, failed), name=f"worker-{index}", daemon=True)
            for index, worker in enumerate(self._workers)
        ]
        for thread in threads:
            thread.start()
        try:
            shell.run([*always, self._keeping], self.clock, lambda: bool(failed) or self._over())
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if failed:
            raise failed[0]
        self.agent.set_parameters(self.parameter_server.latest().params)

    def _work(self, worker: Worker, failed: deque[BaseException]) -> None:
        """The life of one thread."""
        try:
            shell.run([self._role(worker)], self.clock, self._stop.is_set, self._may_step)
            self._finish(worker)
        except BaseException as error:  # a thread has nobody to raise it to
            failed.append(error)

    def _keep_every(self, steps: int) -> None:
        """The server is kept by the thread that watches: workers have nothing to keep."""
        self._keeping = Keeping(self, steps)

    def _role(self, worker: Worker) -> Role:
        """What a thread steps."""
        return worker

    def _share(self, total_steps: int) -> None:
        """All draw on the same steps: who is quicker makes more of them."""
        self._total = total_steps
        for worker in self._workers:
            worker.limit = total_steps
            worker.agent.learn_for(-(-total_steps // self.num_workers))

    def _all_made(self) -> bool:
        return self._made() >= self._total

    def _made(self) -> int:
        return self._before + super()._made()
