"""TensorBoard's event files, written by hand.

The format is one small protocol-buffer message a record. The libraries that write it import torch whenever
it is installed, a second and a half before the first training step, and write from a thread of their own
where a full disk ends in a traceback. tests/telemetry/test_tensorboard.py reads the files with TensorBoard itself.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from millstream.core.files import storage_error
from millstream.core.topics import Report
from millstream.telemetry.scalars import scalars, step_of, with_twins


class TensorBoard:
    """A sink that writes scalars against the global step, under CleanRL's and Stable-Baselines3's names."""

    def __init__(self, folder: Path | str, settings: Mapping[str, object] | None = None) -> None:
        self.folder = Path(folder)
        self.settings = settings
        self._file: BinaryIO | None = None
        self._flushed_at = float("-inf")

    def write(self, report: Report) -> None:
        """Append the report's numbers as one event."""
        named = with_twins(scalars(report))
        if not named:
            return
        values = [_scalar(name, value) for name, value in named.items()]
        self._append(report["at"], step_of(report), values)

    def close(self) -> None:
        """Write the rest and let go."""
        if self._file:
            self._told(self._file.close)

    def _append(self, at: float, step: int, values: list[bytes]) -> None:
        if self._file is None:  # a run that says nothing leaves no empty file for TensorBoard to list
            self._told(lambda: self._start(at))
        self._told(lambda: self._record(_event(at, step, b"".join(_field(1, value) for value in values))))
        if at - self._flushed_at >= 1.0 and self._file:
            self._told(self._file.flush)
            self._flushed_at = at

    def _start(self, at: float) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(at):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = (self.folder / name).open("ab")
        self._record(_double(1, at) + _field(3, b"brain.Event:2"))
        if self.settings:
            rows = "".join(f"|{name}|{value}|\n" for name, value in self.settings.items())
            self._record(_event(at, 0, _field(1, _text("hyperparameters", f"|param|value|\n|-|-|\n{rows}"))))

    def _record(self, data: bytes) -> None:
        assert self._file is not None
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))

    def _told(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            raise storage_error(error, self.folder) from error


# --- protocol buffers: (field number, wire type), then the value --------------------------------------------------


def _event(at: float, step: int, summary: bytes) -> bytes:
    return _double(1, at) + _number(2, step) + _field(5, summary)


def _scalar(tag: str, value: float) -> bytes:
    return _field(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, value)


def _text(tag: str, text: str) -> bytes:
    strings = 7  # DT_STRING
    tensor = _number(1, strings) + _field(2, _field(2, _number(1, 1))) + _field(8, text.encode())
    plugin = _field(1, _field(1, b"text"))
    return _field(1, f"{tag}/text_summary".encode()) + _field(8, tensor) + _field(9, plugin)


def _double(number: int, value: float) -> bytes:
    return struct.pack("<Bd", number << 3 | 1, value)


def _number(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _varint(value)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(byte)
    return tuple(table)


_CRC = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    # TFRecord masks its checksums, because a checksum of data that contains checksums is weak
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
