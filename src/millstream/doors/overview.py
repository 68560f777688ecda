"""What `mill` alone says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class _Described(Protocol):
    @property
    def about(self) -> str: ...


def overview(commands: Mapping[str, _Described], groups: Mapping[str, Sequence[str]]) -> str:
    """The commands in groups, and how to begin."""
    from millstream import __version__

    lines = [f"mill {__version__}: reinforcement learning, from one laptop to many machines", ""]
    lines += ["  mill train                 train CartPole-v1 until it is solved, and say where everything is"]
    lines += ["  mill train ENV --help      all that can be set", ""]
    for title, names in groups.items():
        lines += [title, *(f"  {name:<12}{commands[name].about}" for name in names), ""]
    lines.append("RUN is a run's name, the beginning of one, its folder, or `latest`. `mill COMMAND --help` says more.")
    return "\n".join(lines)
