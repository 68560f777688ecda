"""Arrays that live on disk, for more than memory holds."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.files import storage_error


def mapped(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros in a file of that folder. It has no name: when nobody holds the array any more, its room is free again.

    The room is reserved now where the system can do that: a disk that is full later on would end the process without a
    word.
    """
    count = int(np.prod(shape, dtype=np.int64))
    size = count * dtype.itemsize
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            held = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise storage_error(error, folder) from error
    held.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(held, dtype, count).reshape(shape)
