"""The latest policy in memory that processes share: three buffers, and the count that chooses one written last."""

from __future__ import annotations

import os
import zlib

from millstream.core import codec
from millstream.core.data import NONE, Policy, Version, check_newer
from millstream.core.errors import CodecError
from millstream.wires import pages

_MAGIC = 0x4D494C4C504F4C59  # "MILLPOLY"
_BUFFERS = 3
# Places in the first page, in words of eight bytes. Each buffer has four words: epoch, number, length, checksum.
_FORMAT, _CAPACITY, _COUNT, _ABOUT, _WORDS = 0, 1, 8, 16, 8
_GROWTH = 1.25
_ROOM = 64 << 10
_TRIES = 4


class SharedPolicies:
    """The learner publishes, everyone else reads, and neither waits. The first publish gives the memory its size."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._words: memoryview | None = None
        self._buffers: list[memoryview] = []

    @classmethod
    def create(cls, name: str = "policies") -> SharedPolicies:
        """A store over new memory."""
        return cls(pages.create(name))

    @property
    def version(self) -> Version:
        """The latest version; NONE when there is none."""
        words = self._words or self._attached()
        count = words[_COUNT] if words else 0
        return self._version(words, count) if words and count else NONE

    @property
    def capacity(self) -> int:
        """Bytes of the largest policy that fits; 0 before the first."""
        words = self._words or self._attached()
        return words[_CAPACITY] if words else 0

    def publish(self, policy: Policy) -> None:
        """Make this the latest; Fenced when it is not newer, because then another learner is at work."""
        data = codec.encode_policy(policy)
        words = self._words or self._formatted(len(data))
        count = words[_COUNT]
        if count:
            check_newer(policy.version, self._version(words, count))
        if len(data) > words[_CAPACITY]:
            raise CodecError(f"a policy of {len(data)} bytes does not fit: the first one left room for "
                             f"{words[_CAPACITY]}; a policy must not grow while a run lives")  # fmt: skip
        buffer, about = (count + 1) % _BUFFERS, self._about(count + 1)
        self._buffers[buffer][: len(data)] = data
        words[about], words[about + 1] = policy.version.epoch, policy.version.number
        words[about + 2], words[about + 3] = len(data), zlib.crc32(data)
        pages.fence()
        words[_COUNT] = count + 1

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The latest policy, or None when there is nothing newer than that; None costs three words."""
        words = self._words or self._attached()
        if words is None:
            return None
        for _ in range(_TRIES):
            count = words[_COUNT]
            if not count or self._version(words, count) <= newer_than:
                return None
            policy = self._read(words, count)
            if policy is not None:
                return policy
            if words[_COUNT] == count:  # damaged, not overtaken
                policy = self._read(words, count - 1) if count > 1 else None
                return policy if policy is not None and policy.version > newer_than else None
        return None

    def close(self) -> None:
        """Let go of the descriptor."""
        self._words, self._buffers = None, []
        os.close(self.descriptor)

    def _read(self, words: memoryview, count: int) -> Policy | None:
        about = self._about(count)
        length, checksum = words[about + 2], words[about + 3]
        if not 0 < length <= words[_CAPACITY]:
            return None
        data = bytes(self._buffers[count % _BUFFERS][:length])  # a copy: the writer may come round while we read
        return codec.decode_policy(data) if zlib.crc32(data) == checksum else None

    def _version(self, words: memoryview, count: int) -> Version:
        about = self._about(count)
        return Version(words[about], words[about + 1])

    def _about(self, count: int) -> int:
        return _ABOUT + _WORDS * (count % _BUFFERS)

    def _attached(self) -> memoryview | None:
        if pages.size(self.descriptor) < pages.PAGE:
            return None
        words = pages.mapped(self.descriptor, pages.PAGE).cast("q")
        return self._map(words[_CAPACITY]) if words[_FORMAT] == _MAGIC else None

    def _formatted(self, length: int) -> memoryview:
        words = self._attached()
        if words is None:
            capacity = pages.rounded(int(length * _GROWTH) + _ROOM)
            os.ftruncate(self.descriptor, pages.PAGE + _BUFFERS * capacity)
            words = self._map(capacity)
            words[_CAPACITY] = capacity
            pages.fence()
            words[_FORMAT] = _MAGIC  # last: a writer killed before this leaves memory that counts as unformed
        return words

    def _map(self, capacity: int) -> memoryview:
        memory = pages.mapped(self.descriptor, pages.PAGE + _BUFFERS * capacity)
        body = memory[pages.PAGE :]
        self._buffers = [body[i * capacity : (i + 1) * capacity] for i in range(_BUFFERS)]
        self._words = memory[: pages.PAGE].cast("q")
        return self._words
