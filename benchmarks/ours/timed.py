"""PPO that notes when policies are made and first acted with, and when a process computes its first gradient."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.agents.ppo import PPO
from millstream.core.data import Params

NOTES = "BENCH_NOTES"
"""The variable that says which file to write them to. Times are those of the clock that all processes share."""


class Timed(PPO):
    """Nothing else is different."""

    _acted: Params | None = None
    _learnt = False

    def policy(self, state: Any, hyper: Any) -> Params:
        params = super().policy(state, hyper)
        return replace(params, hyper={**params.hyper, "made_at": time.monotonic()})

    def act(self, params: Params, *given: Any) -> Any:
        if params is not self._acted:
            self._acted = params
            note(acted=time.monotonic(), made=params.hyper["made_at"])
        return super().act(params, *given)

    def gradients(self, *given: Any) -> Any:
        if not self._learnt:
            self._learnt = True
            note(gradient=time.monotonic())
        return super().gradients(*given)


def note(**about: float) -> None:
    """Add a line; whole, whoever else writes."""
    with Path(os.environ[NOTES]).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **about}) + "\n")


def noted(path: Path, kind: str) -> list[dict[str, float]]:
    """The whole lines of one kind."""
    text = path.read_text() if path.exists() else ""
    lines = (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
    return [line for line in lines if kind in line]
