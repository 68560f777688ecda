"""A file that only grows: one JSON value a line, whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from millstream.core.errors import CodecError, StorageError

_BLOCK = 65536


class Journal:
    """Appends lines. A line torn by an earlier crash is cut off first, or the next one would be lost with it."""

    def __init__(self, path: Path, durable: bool = False) -> None:
        self.path = path
        self._durable = durable
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            self._file.truncate(_whole(path))
        except OSError as error:
            raise StorageError(f"the journal {path} cannot be written: {error}") from error

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line; after this it survives the death of the process, and with `durable` that of the machine."""
        try:
            self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
            self._file.flush()
            if self._durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"the journal {self.path} cannot be written: {error}") from error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a journal, also while it grows. A torn last line is not there yet; any other is damage."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise CodecError(f"line {number} of {path} is damaged: {error}") from error


def _whole(path: Path) -> int:
    """How many bytes there are up to the end of the last whole line."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0
