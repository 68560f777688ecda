"""Trackers of other houses, as extras: Weights & Biases and MLflow."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.core.errors import ConfigError, MissingPart
from millstream.core.topics import Report
from millstream.telemetry.scalars import scalars, step_of, with_twins

_log = logging.getLogger("millstream.tracking")


class WandbSink:
    """Sends scalars to Weights & Biases, which reads its own account and mode (`WANDB_MODE`) from the environment."""

    def __init__(self, project: str, name: str, folder: Path | str, settings: Mapping[str, Any] | None = None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingPart.of("wandb", "wandb") from error
        Path(folder).mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(silent=True)  # its banner would tear the live display
        self._run = wandb.init(
            project=project,
            name=name,
            dir=str(folder),
            config=dict(settings or {}),
            settings=quiet,
            reinit="create_new",
        )
        # actors and learner count different steps, and W&B's own step must never go back
        self._run.define_metric("global_step")
        self._run.define_metric("*", step_metric="global_step")

    def write(self, report: Report) -> None:
        """Log the report's numbers; W&B sends them from a process of its own."""
        named = with_twins(scalars(report))
        if named:
            self._run.log({**named, "global_step": step_of(report)})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class MlflowSink:
    """Sends scalars to MLflow, in batches, because each call may be a request to a server."""

    def __init__(
        self,
        experiment: str,
        name: str,
        uri: str | None = None,
        settings: Mapping[str, Any] | None = None,
        every: float = 2.0,
    ) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise MissingPart.of("mlflow", "mlflow") from error
        from mlflow.exceptions import MlflowException

        self.every = every
        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
            place = found.experiment_id if found else self._client.create_experiment(experiment)
            self.run_id: str = self._client.create_run(place, run_name=name).info.run_id
        except MlflowException as error:
            cause = str(error).splitlines()[0]
            raise ConfigError(f"MLflow cannot be used: {cause}; set MLFLOW_TRACKING_URI to your server") from error
        self._pending: list[Any] = []
        self._sent_at = float("-inf")
        for key, value in (settings or {}).items():
            self._client.log_param(self.run_id, key, str(value)[:500])

    def write(self, report: Report) -> None:
        """Remember the report's numbers; send them every other second."""
        from mlflow.entities import Metric

        at, step = report["at"], step_of(report)
        named = with_twins(scalars(report))
        self._pending += [Metric(name, value, int(at * 1000), step) for name, value in named.items()]
        if at - self._sent_at >= self.every:
            self._send()
            self._sent_at = at

    def close(self) -> None:
        """Send the rest and end the run."""
        self._send()
        self._tolerate(lambda: self._client.set_terminated(self.run_id))

    def _send(self) -> None:
        while self._pending:
            batch, self._pending = self._pending[:1000], self._pending[1000:]  # a thousand is MLflow's limit
            self._tolerate(lambda batch=batch: self._client.log_batch(self.run_id, metrics=batch))

    def _tolerate(self, send: Any) -> None:
        """A tracker that is out of reach must not stop the training that it watches."""
        from mlflow.exceptions import MlflowException

        try:
            send()
        except (MlflowException, OSError) as error:
            _log.warning("MLflow did not take %s: %s", self.run_id, error)
