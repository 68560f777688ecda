"""A file that only grows, and what a crash leaves of it."""

import pytest

from millstream.control.journal import Journal, read
from millstream.core.errors import CodecError, StorageError


def test_entries_are_read_back_in_order(tmp_path):
    path = tmp_path / "folder" / "journal.jsonl"
    with Journal(path, durable=True) as journal:
        for number in range(3):
            journal.append({"update": number})
            assert len(list(read(path))) == number + 1  # visible at once
    with Journal(path) as journal:
        journal.append({"update": 3})
    assert list(read(path)) == [{"update": number} for number in range(4)]


def test_a_journal_that_is_not_there_is_empty(tmp_path):
    assert list(read(tmp_path / "none")) == []


@pytest.mark.parametrize("torn", [b'{"update": 1', b"x" * 200_000])
def test_a_torn_last_line_is_ignored_and_does_not_spoil_the_next(tmp_path, torn):
    path = tmp_path / "journal"
    path.write_bytes(b'{"update": 0}\n' + torn)
    assert list(read(path)) == [{"update": 0}]
    with Journal(path) as journal:
        journal.append({"update": 1})
    assert list(read(path)) == [{"update": 0}, {"update": 1}]


def test_damage_in_the_middle_is_named(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(b'{"update": 0}\n{"upd\n{"update": 2}\n')
    with pytest.raises(CodecError, match="line 2"):
        list(read(path))


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        Journal(tmp_path / "file" / "journal")


def test_a_full_disk_is_a_storage_error():
    from pathlib import Path

    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    journal = Journal.__new__(Journal)
    journal.path, journal._durable, journal._file = full, False, full.open("wb")
    with pytest.raises(StorageError, match="No space"):
        journal.append({"update": 0})
    journal._file.raw.close()
