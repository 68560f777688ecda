"""`import millstream`: the names it promises, and how little it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import millstream


def test_every_promised_name_resolves_and_nothing_else_is_promised() -> None:
    assert set(millstream.__all__) == {*millstream._HOMES, "__version__"}
    for name in millstream._HOMES:
        assert getattr(millstream, name).__name__ == name
        assert getattr(millstream, name).__doc__


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        millstream.tarin  # noqa: B018


def test_importing_millstream_is_light() -> None:
    code = "import sys, millstream; print([name for name in ('numpy', 'torch', 'gymnasium') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
