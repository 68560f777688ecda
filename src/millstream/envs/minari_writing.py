"""Episodes written down as a Minari dataset, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import Array, Episode
from millstream.core.errors import DataError, MissingPart, StorageError
from millstream.core.files import replace_folder
from millstream.core.spec import MASK, SINGLE, Box, Discrete, EnvSpec, Space
from millstream.envs.minari import ID, data_of, library, place

FORMATS = ("hdf5", "arrow", "parquet")
"""How Minari keeps arrays."""


@dataclass
class Tally:
    """What came by while it was written."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    terminated: int = 0

    def see(self, episode: Episode) -> None:
        """One more."""
        self.returns.append(float(np.sum(episode.rewards, dtype=np.float64)))
        self.lengths.append(episode.steps)
        self.terminated += episode.terminated

    def summary(self) -> dict[str, Any]:
        """Plain values, for the metadata."""
        returns = np.array(self.returns)
        return {
            "episodes": len(self.returns),
            "steps": sum(self.lengths),
            "terminated": self.terminated,
            "returns": {name: float(getattr(returns, name)()) for name in ("mean", "std", "min", "max")},
            "length": float(np.mean(self.lengths)),
        }


def write_dataset(
    name: str,
    spec: EnvSpec,
    episodes: Iterable[Episode],
    about: Mapping[str, Any],
    kind: str = "hdf5",
    overwrite: bool = False,
) -> tuple[Path, dict[str, Any]]:
    """The folder of a new dataset, and a summary of it. `about` says who played: `algo`, `env`, what else is known."""
    library()
    folder = place(name)
    _vacant(folder, overwrite)
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)  # of an export that was killed
        (draft / "data").mkdir(parents=True)
        summary = _fill(draft / "data", _id(name, folder), spec, episodes, about, kind)
        replace_folder(draft, folder)
    except OSError as error:
        text = f"the dataset {folder} cannot be written ({error.strerror or error})"
        raise StorageError(f"{text}; free some space, or choose another place") from error
    except ImportError as error:  # of what writes one kind of file
        raise MissingPart(f"a dataset cannot be written as {kind}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder, summary


def _vacant(folder: Path, overwrite: bool) -> None:
    """Nothing that is there is lost, unless that was asked for, and only a dataset ever is."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or data_of(folder) is None:
        raise DataError(f"{folder} is there already and is no dataset; choose another name")
    if not overwrite:
        raise DataError(f"there is a dataset in {folder} already; --overwrite replaces it, or choose another name")


def _fill(
    data: Path, id: str, spec: EnvSpec, episodes: Iterable[Episode], about: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    from minari import __version__
    from minari.dataset.minari_storage import MinariStorage

    storage = MinariStorage.new(
        data,
        observation_space=_observations(spec),
        action_space=_space(spec.action),
        env_spec=_env_spec(about.get("env", {})),
        data_format=kind,
        jpeg_encoding=False,  # what was seen, not what it looks like
    )
    storage.update_metadata(
        {
            "dataset_id": id,
            "minari_version": __version__,
            "algorithm_name": str(about["algo"]),
            "description": f"{about['algo']} playing {spec.id}, recorded by Millstream {about['version']}",
        }
    )
    tally = Tally()
    storage.update_episodes(_buffers(spec, episodes, tally))
    if not tally.returns:
        raise DataError("there is no whole episode to write")
    summary = tally.summary()
    storage.update_metadata({"millstream": {**about, "spec": spec.to_json(), **summary}})
    return summary


def _buffers(spec: EnvSpec, episodes: Iterable[Episode], tally: Tally) -> Iterator[Any]:
    """Episodes in Minari's words, one at a time."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    for episode in episodes:
        tally.see(episode)
        ends = np.zeros((2, episode.steps), bool)
        ends[:, -1] = episode.terminated, episode.truncated
        observations = dict(episode.observations)
        yield EpisodeBuffer(
            observations=observations[SINGLE] if list(observations) == [SINGLE] else observations,
            actions=_within(spec.action, episode.actions),
            rewards=episode.rewards,
            terminations=ends[0],
            truncations=ends[1],
            infos=None if episode.masks is None else {MASK: episode.masks},
        )


def _within(space: Space, actions: Array) -> Array:
    """Actions as the environment took them: continuous ones are clipped there."""
    if not isinstance(space, Box):
        return actions
    low, high = space.bounds()
    return np.clip(actions, low, high).astype(space.dtype)


def _id(name: str, folder: Path) -> str:
    """What the dataset calls itself; a folder of another name is its version 0."""
    if ID.fullmatch(name) and folder.as_posix().endswith(f"/{name}"):
        return name
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in folder.name)
    return stem if ID.fullmatch(stem) else f"{stem}-v0"


def _observations(spec: EnvSpec) -> Any:
    from gymnasium import spaces

    if list(spec.observations) == [SINGLE]:
        return _space(spec.observations[SINGLE])
    return spaces.Dict([(name, _space(space)) for name, space in spec.observations.items()])


def _space(space: Space) -> Any:
    """A space in Gymnasium's words."""
    from gymnasium import spaces

    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if not isinstance(space, Box):
        return spaces.MultiDiscrete(space.nvec)
    low, high = space.bounds()
    if space.dtype == "uint8":
        low, high = np.clip(low, 0, 255), np.clip(high, 0, 255)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), space.shape, np.dtype(space.dtype).type)


def _env_spec(env: Mapping[str, Any]) -> Any:
    """What Gymnasium can make again; None where it could not, or where what was shown is not what it shows."""
    import gymnasium

    found = gymnasium.registry.get(str(env.get("id")))
    if found is None or env.get("wrappers") or "ale_py" in str(found.entry_point):
        return None
    spec = deepcopy(found)
    spec.kwargs.update(env.get("args") or {})
    return spec
