"""What the rollouts of one table have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.core.data import Rollout

FRAMES = "frames/"


@dataclass(frozen=True)
class Kind:
    """What rollouts of one kind hold: name -> shape and type of one step."""

    columns: Mapping[str, tuple[tuple[int, ...], str]]
    stack: int

    @classmethod
    def of(cls, rollout: Rollout) -> Kind:
        """The kind of a rollout."""
        arrays = {f"observations/{name}": array for name, array in rollout.observations.items()}
        arrays |= {"actions": rollout.actions, "rewards": rollout.rewards}
        arrays |= {f"extras/{name}": array for name, array in rollout.extras.items()}
        stacks = [array.shape[1] for name, array in rollout.carry.items() if name.startswith(FRAMES)]
        return cls(
            {name: (array.shape[2:], array.dtype.str) for name, array in arrays.items()}, 1 + max(stacks, default=0)
        )

    @property
    def framed(self) -> list[str]:
        """Observations that are kept once."""
        return [name for name in self.observed if self.stack > 1 or self._is_image(name)]

    @property
    def observed(self) -> list[str]:
        """The names of all observations."""
        return [name[13:] for name in self.columns if name.startswith("observations/")]

    def differs(self, other: Kind) -> str | None:
        """In what another kind does not fit."""
        for name in sorted(self.columns.keys() | other.columns.keys()):
            mine, theirs = self.columns.get(name), other.columns.get(name)
            if mine != theirs:
                return f"{name} is {_words(theirs)}, and {_words(mine)} in the table"
        return None if self.stack == other.stack else f"it stacks {other.stack} frames, the table {self.stack}"

    def _is_image(self, name: str) -> bool:
        shape, letters = self.columns[f"observations/{name}"]
        return letters == "|u1" and len(shape) in (2, 3)


def _words(column: tuple[Any, str] | None) -> str:
    return "absent" if column is None else f"{np.dtype(column[1]).name}{list(column[0])}"
