"""Commands change what should be, or say why they cannot."""

from __future__ import annotations

import pytest

from millstream.control.commands import parse
from millstream.control.state import Desired
from millstream.core.errors import ConfigError, RunError


def test_scaling_changes_how_many_actors_there_should_be() -> None:
    assert parse({"command": "scale", "actors": 3}).apply(Desired(actors=1)).actors == 3


def test_an_inline_run_cannot_be_scaled() -> None:
    with pytest.raises(RunError, match="inline run cannot be scaled"):
        parse({"command": "scale", "actors": 3}).apply(Desired(fixed=True))


def test_more_actors_than_there_can_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 to 16 actors"):
        parse({"command": "scale", "actors": 17}).apply(Desired())
