"""Files that are whole or not there, and disk errors that a person can act upon."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from millstream.core.errors import StorageError

_NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.EISDIR)
"""What a folder elsewhere would mend."""


def write_durably(path: Path, body: bytes | memoryview) -> None:
    """Written and on the disk."""
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, body: bytes) -> None:
    """A whole new file or the old one, whatever happens in between."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(draft, body)
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise storage_error(error, path) from error


def replace_folder(draft: Path, path: Path) -> None:
    """A whole new folder in the place of an old one; never a mixture, and never half of one.

    There are two renames: who is killed between them finds the old one beside the name, as `.NAME.old`.
    """
    for inner in draft.rglob("*"):
        sync_folder(inner)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    draft.rename(path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; what was written to a file just as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def storage_error(error: OSError, path: Path) -> StorageError:
    """What a person can do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"the disk is full: {path} could not be written; free some space, then mill resume")
    if error.errno in _NO_PLACE:
        return StorageError(f"{path} cannot be written ({error.strerror}); choose another place with --folder")
    return StorageError(f"{path} could not be written: {error.strerror or error}")
