"""Recorded data: where episodes come from, and the dataset that they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from millstream import __version__, assembly
from millstream import config as configuration
from millstream.actor.evaluation import whole_episodes
from millstream.core import settings
from millstream.core.data import Episode
from millstream.core.errors import ConfigError
from millstream.core.spec import EnvSpec
from millstream.training import read_config

Told = Callable[[int, int], object]
"""Hears how many episodes are written, and how many steps."""


def export_played(
    run: str | Path,
    out: str,
    *,
    episodes: int = 100,
    seed: int = 10_000,
    stochastic: bool | None = None,
    name: str | None = None,
    kind: str = "hdf5",
    overwrite: bool = False,
    told: Told = lambda episodes, steps: None,
) -> dict[str, Any]:
    """Let a run's policy play, and write whole episodes to a Minari dataset; what it holds, and where."""
    folder = Path(run)
    experiment = configuration.from_plain(read_config(folder))
    if episodes < 1:
        raise ConfigError(f"a dataset needs at least one episode, got {episodes}")
    wanted = experiment.evaluation.stochastic if stochastic is None else stochastic
    evaluation = assembly.evaluation(experiment, folder, episodes, seed, wanted, name)
    with closing(evaluation.env):
        version = evaluation.policy.version
        about = {
            "algo": experiment.algo,
            "env": settings.plain(experiment.env),
            "run": folder.name,
            "policy": [version.epoch, version.number],
            "trained_steps": evaluation.policy.steps,
            "seed": seed,
            "stochastic": wanted,
        }
        return write(out, evaluation.env.spec, whole_episodes(evaluation), about, kind, overwrite, told)


def export_logged(
    run: str | Path,
    out: str,
    *,
    episodes: int | None = None,
    kind: str = "hdf5",
    overwrite: bool = False,
    told: Told = lambda episodes, steps: None,
) -> dict[str, Any]:
    """Write the whole episodes that a run on Kafka has in its log, or the first so many, to a Minari dataset."""
    from millstream import hindsight  # late: it needs a client library that others do without

    folder = Path(run)
    experiment = configuration.from_plain(read_config(folder))
    about = {"algo": experiment.algo, "env": settings.plain(experiment.env), "run": folder.name, "policy": "the log"}
    found = islice(hindsight.episodes(experiment, folder), episodes)
    return write(out, assembly.spec_of(experiment), found, about, kind, overwrite, told)


def write(
    out: str,
    spec: EnvSpec,
    episodes: Iterable[Episode],
    about: dict[str, Any],
    kind: str = "hdf5",
    overwrite: bool = False,
    told: Told = lambda episodes, steps: None,
) -> dict[str, Any]:
    """Write episodes, wherever they come from."""
    from millstream.envs.minari_writing import FORMATS, write_dataset  # late: few commands need it

    if kind not in FORMATS:
        raise ConfigError(f"a dataset is written as {' or '.join(FORMATS)}, got {kind!r}")
    told_of = {**about, "version": __version__}
    path, summary = write_dataset(out, spec, _counted(episodes, told), told_of, kind, overwrite)
    return {"dataset": out, "env": spec.id, "folder": str(path), "format": kind, **summary}


def _counted(episodes: Iterable[Episode], told: Told) -> Iterator[Episode]:
    steps = 0
    for number, episode in enumerate(episodes, 1):
        yield episode
        steps += episode.steps
        told(number, steps)
