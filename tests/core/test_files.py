from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.core import files
from millstream.core.errors import StorageError
from millstream.core.files import replace_durably, replace_folder, storage_error, write_durably


def test_a_file_is_replaced_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    replace_durably(path, b"old")
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new" and [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_folder_takes_the_place_of_another_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    for text in ("old", "new"):
        (tmp_path / "draft" / "inner").mkdir(parents=True)
        (tmp_path / "draft" / "inner" / text).write_text(text)
        replace_folder(tmp_path / "draft", tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder" / "inner").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("broken", ["write_durably", "sync_folder"])
def test_a_failure_is_one_of_ours_and_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "file"
    replace_durably(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, broken, fail)
    with pytest.raises(StorageError, match="the disk is full"):
        replace_durably(path, b"new")
    assert path.read_bytes() in (b"old", b"new") and [each.name for each in tmp_path.iterdir()] == ["file"]


def test_half_a_draft_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_durably(path, b"old")

    def write_half(draft: Path, body: bytes) -> None:
        draft.write_bytes(body[: len(body) // 2])
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(files, "write_durably", write_half)
    with pytest.raises(StorageError, match="the disk is full"):
        replace_durably(path, b"new")
    assert path.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_file_in_the_place_of_a_folder_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        replace_durably(tmp_path / "runs" / "file", b"new")


def test_a_name_that_is_too_long_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="could not be written"):
        replace_durably(tmp_path / ("x" * 300), b"new")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_device_is_noticed_and_not_only_when_it_is_too_late() -> None:
    with pytest.raises(OSError, match="No space"):
        write_durably(Path("/dev/full"), b"x")


SCRIPT = """
import os, sys
from pathlib import Path
from millstream.core.errors import StorageError
from millstream.core.files import replace_durably
path = Path(sys.argv[1]) / "file"
replace_durably(path, b"old")
try:
    replace_durably(path, os.urandom(1 << 20))
except StorageError as error:
    print(error)
print(path.read_bytes() == b"old", [each.name for each in path.parent.iterdir()])
"""


def test_on_a_full_disk_the_old_file_stays(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=256k none {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let users mount")
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$0" -c "$1" {tmp_path}', sys.executable, SCRIPT],
        capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip
    assert "the disk is full" in ran.stdout, ran.stderr
    assert "True ['file']" in ran.stdout


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "disk is full"), (errno.EROFS, "--folder"),
     (errno.EACCES, "--folder"), (errno.EIO, "Input/output error")],
)  # fmt: skip
def test_a_disk_error_says_what_to_do(number: int, words: str) -> None:
    said = str(storage_error(OSError(number, os.strerror(number)), Path("runs/x")))
    assert words in said and "runs/x" in said and "\n" not in said
