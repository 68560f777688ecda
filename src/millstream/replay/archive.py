"""Tables on disk. Each save writes what is new since the last as pieces of their own, then one manifest that names all
of them takes the place of the one before: whoever is killed at any moment leaves a save that is whole.

    MANIFEST.json                  what was saved, and sha256 and size of every file; sealed by a sha256 of its own
    00000003.state.safetensors     counters, generator, priorities, outlines of shards
    00000003.0.records.0           rows that came in since save 2, as they stand in memory
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core import tree
from millstream.core.codec import decode_tensors, encode_tensors
from millstream.core.errors import CheckpointError, MillError
from millstream.core.files import replace_durably, storage_error, sync_folder, write_durably
from millstream.replay.steps import RECORDS, Steps

SCHEMA = 1
_MANIFEST, _FOLLOWING = "MANIFEST.json", "following"
_LARGEST = 64 << 20
"""Bytes of a piece: what left a table keeps no more than that on disk."""
_MOST = 512
"""Pieces of one column; when there are more, all is written anew."""
_OURS = re.compile(r"\d{8}\.[\w.-]+")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MillError)


@dataclass(frozen=True)
class _File:
    """What a file must be."""

    name: str
    sha256: str
    size: int

    @classmethod
    def written(cls, path: Path, body: memoryview | bytes) -> _File:
        """The same after it was written."""
        write_durably(path, body)
        return cls(path.name, hashlib.sha256(body).hexdigest(), len(body))

    def checked(self, folder: Path) -> Path:
        """Where it is, if every byte is as it was written."""
        path = folder / self.name
        if not _OURS.fullmatch(self.name):
            raise CheckpointError(f"{folder / _MANIFEST} names {self.name!r}, which no save is made of")
        try:
            with path.open("rb") as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}; put it back from a copy") from error
        if not whole:
            raise CheckpointError(f"{path} is damaged: its bytes do not match their sha256; put it back from a copy")
        return path


@dataclass(frozen=True)
class _Piece:
    """Rows or frames of one column, by their numbers."""

    first: int
    end: int
    file: _File


_Pieces = dict[str, list[_Piece]]


class Archive:
    """Where a table was last saved to, and what of it is on disk already."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._seal = ""
        self._known: list[tuple[Steps, _Pieces]] = []

    def save(
        self, folder: Path, about: Mapping[str, Any], counters: Mapping[str, Any], shards: Sequence[Steps]
    ) -> None:
        """Write what is new, then the manifest, then let go of what no one needs any more."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number = 1 + max((int(path.name[:8]) for path in _ours(folder)), default=0)
            known = self._known if self._current(folder) else []
            try:
                saved = [
                    (shard, _written(folder, f"{number:08d}.{i}", shard, _known(known, shard)))
                    for i, shard in enumerate(shards)
                ]
                state = _File.written(folder / f"{number:08d}.state.safetensors", _encoded(counters, shards))
                sync_folder(folder)
                manifest: dict[str, Any] = {"schema": SCHEMA, "about": dict(about), "state": asdict(state)}
                manifest["shards"] = [
                    {name: [asdict(piece) for piece in each] for name, each in pieces.items()} for _, pieces in saved
                ]
                seal = _sealed(manifest)
                replace_durably(folder / _MANIFEST, json.dumps({**manifest, "seal": seal}).encode())
            except BaseException:
                for path in folder.glob(f"{number:08d}.*"):
                    path.unlink(missing_ok=True)
                raise
            self._folder, self._seal, self._known = folder, seal, saved
            needed = {state.name} | {
                piece.file.name for _, pieces in saved for each in pieces.values() for piece in each
            }
            for path in _ours(folder):
                if path.name not in needed:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, folder) from error

    def load(
        self,
        folder: Path,
        about: Mapping[str, Any],
        shards: Callable[[int], Sequence[Steps]],
        count: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """Check every byte, then fill `shards` and hand the counters to `count`."""
        manifest, state, pieces = _read(folder, about)
        found = shards(len(pieces))
        for shard, columns, outline in zip(found, pieces, state["shards"], strict=True):
            shard.revive(outline)
            for name, column in shard.columns().items():
                for piece in columns[name]:
                    _lay(folder, column, piece)
            if outline and shard.cut.steps > 1:
                there = np.arange(*shard.extent(RECORDS)) % shard.capacity
                shard.memory.column(_FOLLOWING, shard.part)[there] = outline[_FOLLOWING]
        count(state["counters"])
        self._folder, self._seal = folder, manifest["seal"]
        self._known = list(zip(found, pieces, strict=True))

    def _current(self, folder: Path) -> bool:
        """Whether the last save there was ours."""
        if folder != self._folder or not (folder / _MANIFEST).exists():
            return False
        try:
            return bool(json.loads((folder / _MANIFEST).read_bytes())["seal"] == self._seal)
        except (ValueError, KeyError, TypeError):
            return False


def _read(folder: Path, about: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[_Pieces]]:
    """The manifest, the state and the pieces of every shard; nothing of them is damaged."""
    path = folder / _MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        sealed = {key: value for key, value in manifest.items() if key != "seal"}
        if manifest["seal"] != _sealed(sealed):
            raise CheckpointError("its bytes do not match their sha256")
        if manifest["schema"] != SCHEMA:
            raise CheckpointError(f"its schema is {manifest['schema']}, this version reads {SCHEMA}")
        state_file, pieces = _File(**manifest["state"]), [_pieces(each) for each in manifest["shards"]]
    except OSError as error:
        raise CheckpointError(
            f"no table was saved in {folder}: {path.name} cannot be read ({error.strerror})"
        ) from error
    except _DAMAGE as error:
        raise CheckpointError(
            f"{path} is damaged ({type(error).__name__}: {error}); put it back from a copy"
        ) from error
    for key, value in about.items():
        if manifest["about"].get(key) != value:
            raise CheckpointError(f"{folder} holds {key} {manifest['about'].get(key)}, this table has {value}")
    for file in (state_file, *(piece.file for each in pieces for column in each.values() for piece in column)):
        file.checked(folder)
    try:
        arrays, metadata = decode_tensors((folder / state_file.name).read_bytes())
        return manifest, tree.unflatten(arrays, json.loads(metadata["state"])), pieces
    except (OSError, *_DAMAGE) as error:
        raise CheckpointError(f"{folder / state_file.name} is no state of a table: {error}") from error


def _pieces(columns: Mapping[str, Any]) -> _Pieces:
    return {
        name: [_Piece(each["first"], each["end"], _File(**each["file"])) for each in column]
        for name, column in columns.items()
    }


def _written(folder: Path, prefix: str, shard: Steps, known: _Pieces) -> _Pieces:
    """The pieces of a shard: those that are on disk and still needed, and what came since."""
    found: _Pieces = {}
    for name, column in shard.columns().items():
        first, end = shard.extent(name)
        kept = [piece for piece in known.get(name, []) if piece.end > first]
        if len(kept) > _MOST:
            kept = []
        start = max(first, kept[-1].end) if kept else first
        label = name.replace("/", "-")
        fresh = []
        for index, (low, high) in enumerate(_stretches(start, end, len(column), column[0].nbytes)):
            rows = column[low % len(column) :][: high - low]
            body = rows.reshape(-1).view(np.uint8).data
            fresh.append(_Piece(low, high, _File.written(folder / f"{prefix}.{label}.{index}", body)))
        found[name] = kept + fresh
    return found


def _stretches(start: int, end: int, room: int, width: int) -> Iterator[tuple[int, int]]:
    """From one number to another in stretches that are in one piece in memory, and not too large."""
    while start < end:
        stop = min(end, start + max(1, _LARGEST // max(1, width)), (start // room + 1) * room)
        yield start, stop
        start = stop


def _lay(folder: Path, column: np.ndarray, piece: _Piece) -> None:
    """A piece back to where it stood; what has left since it was written may not fit any more."""
    rows = np.memmap(folder / piece.file.name, column.dtype, "r").reshape(-1, *column.shape[1:])
    first = max(piece.first, piece.end - len(column))
    column[np.arange(first, piece.end) % len(column)] = rows[first - piece.first :]


def _encoded(counters: Mapping[str, Any], shards: Sequence[Steps]) -> bytes:
    outlines = []
    for shard in shards:
        outline = dict(shard.outline())
        if outline and shard.cut.steps > 1:  # of rows that were written before, what follows may be known only now
            there = np.arange(*shard.extent(RECORDS)) % shard.capacity
            outline[_FOLLOWING] = shard.memory.column(_FOLLOWING, shard.part)[there]
        outlines.append(outline)
    arrays, skeleton = tree.flatten({"counters": counters, "shards": outlines})
    return encode_tensors(arrays, {"state": json.dumps(skeleton)})


def _known(known: Sequence[tuple[Steps, _Pieces]], shard: Steps) -> _Pieces:
    return next((pieces for each, pieces in known if each is shard), {})


def _ours(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _OURS.fullmatch(path.name)]


def _sealed(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
