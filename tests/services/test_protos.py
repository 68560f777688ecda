"""The stubs that are kept are those that the generator makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_stubs_are_what_the_generator_makes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    made = subprocess.run(
        ["bash", str(ROOT / "compile_proto.sh"), str(tmp_path)],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    fresh = {path.name: path.read_text() for path in (tmp_path / "millstream" / "protos").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "src/millstream/protos").glob("*_pb2*")}
    assert fresh.keys() == kept.keys() and len(fresh) == 3 * len(list(ROOT.glob("protos/*.proto")))
    assert [name for name in fresh if fresh[name] != kept[name]] == [], "out of date: make protos"
