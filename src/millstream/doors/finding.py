"""From what a person types to the folder of a run."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from millstream.core.errors import RunError, UnknownName

LATEST = "latest"
_CONFIG = "config.json"
_TRACES = ("run.sock", "result.json")


def add_folder(parser: ArgumentParser) -> None:
    """`--folder`, as every command that looks for runs has it."""
    parser.add_argument("--folder", default=os.environ.get("MILL_FOLDER", "runs"), help="where runs are kept (runs)")


def add_run(parser: ArgumentParser, required: bool = False) -> None:
    """`RUN` and `--folder`."""
    about = "a run's name, the beginning of one, its folder, or `latest`"
    if required:
        parser.add_argument("name", metavar="RUN", help=about)
    else:
        parser.add_argument("name", metavar="RUN", nargs="?", default=LATEST, help=f"{about} (latest)")
    add_folder(parser)


def run_of(options: Namespace) -> Path:
    """The folder that the options speak of."""
    return find_run(options.name, Path(options.folder))


def find_run(name: str, folder: Path) -> Path:
    """The folder of a run; RunError or UnknownName when there is none, or more than one."""
    if (Path(name) / _CONFIG).is_file():
        return Path(name).resolve()
    runs = [path.parent for path in newest_first(folder)]
    if name == LATEST:
        if not runs:
            raise RunError(f"there are no runs in {folder}; mill train makes one, --folder looks elsewhere")
        for run in runs:
            if _came_to_something(run):
                return run.resolve()
        raise RunError(f"no run in {folder} has trained anything yet; the newest is {runs[0].name}")
    names = [run.name for run in runs]
    found = [name] if name in names else [each for each in names if each.startswith(name)]
    if not found:
        raise UnknownName.of("run", name, names, f"(in {folder}; mill runs lists them)")
    if len(found) > 1:
        shown = ", ".join(sorted(found)[:4]) + (", ..." if len(found) > 4 else "")
        raise RunError(f"{len(found)} runs begin with {name!r}: {shown}; write more of the name")
    return (folder / found[0]).resolve()


def _came_to_something(run: Path) -> bool:
    """Whether it runs, or has trained: a start that failed is not the latest run that a person means."""
    learnt = run / "journal.jsonl"
    return any((run / name).exists() for name in _TRACES) or (learnt.exists() and learnt.stat().st_size > 0)


def newest_first(folder: Path) -> list[Path]:
    """The settings files of the runs below a folder."""
    return sorted(folder.glob(f"*/{_CONFIG}"), key=lambda path: path.stat().st_mtime, reverse=True)


def called(run: Path) -> str:
    """How a person calls a run in the next command: by its name where that is enough, otherwise by its path."""
    here = Path(os.environ.get("MILL_FOLDER", "runs")).resolve()
    return run.name if run.parent == here else shown(run)


def shown(path: str | Path) -> str:
    """A path as short as it can be from here."""
    path = Path(path)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
