"""The libraries that were compiled from C."""

from pathlib import Path

import pytest

from millstream.agents.networks import compiled

FOLDER = Path(compiled.__file__).parent


def runnable():
    """Each library that was built and that this processor can run."""
    if compiled.LIBRARY is None:
        return []
    return [name for name in compiled.LEVELS[: compiled.LIBRARY.mill_level() + 1] if (FOLDER / name).exists()]


@pytest.fixture(params=runnable())
def library(request, monkeypatch):
    found = compiled.opened(FOLDER / request.param)
    monkeypatch.setattr(compiled, "LIBRARY", found)
    return found
