from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from millstream.core.errors import CheckpointError, StorageError
from millstream.learner import checkpoint
from millstream.learner.checkpoint import Checkpoints

ABOUT = {"algo": "ppo", "env": "CartPole-v1", "steps": 4096, "spec": {"id": "x"}}


def state(number: int) -> dict[str, Any]:
    return {"weights": np.full(50, number, np.float32), "count": number, "deep": [{"a": np.array(number)}, None]}


def save(folder: Path, *numbers: int, keep: int = 3) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep)
    for number in numbers:
        checkpoints.save(number, state(number), ABOUT)
    return checkpoints


def numbers(checkpoints: Checkpoints) -> list[int]:
    return [each.number for each in checkpoints.saved()]


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    number, loaded, about, warnings = save(tmp_path / "deep" / "er", 7).load()
    assert (number, about, warnings) == (7, ABOUT, [])
    assert loaded["weights"].tolist() == [7] * 50 and loaded["weights"].dtype == np.float32
    assert loaded["count"] == 7 and loaded["deep"][0]["a"] == 7 and loaded["deep"][1] is None


def test_its_arrays_can_be_opened_by_anyone_under_their_names(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(3, state(3), ABOUT)
    assert sorted(load_file(path / "state.safetensors")) == ["deep/0/a", "weights"]
    manifest = json.loads((path / "MANIFEST.json").read_text())
    assert manifest["about"] == ABOUT and len(manifest["files"]["state.json"]["sha256"]) == 64


def test_the_newest_few_are_kept_and_the_newest_is_loaded(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2, 3, 4, 10, keep=3)
    assert numbers(checkpoints) == [3, 4, 10] and checkpoints.load()[0] == 10
    assert sorted(each.name for each in tmp_path.iterdir()) == ["00000003", "00000004", "00000010"]


def test_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 99_999_999, 100_000_000, keep=2)
    assert numbers(checkpoints) == [99_999_999, 100_000_000] and checkpoints.load()[0] == 100_000_000


def test_one_can_be_asked_for_by_number(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2, 3)
    assert checkpoints.load(2)[0] == 2 and checkpoints.load(2)[1]["count"] == 2
    with pytest.raises(CheckpointError, match=r"no checkpoint 9 in .*; there: 1, 2, 3"):
        checkpoints.load(9)


def test_where_none_is_whole_it_says_what_to_do(tmp_path: Path) -> None:
    checkpoints = save(tmp_path / "checkpoints", 1, 2)
    for number in (1, 2):
        (tmp_path / "checkpoints" / f"{number:08d}" / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match=f"is whole: checkpoint 2 .*mill train --from {tmp_path}$") as caught:
        checkpoints.load()
    assert "using the one before" not in str(caught.value)


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").saved() == []
    with pytest.raises(CheckpointError, match="there: none"):
        Checkpoints(tmp_path / "none").load()


FILES = ("MANIFEST.json", "state.safetensors", "state.json")


def test_every_flipped_bit_is_found_and_the_one_before_is_used(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2)
    whole = checkpoints.load()[1]
    for name in FILES:
        path = tmp_path / "00000002" / name
        body = path.read_bytes()
        for position in range(0, len(body), 3):
            broken = bytearray(body)
            broken[position] ^= 1 << (position % 8)
            path.write_bytes(broken)
            number, loaded, about, warnings = checkpoints.load()
            if number == 2:  # white space between the words of a manifest
                assert (name, about) == ("MANIFEST.json", ABOUT) and loaded["count"] == whole["count"]
                assert json.loads(broken) == json.loads(body)
            else:
                assert number == 1 and loaded["count"] == 1
                assert len(warnings) == 1 and "checkpoint 2 is damaged" in warnings[0]
        path.write_bytes(body)
    assert checkpoints.load()[0] == 2


