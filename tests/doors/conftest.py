"""The real command line, as a process of its own in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHORT = ("--topology", "inline", "--total-steps", "4096", "--set", "minibatch=256", "--eval-episodes", "4")
"""Options of a run that is over in a moment."""
Mill = Callable[..., subprocess.CompletedProcess[str]]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "millstream.doors.cli", *words]


def run_mill(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MILL_")}
    return subprocess.run(
        command(*words), cwd=folder, env={**clean, **environ}, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return lambda *words, **environ: run_mill(tmp_path, *words, **environ)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one short run; tests that look at it leave it as it is."""
    done = run_mill(tmp_path_factory.mktemp("trained"), "train", *SHORT, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)  # one line, and nothing beside it
    return json.loads(done.stdout)


@pytest.fixture
def look(trained: dict[str, Any]) -> Mill:
    """`mill` beside the run that was trained."""
    here = Path(trained["folder"]).parents[1]
    return lambda *words, **environ: run_mill(here, *words, **environ)
