"""Anonymous memory that processes share by descriptor: nothing to name, nothing to leak."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading

PAGE = 4096

_turnstile = threading.Lock()


def create(name: str) -> int:
    """An empty file without a path; it lives as long as someone holds it. `name` is for people who debug."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"millstream-{name}", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=f"millstream-{name}-")
    os.unlink(path)  # noqa: PTH108
    return descriptor


def size(descriptor: int) -> int:
    """How many bytes the file has."""
    return os.fstat(descriptor).st_size


def mapped(descriptor: int, length: int) -> memoryview:
    """The first bytes of the file as memory that all holders see."""
    return memoryview(mmap.mmap(descriptor, length))


def rounded(length: int) -> int:
    """Whole pages."""
    return -(-length // PAGE) * PAGE


def fence() -> None:
    """All writes before are seen by other processes before any write after.

    x86 promises this by itself; ARM only around locks, and a write may slip into one critical section from both
    sides, but not across two.
    """
    with _turnstile:
        pass
    with _turnstile:
        pass