@pytest.mark.parametrize("name", FILES)
def test_a_shortened_or_missing_file_is_found(tmp_path: Path, name: str) -> None:
    checkpoints = save(tmp_path, 1, 2)
    path = tmp_path / "00000002" / name
    body = path.read_bytes()
    for length in {0, 1, len(body) // 2, len(body) - 1}:
        path.write_bytes(body[:length])
        assert checkpoints.load()[0] == 1
    path.write_bytes(body + b"\0")
    assert checkpoints.load()[0] == 1
    path.unlink()
    assert checkpoints.load()[0] == 1
    path.mkdir()
    assert checkpoints.load()[0] == 1


def test_a_later_schema_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(checkpoint, "SCHEMA", 2)
    with pytest.raises(CheckpointError, match="its schema is 1, this version reads 2"):
        Checkpoints(tmp_path).load()


def test_when_all_are_damaged_each_is_named(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2)
    for each in checkpoints.saved():
        (each.folder / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is whole: .*checkpoint 2 .*checkpoint 1 "):
        checkpoints.load()
    with pytest.raises(CheckpointError, match=r"checkpoint 1 in .* is damaged"):
        checkpoints.load(1)


def test_drafts_that_a_crash_left_are_ignored_and_cleaned(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for name in (".00000002.draft", ".00000009.draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text("half")
    (tmp_path / "notes.txt").write_text("a user's own")
    (tmp_path / "²").mkdir()
    checkpoints = Checkpoints(tmp_path)
    assert numbers(checkpoints) == [1] and checkpoints.load()[0] == 1
    save(tmp_path, 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["00000001", "00000002", "notes.txt", "²"]


def test_a_run_that_went_back_is_continued_from_its_new_course(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 10, 20, 30, keep=1)
    assert numbers(checkpoints) == [30]
    save(tmp_path, 10, keep=3)  # somebody went back and saved again
    assert numbers(checkpoints) == [10] and checkpoints.load()[0] == 10


def test_a_damaged_one_never_pushes_out_what_was_just_saved(tmp_path: Path) -> None:
    save(tmp_path, 20, 30)
    (tmp_path / "00000030" / "state.json").write_text("half")
    checkpoints = save(tmp_path, 25, keep=1)
    assert checkpoints.load()[0] == 25


def test_the_same_number_can_be_saved_again(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 5)
    checkpoints.save(5, state(50), ABOUT)
    assert checkpoints.load()[1]["count"] == 50


def test_what_cannot_be_saved_leaves_the_others_and_no_draft(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1)
    with pytest.raises(CheckpointError, match="env is a set"):
        checkpoints.save(2, {"env": {1, 2}}, ABOUT)
    assert [each.name for each in tmp_path.iterdir()] == ["00000001"]


def test_a_full_disk_leaves_the_others_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = save(tmp_path, 1)
    written: list[str] = []

    def fill(path: Path, body: bytes) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path.name)
        path.write_bytes(body)

    monkeypatch.setattr(checkpoint, "write_durably", fill)
    with pytest.raises(StorageError, match="the disk is full"):
        checkpoints.save(2, state(2), ABOUT)
    assert [each.name for each in tmp_path.iterdir()] == ["00000001"] and checkpoints.load()[0] == 1


KILLED = """
import itertools, os, signal, sys
from pathlib import Path
import numpy as np
from millstream.learner import checkpoint
from millstream.learner.checkpoint import Checkpoints

CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "half")
write = checkpoint.write_durably

def half(path, body):
    with path.open("wb") as file:
        file.write(body[: len(body) // 2])
        file.flush()
        sys.audit("half")
    write(path, body)

KEEP, NUMBERS = int(sys.argv[2]), [int(number) for number in sys.argv[3:]]

def child(folder, moment, done):
    left = itertools.count(1)
    def hook(event, _):
        if event in CHANGES and next(left) == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    checkpoint.write_durably = half
    sys.addaudithook(hook)
    for number in NUMBERS:
        Checkpoints(folder, KEEP).save(number, {"w": np.full(3000, number), "n": number}, {})
        os.write(done, b"x")
    os._exit(0)

for moment in itertools.count(1):
    folder = Path(sys.argv[1]) / str(moment)
    for number in (1, 2):
        Checkpoints(folder, KEEP).save(number, {"w": np.full(3000, number), "n": number}, {})
    read, done = os.pipe()
    pid = os.fork()
    if not pid:
        child(folder, moment, done)
    os.close(done)
    _, status = os.waitpid(pid, 0)
    finished = len(os.read(read, 9))
    os.close(read)
    number, state, _, _ = Checkpoints(folder).load()
    assert (state["w"] == number).all() and state["n"] == number, moment
    before = [2, *NUMBERS][finished]
    # a number that is saved again makes room first; then the one before it remains
    assert number >= (3 if NUMBERS[finished:] == [before] else before), (moment, number, finished)
    Checkpoints(folder, KEEP).save(9, {"n": 9}, {})
    assert len(list(folder.iterdir())) == KEEP, list(folder.iterdir())
    if os.WIFEXITED(status):
        print(moment)
        break
"""


@pytest.mark.parametrize(("keep", "numbers"), [(1, "3 4"), (2, "3 4 4")])
def test_whenever_it_is_killed_a_whole_checkpoint_is_there(tmp_path: Path, keep: int, numbers: str) -> None:
    """Killed -9 before each change to the disk and in the middle of each file, one moment after another."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(keep), *numbers.split()]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 20  # so many moments there were
