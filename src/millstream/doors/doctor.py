"""`mill doctor`: is this machine fit, what is missing, what to install."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from millstream import catalogue
from millstream.doors import saying
from millstream.doors.finding import add_folder

NEEDED = {
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "rich": "rich",
    "matplotlib": "matplotlib",
    "PIL": "pillow",
    "beartype": "beartype",
}
"""Module -> package, of what every installation has."""
EXTRAS = {
    "torch": ("CNN, LSTM and GPU", "torch", "array_api_compat"),
    "atari": ("Atari games", "ale_py", "cv2"),
    "envpool": ("EnvPool environments", "envpool"),
    "box2d": ("LunarLander and the like", "Box2D"),
    "mujoco": ("Ant, Hopper and the like", "mujoco"),
    "classic": ("pictures of Gymnasium's classic environments", "pygame"),
    "video": ("videos as .mp4 instead of .gif", "imageio_ffmpeg"),
    "onnx": ("mill export --format onnx", "onnx"),
    "yaml": ("experiment files in YAML", "yaml"),
    "grpc": ("services and clients over the network", "grpc", "grpc_health"),
    "minari": ("mill export-data, mill train --data", "minari", "h5py"),
    "kafka": ("mill train --topology kafka, mill role", "confluent_kafka"),
    "wandb": ("mill train --wandb", "wandb"),
    "mlflow": ("mill train --mlflow", "mlflow"),
}
"""Extra -> what it is for, and the modules that it brings."""
_MARKS = {"good": "✔", "note": "·", "bad": "✘"}
_STYLES = {"good": saying.GOOD, "note": "dim", "bad": f"bold {saying.BAD}"}
_SMALL_DISK, _SMALL_MEMORY = 1 << 30, 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `bad` means that training cannot work."""

    what: str
    verdict: Literal["good", "note", "bad"]
    text: str


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of `mill doctor`."""
    add_folder(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=doctor)


def doctor(options: Namespace) -> int:
    """Look at everything; exit code 1 when training cannot work here."""
    machine = [*_machine(), *_disk(Path(options.folder)), *_packages()]
    extras = list(_extras())
    fit = not any(finding.verdict == "bad" for finding in machine)
    if options.json:
        saying.say_json(
            {"fit": fit, "machine": [asdict(each) for each in machine], "extras": [asdict(each) for each in extras]}
        )
    else:
        _say("This machine", machine)
        _say("Extras (from a clone: pip install -e '.[NAME]')", extras)
        saying.heading(
            "Fit to train." if fit else "Not fit to train: mend what is marked ✘.", _STYLES["good" if fit else "bad"]
        )
    return 0 if fit else 1


def _machine() -> Iterator[Finding]:
    fits = (3, 11) <= sys.version_info[:2] <= (3, 13)
    told = platform.python_version() + ("" if fits else "; 3.11, 3.12 or 3.13 is needed")
    yield Finding("Python", "good" if fits else "bad", told)
    yield Finding("system", "good" if sys.platform == "linux" else "note", f"{platform.system()} {platform.machine()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    advice = "" if cores > 1 else "; actors and learner will take turns, so --topology inline may be faster"
    yield Finding("processors", "good" if cores > 1 else "note", f"{cores}{advice}")
    yield _memory()
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "")
    advice = "" if threads == "1" else "; 1 is faster for small networks: unset OPENBLAS_NUM_THREADS"
    yield Finding("BLAS threads", "good" if threads == "1" else "note", threads + advice)
    built = catalogue.compiled()
    advice = "" if built else "; networks learn faster with a C compiler: install one, then Millstream again"
    yield Finding("compiled networks", "good" if built else "note", f"{'yes' if built else 'no'}{advice}")
    memfd = hasattr(os, "memfd_create")
    yield Finding(
        "shared memory", "good" if memfd else "note", "memfd" if memfd else "no memfd: unlinked files serve instead"
    )


def _memory() -> Finding:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return Finding("memory", "note", "this system does not tell how much there is")
    enough = size >= _SMALL_MEMORY
    return Finding(
        "memory", "good" if enough else "note", _bytes(size) + ("" if enough else "; use few actors and environments")
    )


def _disk(folder: Path) -> Iterator[Finding]:
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        yield Finding("folder", "bad", f"{folder} cannot be written; choose another with --folder")
        return
    free = shutil.disk_usage(nearest).free
    enough = free >= _SMALL_DISK
    advice = "" if enough else "; that is little for checkpoints and metrics"
    yield Finding("folder", "good" if enough else "note", f"{folder}, {_bytes(free)} free{advice}")


def _packages() -> Iterator[Finding]:
    for module, package in NEEDED.items():
        found = find_spec(module) is not None
        yield Finding(
            package, "good" if found else "bad", _version(package) if found else f"missing; run: pip install {package}"
        )


def _extras() -> Iterator[Finding]:
    for extra, (purpose, *modules) in EXTRAS.items():
        found = all(find_spec(module) for module in modules)
        yield Finding(
            extra, "good" if found else "note", purpose if found else f"{purpose}: pip install 'millstream[{extra}]'"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed"


def _bytes(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"


def _say(title: str, findings: list[Finding]) -> None:
    from rich.text import Text

    saying.heading(title)
    saying.pairs(
        (each.what, Text.assemble((_MARKS[each.verdict], _STYLES[each.verdict]), " ", each.text)) for each in findings
    )
    saying.heading("")
