"""The public surface, checked at run time: a wrong argument is named, with what was expected of it."""

from __future__ import annotations

from typing import Any

from beartype import BeartypeConf, beartype

from millstream.core.errors import WrongArgument

_RULES = BeartypeConf(violation_type=WrongArgument, is_color=False, is_pep484_tower=True)


def checked(public: Any) -> Any:
    """A function or a class whose calls are checked against its annotations."""
    return beartype(conf=_RULES)(public)
