from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from millstream.core.data import Params
from millstream.core.errors import CheckpointError, RunError
from millstream.parameters import saving
from millstream.parameters.server import ParameterServer
from tests.parameters.serving import START, at, flat, together


def trained() -> ParameterServer:
    params = Params({"weights": np.arange(3, dtype=np.float32), "mean": np.array([0.5])}, {"epsilon": 0.25})
    server = ParameterServer(params, learning_rate=1.0)
    server.push_gradients("a", START, [1, 2, 4], samples=12)
    return server


def test_a_saved_server_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    server = trained()
    path = server.save(tmp_path / "deep" / "server.safetensors")
    assert load_file(path)["tensors/weights"].tolist() == flat(server)  # anyone can read it
    for other in (ParameterServer(), ParameterServer(server.get().params)):
        assert other.load(path) == other.version == at(1, epoch=1)
        read = other.get()
        assert flat(other) == [-1, -1, -2] and flat(other, "mean") == [0.5]
        assert read.params.hyper == {"epsilon": 0.25} and read.steps == 12
        assert other.push_gradients("a", at(1, epoch=1), [1, 1, 1]).accepted
        assert other.push_gradients("a", at(1), [1, 1, 1]).reason.startswith("epoch: ")


def test_going_back_is_newer_than_what_was_given_up(tmp_path: Path) -> None:
    server = trained()
    path = server.save(tmp_path / "server")
    server.push_gradients("a", at(1), [1, 1, 1])
    given_up = server.version
    assert server.load(path) > given_up and flat(server) == [-1, -1, -2]
    assert server.latest(given_up) is not None
    assert server.load(path, epoch=9) == at(1, epoch=9)
    assert server.load(path, epoch=3) == at(1, epoch=10)  # never an epoch that was there before


def test_a_truncated_file_is_refused_at_every_length(tmp_path: Path) -> None:
    server, path = trained(), tmp_path / "server"
    whole = server.save(path).read_bytes()
    before = server.get()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="stays as it was"):
            server.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError):
        server.load(path)
    assert server.get() is before


def test_a_file_with_any_bit_flipped_is_refused(tmp_path: Path) -> None:
    server, path = trained(), tmp_path / "server"
    whole = server.save(path).read_bytes()
    before = server.get()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            server.load(path)
    assert server.get() is before
    path.write_bytes(whole)
    server.load(path)


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    server, path = trained(), tmp_path / "server"
    with pytest.raises(CheckpointError, match="No such file"):
        server.load(path)
    for metadata in (None, {"parameters": "{}"}, {"parameters": "{}", "seal": "0" * 64}):
        save_file({"tensors/weights": np.zeros(3, np.float32)}, path, metadata)
        with pytest.raises(CheckpointError):
            server.load(path)
    with pytest.raises(CheckpointError, match="names and shapes"):
        server.load(ParameterServer(np.zeros(2)).save(path))
    assert server.version == at(1)


def test_a_save_that_fails_leaves_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, path = trained(), tmp_path / "server"
    server.save(path)
    before = path.read_bytes()
    server.push_gradients("a", at(1), [1, 1, 1])
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(Exception, match="disk is full"):
        server.save(path)
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["server"]
    with pytest.raises(RunError, match="nothing to save"):
        ParameterServer().save(path)


class Momentum:
    """An optimiser that remembers, and says what."""

    def __init__(self) -> None:
        self.velocity, self.count = np.zeros(3, np.float32), 0

    def __call__(self, weights: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        self.velocity *= 0.5
        self.velocity += gradients
        self.count += 1
        return weights - self.velocity

    def snapshot(self) -> dict[str, Any]:
        return {"velocity": self.velocity, "count": self.count}

    def restore(self, snapshot: Any) -> None:
        if np.shape(snapshot["velocity"]) != (3,):
            raise ValueError("another shape")
        self.velocity, self.count = np.array(snapshot["velocity"]), snapshot["count"]


def test_an_optimiser_that_remembers_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    server, other = (ParameterServer(np.zeros(3), optimiser=Momentum()) for _ in range(2))
    server.push_gradients("a", START, [1, 2, 3])
    other.load(server.save(tmp_path / "server"))
    for each in (server, other):
        assert each.push_gradients("a", each.version, [1, 0, 0]).accepted
    assert flat(server) == flat(other) == [-2.5, -3, -4.5]
    with pytest.raises(CheckpointError, match="give the server that optimiser"):
        ParameterServer(np.zeros(3)).load(tmp_path / "server")


def test_what_moves_while_the_file_is_written_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, momentum = ParameterServer(np.zeros(3), optimiser=Momentum()), Momentum()
    server.push_gradients("a", START, [1, 2, 3])
    encode = saving.encode

    def push_and_encode(saved: saving.Saved) -> bytes:
        assert server.push_gradients("b", at(1), [50, 50, 50]).accepted  # nobody waits for the disk
        return encode(saved)

    monkeypatch.setattr(saving, "encode", push_and_encode)
    ParameterServer(optimiser=momentum).load(server.save(tmp_path / "server"))
    assert momentum.velocity.tolist() == [1, 2, 3] and momentum.count == 1


def test_saving_and_pushing_at_once_saves_whole_versions(tmp_path: Path) -> None:
    server = ParameterServer(np.zeros(3), optimiser=Momentum())
    path = tmp_path / "server"

    def work(index: int) -> None:
        for _ in range(20):
            if index:
                server.push_gradients(index, server.version, np.zeros(3))
            else:
                server.save(path)
                momentum = Momentum()
                assert ParameterServer(optimiser=momentum).load(path).number == momentum.count

    together(3, work)
