import subprocess
import sys
from pathlib import Path

import pytest

import millstream.telemetry
from millstream.core.errors import StorageError
from millstream.telemetry.progress import Progress
from millstream.telemetry.recorder import Recorder
from millstream.telemetry.tensorboard import TensorBoard, _masked_crc

START = 1000.0


def events(folder):
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader", reason="tensorboard reads the files back"
    )
    (file,) = folder.iterdir()
    return list(loader.RawEventFileLoader(str(file)).Load()), file


def accumulated(folder):
    module = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard reads the files back"
    )
    accumulator = module.EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def test_tensorboard_reads_what_was_written(tmp_path, reports):
    recorder = Recorder(lambda limit: (), [TensorBoard(tmp_path / "tb")], Progress(started_at=START))
    recorder.write(reports.actor([3.0, 5.0], steps=300, at=START + 1.25))
    recorder.write(reports.update(steps=300, at=START + 2))
    recorder.write(reports.update(steps=2**40, at=START + 3))
    recorder.write(reports.event())
    recorder.close()
    board = accumulated(tmp_path / "tb")
    assert [(e.wall_time, e.step, e.value) for e in board.Scalars("charts/episodic_return")] == [
        (START + 1.25, 300, 4.0)
    ]
    losses = board.Scalars("losses/policy_loss")
    assert [e.step for e in losses] == [300, 2**40]
    assert losses[0].value == pytest.approx(-0.02)
    assert {"train/value_loss", "mill/share_actors_act", "mill/policy_lag"} <= set(board.Tags()["scalars"])


def test_settings_are_shown_as_text(tmp_path, reports):
    sink = TensorBoard(tmp_path / "tb", {"learning_rate": 0.001, "env": "CartPole-v1"})
    sink.write(reports.update())
    sink.close()
    board = accumulated(tmp_path / "tb")
    (text,) = board.Tensors("hyperparameters/text_summary")
    assert b"|env|CartPole-v1|" in text.tensor_proto.string_val[0]


def test_every_record_passes_tensorboards_own_checksum(tmp_path, reports):
    sink = TensorBoard(tmp_path / "tb")
    for number in range(20):
        sink.write(reports.update(update=number, steps=number, at=START + number))
    sink.close()
    read, _ = events(tmp_path / "tb")
    assert len(read) == 21


def test_the_checksum_is_castagnolis():
    assert _masked_crc(b"123456789") == (((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32).to_bytes(
        4, "little"
    )


def test_a_run_that_says_nothing_leaves_no_file(tmp_path):
    TensorBoard(tmp_path / "tb").close()
    assert not (tmp_path / "tb").exists()


def test_a_folder_that_cannot_be_written_is_said_in_one_line(reports):
    with pytest.raises(StorageError, match=r"/proc/run/tb (cannot|could not) be written"):
        TensorBoard("/proc/run/tb").write(reports.update())


def test_nothing_heavy_is_imported_before_it_is_needed():
    folder = Path(millstream.telemetry.__file__).parent
    rooms = [f"millstream.telemetry.{path.stem}" for path in folder.glob("[a-z]*.py")]
    heavy = ["rich", "matplotlib", "PIL", "tensorboardX", "torch", "wandb", "mlflow", "sqlite3"]
    code = f"import sys, millstream.doors.display, {', '.join(rooms)}; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
