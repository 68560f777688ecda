"""One actor's slabs in memory that it shares with the learner: one writer, one reader, no lock.

The first page holds the counts; `window` slabs follow. The slab of rollout n is n modulo the window. The writer
counts a rollout as published after all of it is written, and the reader counts it as released after all of it is
read, so that kill -9 at any instruction loses nothing that was published and delivers nothing that was not.
"""

from __future__ import annotations

import os

from millstream.core import codec
from millstream.core.data import Rollout, Stamp
from millstream.core.errors import CodecError
from millstream.wires import pages

_MAGIC = 0x4D494C4C52494E47  # "MILLRING"
# Places in the first page, in words of eight bytes; each side's count has a cache line for itself.
_FORMAT, _SLAB, _WINDOW, _PUBLISHED, _RELEASED = 0, 1, 2, 8, 16
_EPOCHS, _SEQUENCES = 64, 256
WIDEST = 192
"""The largest window whose stamps fit into the first page."""
_SLACK = 4096


class Ring:
    """The slabs of one actor, by descriptor. Counts only grow; they are the positions of the bus."""

    def __init__(self, descriptor: int, window: int) -> None:
        if not 1 <= window <= WIDEST:
            raise CodecError(f"a window of {window} rollouts is not possible; choose 1 to {WIDEST}")
        self.descriptor = descriptor
        self._window = window
        self._words: memoryview | None = None
        self._slabs: list[memoryview] = []

    @classmethod
    def create(cls, name: str, window: int) -> Ring:
        """A ring over new memory; the actor gives it a size when it first claims."""
        return cls(pages.create(name), window)

    @property
    def published(self) -> int:
        """How many rollouts were ever published."""
        words = self._attached()
        return words[_PUBLISHED] if words else 0

    @property
    def released(self) -> int:
        """How many rollouts were ever released."""
        words = self._attached()
        return words[_RELEASED] if words else 0

    @property
    def waiting(self) -> int:
        """How many rollouts are published and not released."""
        return self.published - self.released

    @property
    def settled(self) -> int:
        """The sequence of the last rollout that was published, whichever life of the actor did it; -1 when none."""
        words = self._attached()
        if words is None or not words[_PUBLISHED]:
            return -1
        return words[_SEQUENCES + (words[_PUBLISHED] - 1) % self._window]

    @property
    def formed(self) -> bool:
        """Whether a writer has given the memory its size."""
        return self._attached() is not None

    # --- the writer's side

    def claim(self, size: int) -> memoryview | None:
        """The next slab, the same until it is published; None: the window is full."""
        words = self._attached() or self._form(size)
        published = words[_PUBLISHED]
        if published - words[_RELEASED] >= self._window:
            return None
        slab = self._slabs[published % self._window]
        if len(slab) < size:
            raise CodecError(f"a rollout needs {size} bytes and the slabs of this run have {len(slab)}")
        return slab

    def publish(self, rollout: Rollout) -> bool:
        """Add the header to the slab and count it; arrays that live in the slab stay where they are."""
        slab = self.claim(0 if self.formed else _needed(rollout))
        if slab is None or self._words is None:
            return False
        codec.seal(slab, rollout)
        self.commit(rollout.stamp.epoch, rollout.stamp.sequence)
        return True

    def commit(self, epoch: int, sequence: int) -> None:
        """Count the claimed slab as published: all of it is written."""
        words = self._words
        if words is None:
            raise CodecError("nothing was claimed, so there is nothing to publish")
        published = words[_PUBLISHED]
        place = published % self._window
        words[_EPOCHS + place], words[_SEQUENCES + place] = epoch, sequence
        pages.fence()
        words[_PUBLISHED] = published + 1

    # --- the reader's side

    def read(self, position: int) -> Rollout:
        """A rollout that is published and not released; its arrays live in the slab until it is released."""
        return codec.decode(self.slab(position))

    def slab(self, position: int) -> memoryview:
        """The memory of what is published and not released."""
        return self._slabs[position % self._window]

    def release(self, stamp: Stamp) -> None:
        """Give this slab and those before it back to the writer; nothing happens when that was done before."""
        words = self._attached()
        if words is None:
            return
        for position in range(words[_RELEASED], words[_PUBLISHED]):
            place = position % self._window
            if (words[_EPOCHS + place], words[_SEQUENCES + place]) == (stamp.epoch, stamp.sequence):
                self.free(position)
                return

    def free(self, position: int) -> None:
        """Give the slab of this position and those before it back to the writer."""
        words = self._attached()
        if words is not None:
            pages.fence()
            words[_RELEASED] = position + 1

    def close(self) -> None:
        """Let go of the descriptor; views that are still in use keep the memory."""
        self._words, self._slabs = None, []
        os.close(self.descriptor)

    def _attached(self) -> memoryview | None:
        if self._words is not None:
            return self._words
        if pages.size(self.descriptor) < pages.PAGE:
            return None
        words = pages.mapped(self.descriptor, pages.PAGE).cast("q")
        return self._map(words[_SLAB], words[_WINDOW]) if words[_FORMAT] == _MAGIC else None

    def _form(self, size: int) -> memoryview:
        slab = pages.rounded(size)
        os.ftruncate(self.descriptor, pages.PAGE + self._window * slab)
        words = self._map(slab, self._window)
        words[_SLAB], words[_WINDOW] = slab, self._window
        pages.fence()
        words[_FORMAT] = _MAGIC  # last: a writer killed before this leaves a ring that counts as unformed
        return words

    def _map(self, slab: int, window: int) -> memoryview:
        memory = pages.mapped(self.descriptor, pages.PAGE + window * slab)
        body = memory[pages.PAGE :]
        self._window = window
        self._slabs = [body[i * slab : (i + 1) * slab] for i in range(window)]
        self._words = memory[: pages.PAGE].cast("q")
        return self._words


def _needed(rollout: Rollout) -> int:
    arrays = codec.paths(rollout).values()
    return codec.HEADER_ROOM + sum(array.nbytes + 64 for array in arrays) + _SLACK
