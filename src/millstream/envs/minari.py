"""Recorded episodes on disk, as the library Minari keeps them: found by name, held against a spec, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import Array, Episode
from millstream.core.errors import DataError, EnvError, MissingPart
from millstream.core.spec import MASK, Box, EnvSpec, Space
from millstream.envs.spaces import Leaf, choices, finite, leaves, top_of

ID = re.compile(r"([-_\w]+/)*[-_\w]+-v\d+")
"""What Minari calls a dataset: `expert-v0`, `cartpole/expert-v0`."""
METADATA = "metadata.json"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError, RuntimeError)
"""What reading files that someone else wrote may raise."""
ROOM = 1 << 28
"""Bytes of episodes that are held, because files of many short ones take longer to read than to learn from."""


def place(name: str) -> Path:
    """The folder of a dataset. A name that Minari could give lies in Minari's folder, unless there is one here."""
    path = Path(name).expanduser()
    if name.startswith((".", "/", "~")) or path.is_dir() or not ID.fullmatch(name):
        return path.resolve()
    library()
    from minari.storage.datasets_root_dir import get_dataset_path

    return Path(get_dataset_path(name)).resolve()


def data_of(folder: Path) -> Path | None:
    """Where a dataset keeps its files: in `data`, or in the folder itself; None: it is no dataset."""
    return next((each for each in (folder / "data", folder) if (each / METADATA).is_file()), None)


def library() -> Any:
    """Minari; it is not imported before it is needed."""
    try:
        import minari
    except ImportError as error:
        raise MissingPart.of("minari", "minari") from error
    return minari


def open_dataset(name: str, spec: EnvSpec) -> Dataset:
    """A dataset whose episodes could have been played in an environment of this spec; DataError when it is not one."""
    minari, folder = library(), place(name)
    data = data_of(folder)
    if data is None:
        fetch = f"; minari download {name} fetches one that is published" if ID.fullmatch(name) else ""
        raise DataError(f"there is no dataset in {folder}; mill export-data writes one{fetch}")
    try:
        stored = minari.MinariDataset(data)
        dataset = Dataset(name, stored, spec)
    except ImportError as error:  # of what reads one kind of file
        raise MissingPart(f"the dataset {name} cannot be read: {_line(error)}") from error
    except EnvError as error:
        raise DataError(f"the dataset {name} cannot be used: {error}") from error
    except _DAMAGE as error:
        raise DataError(f"the dataset {name} is damaged: {_line(error)}") from error
    if not len(dataset) or not stored.total_steps:
        raise DataError(f"the dataset {name} is empty; mill export-data --overwrite writes it anew")
    difference = dataset.spec.difference(spec, "the dataset", "shows")
    if difference:
        raise DataError(f"the dataset {name} was not made with {spec.id}: {difference}")
    return dataset


