"""A server on disk: one safetensors file, sealed by a sha256 over all that it says. Never pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core import tree
from millstream.core.codec import decode_tensors, encode_tensors
from millstream.core.data import Params, Policy, Version
from millstream.core.errors import CheckpointError, MillError
from millstream.parameters.accountant import Accountant

SCHEMA = 1
_TENSORS, _OPTIMISER = "tensors/", "optimiser"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, MillError)


@dataclass(frozen=True)
class Saved:
    """Everything that a server continues with."""

    policy: Policy
    trained: Sequence[str]
    spent: list[list[float]]  # what the privacy accountant has seen
    optimiser: Any = None  # the optimiser's own snapshot, where it has one


def encode(saved: Saved) -> bytes:
    """The file's bytes."""
    arrays, skeleton = tree.flatten(saved.optimiser, _OPTIMISER)
    arrays |= {_TENSORS + name: np.asarray(tensor) for name, tensor in saved.policy.params.tensors.items()}
    version = saved.policy.version
    about = json.dumps({
        "schema": SCHEMA,
        "version": [version.epoch, version.number],
        "steps": saved.policy.steps,
        "hyper": dict(saved.policy.params.hyper),
        "trained": list(saved.trained),
        "spent": saved.spent,
        "optimiser": skeleton,
    })  # fmt: skip
    return encode_tensors(arrays, {"parameters": about, "seal": _seal(arrays, about)})


def read(path: Path) -> Saved:
    """A server from its file; CheckpointError unless every byte of it is as it was written."""
    try:
        arrays, metadata = decode_tensors(path.read_bytes())
        if metadata["seal"] != _seal(arrays, metadata["parameters"]):
            raise CheckpointError("its bytes do not match their sha256")
        return _assembled(arrays, json.loads(metadata["parameters"]))
    except _DAMAGE as error:
        raise CheckpointError(
            f"{path} is no whole checkpoint of a parameter server ({type(error).__name__}: {error}); "
            "the server stays as it was, load another one"
        ) from error


def _assembled(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Saved:
    if about["schema"] != SCHEMA:
        raise CheckpointError(f"its schema is {about['schema']}, this version reads {SCHEMA}")
    tensors = {name.removeprefix(_TENSORS): array for name, array in arrays.items() if name.startswith(_TENSORS)}
    epoch, number = about["version"]
    Accountant().add(about["spent"])  # raises where it makes no sense
    policy = Policy(Version(int(epoch), int(number)), Params(tensors, dict(about["hyper"])), int(about["steps"]))
    return Saved(policy, list(about["trained"]), about["spent"], tree.unflatten(arrays, about["optimiser"]))


def _seal(arrays: Mapping[str, np.ndarray], about: str) -> str:
    """Over names, types, shapes and bytes: safetensors itself would not notice a flipped bit."""
    digest = hashlib.sha256(about.encode())
    for name, array in arrays.items():
        digest.update(f"\n{name}|{array.dtype.newbyteorder('<').str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
