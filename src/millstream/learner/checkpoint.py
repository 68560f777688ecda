"""Checkpoints: safetensors and JSON behind a manifest with sha256, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.core import tree
from millstream.core.codec import decode_tensors, encode_tensors
from millstream.core.errors import CheckpointError, MillError
from millstream.core.files import storage_error, sync_folder, write_durably

SCHEMA = 1
_MANIFEST, _ARRAYS, _VALUES, _DRAFT = "MANIFEST.json", "state.safetensors", "state.json", ".draft"


@dataclass(frozen=True, slots=True)
class Saved:
    """One checkpoint on disk."""

    number: int
    folder: Path


class Checkpoints:
    """The newest few of a run."""

    def __init__(self, folder: Path, keep: int = 3):
        self.folder, self.keep = folder, keep

    def save(self, number: int, state: Any, about: Mapping[str, Any]) -> Path:
        """Write checkpoint `number`; afterwards the oldest go. `about` is checked on loading."""
        target, draft = self._path(number), self.folder / f".{number:08d}{_DRAFT}"
        arrays, skeleton = tree.flatten(state)
        bodies = {_ARRAYS: encode_tensors(arrays), _VALUES: json.dumps(skeleton).encode()}
        manifest = {"schema": SCHEMA, "number": number, "about": dict(about), "files": _digests(bodies)}
        bodies[_MANIFEST] = json.dumps({**manifest, "seal": _seal(manifest)}, indent=1).encode()
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for name, body in bodies.items():
                write_durably(draft / name, body)
            sync_folder(draft)
            if target.exists():
                shutil.rmtree(target)
            draft.rename(target)
            sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise storage_error(error, target) from error
        self._retire(number)
        return target

    def saved(self) -> list[Saved]:
        """What is there, oldest first, whole or not."""
        if not self.folder.is_dir():
            return []
        found = [Saved(int(path.name), path) for path in self.folder.iterdir() if path.name.isdecimal()]
        return sorted(found, key=lambda saved: saved.number)

    def load(self, number: int | None = None) -> tuple[int, Any, dict[str, Any], list[str]]:
        """(number, state, about, warnings) of that checkpoint, or of the newest that is whole."""
        candidates = [each for each in reversed(self.saved()) if number in (None, each.number)]
        damaged: list[str] = []
        for each in candidates:
            try:
                state, about = read(each.folder)
                return each.number, state, about, [f"{words}; using the one before" for words in damaged]
            except CheckpointError as error:
                damaged.append(f"checkpoint {each.number} is damaged ({error})")
        if damaged and number is not None:
            others = ", ".join(str(each.number) for each in self.saved() if each.number != number) or "none"
            raise CheckpointError(f"checkpoint {number} in {self.folder} is damaged; others there: {others}")
        if damaged:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is whole: {', '.join(damaged)}; put one back from a copy, "
                f"or begin anew with the weights of its policy: mill train --from {self.folder.parent}"
            )
        wanted = "no checkpoint" if number is None else f"no checkpoint {number}"
        there = ", ".join(str(each.number) for each in self.saved()) or "none"
        raise CheckpointError(f"{wanted} in {self.folder}; there: {there}")

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}"

    def _retire(self, newest: int) -> None:
        """The oldest go, later ones too (of a course that was given up for this one), and drafts of a crash."""
        there = self.saved()
        whole = [each.folder for each in there if each.number <= newest]
        later = [each.folder for each in there if each.number > newest]
        for folder in (*later, *whole[: -self.keep], *self.folder.glob(f".*{_DRAFT}")):
            shutil.rmtree(folder, ignore_errors=True)


def read(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The state and what is said about it; every byte is checked first."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        bodies = {name: (folder / name).read_bytes() for name in (_ARRAYS, _VALUES)}
        if manifest["schema"] != SCHEMA:
            raise CheckpointError(f"its schema is {manifest['schema']}, this version reads {SCHEMA}")
        if manifest.pop("seal") != _seal(manifest) or manifest["files"] != _digests(bodies):
            raise CheckpointError("its bytes do not match their sha256")
        arrays, _ = decode_tensors(bodies[_ARRAYS])
        return tree.unflatten(arrays, json.loads(bodies[_VALUES])), manifest["about"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{type(error).__name__}: {error}") from error
    except CheckpointError:
        raise
    except MillError as error:
        raise CheckpointError(str(error)) from error


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()


def _digests(bodies: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)} for name, body in bodies.items()}
