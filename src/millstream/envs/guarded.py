"""A user's own environment of many slots, whose failures become one clear line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import EnvError, MillError
from millstream.core.ports import Env, Snapshots
from millstream.envs.gymnasium import summary
from millstream.envs.host import fetched


class Guarded:
    """Passes everything on, from any device; what is raised, or is no number, is said with the environment's name."""

    def __init__(self, env: Env, id: str) -> None:
        self._env, self._id = env, id
        self.spec, self.slots = env.spec, env.slots

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot."""
        return self._checked("reset", lambda: self._env.reset(seed))

    def step(self, actions: Array) -> Step:
        """Take one action a slot."""
        return self._checked("step", lambda: self._env.step(actions))

    def render(self, slot: int = 0) -> Array | None:
        """One slot as a picture."""
        return self._env.render(slot)

    def close(self) -> None:
        """Let go of everything."""
        self._env.close()

    def _checked(self, what: str, call: Callable[[], Step]) -> Step:
        try:
            step = fetched(call())
        except MillError:
            raise
        except Exception as error:
            raise EnvError(f"{self._id} failed in {what}: {summary(error)}") from error
        for name, space in self.spec.observations.items():
            seen, shape = step.observations[name], (self.slots, *space.shape)
            if seen.shape != shape:
                raise EnvError(f"{self._id} showed {name} of shape {seen.shape} in {what}, its spec says {shape}")
            if seen.dtype.kind == "f" and not np.isfinite(seen.sum()):
                raise EnvError(f"{self._id} showed {name} that is not a finite number in {what}")
        if not np.isfinite(step.rewards.sum()):
            raise EnvError(f"{self._id} gave a reward that is not a finite number in {what}")
        return step


class GuardedAndKept(Guarded):
    """The same for an environment whose state can be kept."""

    def snapshot(self) -> Mapping[str, Any]:
        """Its state."""
        assert isinstance(self._env, Snapshots)
        return self._env.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly there."""
        assert isinstance(self._env, Snapshots)
        self._env.restore(snapshot)


def guarded(env: Env, id: str) -> Env:
    """The environment behind a guard."""
    return (GuardedAndKept if isinstance(env, Snapshots) else Guarded)(env, id)
