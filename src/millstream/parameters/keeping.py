"""Policies on disk: `policies/latest.safetensors`, `best.safetensors`, each with all that is needed to play it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.core.codec import decode_policy, decode_tensors, encode_policy
from millstream.core.data import Policy
from millstream.core.errors import CheckpointError, CodecError
from millstream.core.files import replace_durably


class Keeper:
    """Writes the policies of one run."""

    def __init__(self, folder: Path, about: Mapping[str, Any]):
        self.folder, self.about = folder / "policies", dict(about)

    def keep(self, name: str, policy: Policy, **about: Any) -> Path:
        """Write a policy under a name, whole or not at all."""
        path = self.folder / f"{name}.safetensors"
        replace_durably(path, encode_policy(policy, {**self.about, **about}))
        return path

    def keep_best(self, policy: Policy, score: float) -> bool:
        """Keep it as the best when no better one was kept before, by an earlier process either."""
        try:
            best = read(self.folder / "best.safetensors")[1].get("score", -math.inf)
        except CheckpointError:
            best = -math.inf
        if math.isnan(score) or best >= score > -math.inf:
            return False
        self.keep("best", policy, score=score)
        return True


def find(run: Path, name: str | None = None) -> Path:
    """The file of a run's policy: the one named, or the best, or the latest. A file is taken as it is."""
    if run.is_file():
        return run
    names = [name] if name else ["best", "latest"]
    for each in names:
        path = run / "policies" / f"{each}.safetensors"
        if path.is_file():
            return path
    raise CheckpointError(f"{run} holds no {' or '.join(names)} policy; was it trained? mill runs lists what there is")


def read(path: Path) -> tuple[Policy, dict[str, Any]]:
    """A policy and what its file says of itself."""
    try:
        data = path.read_bytes()
        _, metadata = decode_tensors(data)
        return decode_policy(data), dict(json.loads(metadata["about"]))
    except (OSError, CodecError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is not a policy: {error}") from error