class Dataset:
    """Episodes at rest, by number."""

    def __init__(self, name: str, stored: Any, spec: EnvSpec):
        self.name = name
        self._stored, self._masked, self._width = stored, spec.masked, spec.mask_width
        self._shown, self._legal = leaves(stored.observation_space)
        (self._chosen,), _ = leaves(stored.action_space)
        shown = {leaf.name: _as_bounded(leaf.space, spec.observations.get(leaf.name)) for leaf in self._shown}
        self.spec = replace(spec, observations=shown, action=choices(stored.action_space))
        self._numbers = [int(number) for number in stored.episode_indices]
        self.room = ROOM
        """Bytes that are left for episodes to hold."""
        self._held: dict[int, list[Episode]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def read(self, indices: Iterable[int]) -> Iterator[Episode]:
        """Some of its episodes. One that ends in its middle and goes on is as many as it has ends."""
        indices = list(indices)
        unread = [self._numbers[index] for index in indices if index not in self._held]
        stored = iter(self._stored.storage.get_episodes(unread) if unread else ())
        for index in indices:
            if index in self._held:
                yield from self._held[index]
                continue
            whole = self._one(self._numbers[index], stored)
            size = sum(_size(each) for each in whole)
            if size <= self.room:
                self._held[index], self.room = whole, self.room - size
            yield from whole

    def _one(self, number: int, stored: Iterator[Mapping[str, Any]]) -> list[Episode]:
        """The next that is stored; it has this number."""
        try:
            return self._episodes(next(stored))
        except DataError as error:
            raise DataError(f"episode {number} of the dataset {self.name} {error}") from None
        except (*_DAMAGE, StopIteration) as error:
            raise DataError(f"episode {number} of the dataset {self.name} cannot be read: {_line(error)}") from error

    def _episodes(self, found: Mapping[str, Any]) -> list[Episode]:
        """One that was read, in our words."""
        steps = len(found["rewards"])
        observations = {
            leaf.name: _column(f"observation {leaf.name!r}", leaf, leaf.find(found["observations"]), steps + 1)
            for leaf in self._shown
        }
        actions = _column("actions", self._chosen, found["actions"], steps)
        rewards = np.asarray(found["rewards"], np.float32).reshape(-1)
        if not finite(rewards):
            raise DataError(f"holds {rewards[~np.isfinite(rewards)][0]} among its rewards")
        ends = [np.asarray(found[name], bool).reshape(steps) for name in ("terminations", "truncations")]
        whole = Episode(observations, actions, rewards, False, False, self._masks(found, steps))
        return list(_cut(whole, *ends)) if steps else []

    def _masks(self, found: Mapping[str, Any], steps: int) -> Array | None:
        """Which actions were legal, among the observations or in the infos, where the environment tells."""
        if not self._masked:
            return None
        told = self._legal.find(found["observations"]) if self._legal else (found["infos"] or {}).get(MASK)
        if told is None:
            raise DataError(f"does not say which actions were legal: it has no {MASK} among its infos")
        return np.asarray(told, bool).reshape(steps + 1, self._width)


def _cut(whole: Episode, terminated: Array, truncated: Array) -> Iterator[Episode]:
    """At every end; where the last step has none, watching stopped there."""
    start = 0
    for last in np.union1d(np.flatnonzero(terminated | truncated), [whole.steps - 1]):
        over = bool(terminated[last])
        yield Episode(
            {name: array[start : last + 2] for name, array in whole.observations.items()},
            whole.actions[start : last + 1],
            whole.rewards[start : last + 1],
            over,
            bool(truncated[last]) or not over,
            None if whole.masks is None else whole.masks[start : last + 2],
        )
        start = last + 1


def _column(what: str, leaf: Leaf, given: Any, length: int) -> Array:
    """One named array of an episode, as rollouts hold it."""
    array, space = np.asarray(given), leaf.space
    if array.shape != (length, *leaf.shape):
        raise DataError(f"has {what} of shape {array.shape}, its steps and its space promise {(length, *leaf.shape)}")
    if array.dtype != leaf.given and not np.can_cast(array.dtype, leaf.given, "same_kind"):
        raise DataError(f"has {what} of type {array.dtype}, its space promises {leaf.given}")
    if isinstance(space, Box):
        array = array.astype(space.dtype, copy=False)
        if array.dtype.kind == "f" and not finite(array):
            raise DataError(f"holds {array[~np.isfinite(array)][0]} in its {what}")
        return array
    array = array.astype(np.int64, copy=False).reshape(length, *space.shape)
    array = array if leaf.start is None else array - leaf.start
    wrong = (array < 0) | (array >= top_of(space))
    if wrong.any():
        raise DataError(f"holds {array[wrong][0]} in its {what}, which is not one of {space}")
    return array


def _as_bounded(space: Space, other: Space | None) -> Space:
    """With the bounds of another: of what is shown nobody reads them."""
    if isinstance(space, Box) and isinstance(other, Box):
        return replace(space, low=other.low, high=other.high)
    return space


def _size(episode: Episode) -> int:
    masks = 0 if episode.masks is None else episode.masks.nbytes
    seen = sum(array.nbytes for array in episode.observations.values())
    return int(seen + episode.actions.nbytes + episode.rewards.nbytes + masks)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
