"""Tables and pools on disk: what is loaded goes on exactly, and whoever is killed leaves a save that is whole."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core import files
from millstream.core.errors import CheckpointError, ConfigError, StorageError
from millstream.replay import archive
from millstream.replay.cut import Sequences, n_step, transitions
from millstream.replay.pool import Pool
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import Table, queue
from tests.replay.making import Worlds


def alike(mine, theirs):
    """Two replays that pick and show the same."""
    one, other = mine.sample(9), theirs.sample(9)
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_array_equal(one.weights, other.weights)
    for name in ("actions", "rewards", "terminated", "truncated", "first", "valid", "final_at"):
        np.testing.assert_array_equal(getattr(one.rollouts[0], name), getattr(other.rollouts[0], name))
    np.testing.assert_array_equal(one.rollouts[0].observations["obs"], other.rollouts[0].observations["obs"])
    for name, frames in one.rollouts[0].carry.items():
        np.testing.assert_array_equal(frames, other.rollouts[0].carry[name])


@settings(max_examples=25, deadline=None)
@given(
    pool=st.booleans(), mapped=st.booleans(), image=st.booleans(), stack=st.integers(1, 3),
    cut=st.sampled_from([transitions(), n_step(3), Sequences(2)]), prioritised=st.booleans(),
    turns=st.lists(st.integers(0, 9), min_size=1, max_size=5), seed=st.integers(0, 99),
)  # fmt: skip
def test_what_was_saved_goes_on_as_what_was_not(
    tmp_path_factory, pool, mapped, image, stack, cut, prioritised, turns, seed
):
    folder = tmp_path_factory.mktemp("saved")

    def made(shards=1):
        select = Prioritised() if prioritised else Uniform()
        more = {"shards": shards} if pool else {}
        on_disk = {"folder": folder / "memory"} if mapped else {}
        return (Pool if pool else Table)(cut, select, capacity=25, rng=np.random.default_rng(seed), **more, **on_disk)

    one, world = made(3), Worlds(0, 2, seed, image, stack)
    for many in turns:  # each save but the first writes only what is new
        for _ in range(many):
            one.insert(world.rollout(3))
        if many and prioritised:
            picked = one.sample(5)
            one.reprioritise(picked.keys, np.random.default_rng(many).random(5))
        one.save(folder / "save")
        other = made()
        other.load(folder / "save")
        assert (one.inserted, one.sampled, one.waiting) == (other.inserted, other.sampled, other.waiting)
    other.save(folder / "save")  # on top of what it found there
    third = made()
    third.load(folder / "save")
    for _ in range(3):
        rollout = world.rollout(3)
        assert one.insert(rollout) == other.insert(rollout) == third.insert(rollout)
        if one.waiting:
            one_state = one.rng.bit_generator.state
            alike(one, other)
            one.rng.bit_generator.state = one_state
            alike(one, third)


def filled(turns=4, **how):
    pool, world = Pool(transitions(), capacity=20, shards=2, rng=np.random.default_rng(0), **how), Worlds(0, 2, 0)
    for _ in range(turns):
        pool.insert(world.rollout(2))
    return pool, world


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def test_a_save_writes_what_is_new_and_what_left_goes(tmp_path):
    pool, world = filled()
    pool.save(tmp_path)
    before = sizes(tmp_path)
    pool.insert(world.rollout(2))
    pool.save(tmp_path)
    fresh = [name for name in sizes(tmp_path) if name not in before and "records" in name]
    width = pool.memory.records.itemsize
    assert [sizes(tmp_path)[name] for name in fresh] == [4 * width]
    for _ in range(40):
        pool.insert(world.rollout(2))
        pool.save(tmp_path)
    assert sum(size for name, size in sizes(tmp_path).items() if "records" in name) <= (40 + 8) * width


def test_many_small_pieces_are_written_anew_as_few(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "_MOST", 3)
    pool, world = filled()
    for _ in range(12):
        pool.insert(world.rollout(1))
        pool.save(tmp_path)
    assert len([name for name in sizes(tmp_path) if "records" in name]) <= 2 * 5
    other = filled(0)[0]
    other.load(tmp_path)
    alike(pool, other)


def test_a_snapshot_that_is_restored_is_not_mixed_with_what_was_saved(tmp_path):
    table, other = (Table(transitions(), capacity=20, rng=np.random.default_rng(0)) for _ in range(2))
    table.insert(Worlds(0, 2, seed=1).rollout(3))
    table.save(tmp_path)
    other.insert(Worlds(0, 2, seed=2).rollout(3))
    table.restore(other.snapshot())
    table.save(tmp_path)
    found = Table(transitions(), capacity=20)
    found.load(tmp_path)
    np.testing.assert_array_equal(found.sample(64).rollouts[0].rewards, other.sample(64).rollouts[0].rewards)


@pytest.mark.parametrize("which", ["MANIFEST.json", "state", "records"])
@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_a_damaged_save_is_named_and_changes_nothing(tmp_path, which, harm):
    filled()[0].save(tmp_path)
    path = next(path for path in sorted(tmp_path.iterdir()) if which in path.name)
    body = bytearray(path.read_bytes())
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(body[: len(body) // 2])
    else:
        body[len(body) // 2] ^= 1
        path.write_bytes(body)
    other, _ = filled(3)
    with pytest.raises(CheckpointError, match=path.name.replace(".", r"\.")):
        other.load(tmp_path)
    alike(other, filled(3)[0])


def test_a_save_of_other_settings_is_refused(tmp_path):
    filled()[0].save(tmp_path)
    for other, words in (
        (Pool(transitions(), capacity=21), "capacity 20"), (Pool(n_step(2), capacity=20), "steps=1"),
        (Pool(transitions(), Prioritised(), capacity=20), "select Uniform"),
        (Table(transitions(), capacity=20), "a pool"),
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match=words):
            other.load(tmp_path)
    with pytest.raises(CheckpointError, match="no table was saved"):
        filled()[0].load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="whole rollouts"):
        queue(2).save(tmp_path)


def test_a_full_disk_is_told_and_leaves_the_save_before(tmp_path, monkeypatch):
    pool, world = filled()
    pool.save(tmp_path)
    kept = filled()[0]
    pool.insert(world.rollout(2))
    writes = []

    def full(path, body):
        writes.append(path)
        if len(writes) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        files.write_durably(path, body)

    monkeypatch.setattr(archive, "write_durably", full)
    with pytest.raises(StorageError, match="disk is full"):
        pool.save(tmp_path)
    monkeypatch.undo()
    other = filled(0)[0]
    other.load(tmp_path)
    alike(other, kept)
    pool.save(tmp_path)
    other.load(tmp_path)
    assert other.waiting == pool.waiting


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        filled()[0].save(tmp_path / "file" / "save")
    with pytest.raises(StorageError, match="cannot be written"):
        Table(transitions(), capacity=9, folder=tmp_path / "file" / "memory").insert(Worlds(0, 1, 0).rollout(1))


def test_a_disk_that_has_no_room_for_a_mapped_table_is_told_before_anything_is_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="disk is full"):
        Table(transitions(), capacity=9, folder=tmp_path).insert(Worlds(0, 1, 0).rollout(1))
    assert list(tmp_path.iterdir()) == []


def test_mapped_steps_leave_no_file_behind(tmp_path):
    table = Table(transitions(), capacity=50, folder=tmp_path)
    table.insert(Worlds(0, 2, 0, image=True).rollout(5))
    assert table.sample(4) is not None and list(tmp_path.iterdir()) == []


SAVES = """
import sys
import numpy as np
from millstream.replay.cut import n_step
from millstream.replay.pool import Pool
from millstream.replay.select import Prioritised
from tests.replay.making import Worlds
pool, world = Pool(n_step(2), Prioritised(), capacity=200, shards=3), Worlds(0, 4, 1)
while True:
    pool.insert(world.rollout(3))
    pool.save(sys.argv[1])
    print(pool.inserted, flush=True)
"""


def test_whoever_is_killed_while_saving_leaves_a_save_that_is_whole(tmp_path):
    rng, root = random.Random(0), Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", SAVES, tmp_path], stdout=subprocess.PIPE, env=environ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(rng.random() * 0.3)  # any moment will do
            child.send_signal(signal.SIGKILL)
            told = [int(line) for line in child.stdout.read().split()]
        pool = Pool(n_step(2), Prioritised(), capacity=200)
        pool.load(tmp_path)
        assert pool.inserted >= max(told, default=12) and pool.inserted % 12 == 0
        assert pool.sample(32).rollouts[0].valid[0].all()
