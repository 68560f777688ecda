"""The libraries that were compiled from C."""

from pathlib import Path

import pytest

from millstream.core import native

FOLDER = Path(native.__file__).parent


def runnable():
    """Each library that was built and that this processor can run."""
    if native.LIBRARY is None:
        return []
    return [name for name in native.LEVELS[: native.LIBRARY.mill_level() + 1] if (FOLDER / name).exists()]


@pytest.fixture(params=runnable())
def library(request, monkeypatch):
    found = native.opened(FOLDER / request.param)
    monkeypatch.setattr(native, "LIBRARY", found)
    return found
