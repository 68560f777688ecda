"""Bytes that are larger than a message: cut into parts, each with the checksum of everything up to its end.

A part that is damaged, missing, doubled or out of its order does not match.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from millstream.core.errors import CodecError, TooLarge

PART = 1 << 20
"""Bytes of a part."""


def cut(data: bytes | bytearray | memoryview, size: int = PART) -> Iterator[tuple[bytes, int]]:
    """The parts, each with its checksum."""
    view, checksum = memoryview(data), 0
    for start in range(0, len(view), size):
        part = bytes(view[start : start + size])
        checksum = zlib.crc32(part, checksum)
        yield part, checksum


class Joined:
    """The parts of one thing, until all `size` bytes of it are there."""

    def __init__(self, size: int, limit: int) -> None:
        if not 0 <= size <= limit:
            raise TooLarge(f"{size:,} bytes are more than is taken at once, which is {limit:,}")
        self._data = bytearray()  # it grows with what came: a claim alone costs no memory
        self._size = size
        self._checksum = 0

    def add(self, part: bytes, checksum: int) -> None:
        """The next part."""
        self._checksum = zlib.crc32(part, self._checksum)
        if self._checksum != checksum or len(self._data) + len(part) > self._size:
            raise CodecError(
                f"a part at byte {len(self._data):,} does not match its checksum or its size; send it again"
            )
        self._data += part

    def whole(self) -> memoryview:
        """All of it; CodecError when parts are missing."""
        if len(self._data) != self._size:
            raise CodecError(f"{len(self._data):,} bytes arrived and {self._size:,} were announced; send it again")
        return memoryview(self._data)
