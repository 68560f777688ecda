"""The real W&B (offline) and MLflow (a local file) when they are installed."""

import sys
import time

import pytest

from millstream.core.errors import MissingPart
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder
from millstream.telemetry.tracking import MlflowSink, WandbSink


@pytest.mark.parametrize(
    ("module", "make"),
    [("wandb", lambda folder: WandbSink("p", "n", folder)), ("mlflow.tracking", lambda folder: MlflowSink("p", "n"))],
)
def test_a_missing_package_is_named_with_what_to_install(tmp_path, monkeypatch, module, make):
    monkeypatch.setitem(sys.modules, module, None)
    extra = module.partition(".")[0]
    with pytest.raises(MissingPart, match=rf"pip install 'millstream\[{extra}\]'"):
        make(tmp_path)


def record(sink, reports):
    recorder = Recorder(lambda limit: (), [sink], Progress(started_at=1000.0))
    recorder.write(reports.actor([3.0, 5.0], steps=300))
    recorder.write(reports.update(steps=200, at=1001.1))
    recorder.write(reports.update(update=2, steps=300, at=1001.2))
    recorder.close()


def test_mlflow_keeps_every_number_at_its_step(tmp_path, monkeypatch, reports):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    sink = MlflowSink("millstream", "run-1", (tmp_path / "mlruns").as_uri(), {"seed": 1})
    record(sink, reports)
    client = sink._client
    run = client.get_run(sink.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"seed": "1"}
    assert run.data.metrics["charts/episodic_return"] == 4.0
    history = client.get_metric_history(sink.run_id, "losses/value_loss")
    assert [(metric.step, metric.value) for metric in history] == [(200, 3.0), (300, 3.0)]


def test_a_tracker_out_of_reach_does_not_stop_the_run(tmp_path, monkeypatch, reports, caplog):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow.exceptions import MlflowException

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    sink = MlflowSink("millstream", "run-1", (tmp_path / "mlruns").as_uri())

    def refuse(*_, **__):
        raise MlflowException("no route to host")

    monkeypatch.setattr(sink._client, "log_batch", refuse)
    record(sink, reports)
    assert "no route to host" in caplog.text


def test_wandb_gets_every_number_with_its_global_step(tmp_path, monkeypatch, reports):
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")
    logged = []

    class Run:
        def define_metric(self, name, step_metric=None):
            logged.append((name, step_metric))

        def log(self, values):
            logged.append(values)

        def finish(self):
            logged.append("finished")

    monkeypatch.setattr(wandb, "init", lambda **_: Run())
    record(WandbSink("millstream", "run-1", tmp_path), reports)
    assert logged[1] == ("*", "global_step")
    assert [values["global_step"] for values in logged[2:5]] == [300, 200, 300]
    assert logged[2]["charts/episodic_return"] == 4.0
    assert logged[-1] == "finished"


def whole_records(path) -> bytes:
    """What a W&B file holds, without the headers (checksum, length, kind) that cut it at every block of 32 KiB."""
    data, place, parts = path.read_bytes(), 7, []
    while place + 7 <= len(data):
        length = int.from_bytes(data[place + 4 : place + 6], "little")
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        left = -place % 32768
        place += left if left < 7 else 0
    return b"".join(parts)


def test_the_real_wandb_writes_an_offline_run(tmp_path, monkeypatch, reports):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    record(WandbSink("millstream", "run-1", tmp_path, {"seed": 1}), reports)
    (run,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 30  # W&B's own process writes the file, a moment after `finish` has returned
    while b"charts/episodic_return" not in whole_records(run):
        assert time.monotonic() < deadline, "the run's file does not hold the return"
        time.sleep(0.05)
