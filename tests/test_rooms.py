"""The import rule: a room knows `core` and itself. Outside systems stay behind the file that speaks to them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream

SOURCE = Path(millstream.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
WRITTEN = [path for path in FILES if not path.stem.endswith(("_pb2", "_pb2_grpc"))]
"""All but what is generated."""
ROOMS = (
    "core",
    "envs",
    "agents",
    "actor",
    "replay",
    "learner",
    "parameters",
    "wires",
    "hosts",
    "control",
    "telemetry",
    "services",
)
STUBS = ("wires/grpc.py", "services/")
"""Who may know the stubs of protos/, which are generated."""
DOORS = {
    "core",
    "config",
    "assembly",
    "training",
    "forking",
    "running",
    "playing",
    "exporting",
    "datasets",
    "catalogue",
    "service",
    "streaming",
    "hindsight",
    "control",
    "telemetry",
    "doors",
}
FENCED = {
    "torch": ("agents/networks/torch.py", "agents/networks/convolutions.py"),
    "onnx": ("exporting.py",),
    "gymnasium": ("envs/",),
    "ale_py": ("envs/",),
    "envpool": ("envs/envpool.py",),
    "grpc": ("wires/line.py", "services/", "protos/"),
    "grpc_health": ("services/",),
    "confluent_kafka": ("wires/kafka/",),
    "google": ("protos/",),
    "cv2": ("envs/",),
    "PIL": ("envs/",),
    "imageio_ffmpeg": ("envs/recording.py",),
    "matplotlib": ("telemetry/plots.py",),
    "sqlite3": ("telemetry/store.py",),
    "wandb": ("telemetry/tracking.py",),
    "mlflow": ("telemetry/tracking.py",),
    "beartype": ("checking.py",),
    "rich": ("doors/",),
    "minari": ("envs/minari.py", "envs/minari_writing.py"),
    "yaml": ("config.py",),
}
FORBIDDEN = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, late ones too; `from millstream import x` counts as millstream.x."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} imports relatively"
            assert node.module is not None
            whole = node.module == "millstream"
            yield from (f"millstream.{each.name}" for each in node.names) if whole else (node.module,)


def ours(path: Path) -> set[str]:
    return {module.split(".")[1] for module in imports(path) if module.startswith("millstream.")}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_core_and_itself_only(room: str) -> None:
    wrong = {name_of(path): ours(path) - {"core", room, "protos"} for path in (SOURCE / room).rglob("*.py")}
    assert {path: found for path, found in wrong.items() if found} == {}


def test_doors_reach_agents_and_environments_only_through_assembly() -> None:
    wrong = {name_of(path): ours(path) - DOORS - {"__version__"} for path in (SOURCE / "doors").rglob("*.py")}
    assert {path: found for path, found in wrong.items() if found} == {}


def test_each_outside_system_is_spoken_to_in_one_place() -> None:
    wrong = [
        (name_of(path), package)
        for path in FILES
        for package in {module.split(".")[0] for module in imports(path)} & FENCED.keys()
        if not name_of(path).startswith(FENCED[package])
    ]
    assert wrong == []


def test_stubs_are_used_only_where_they_are_spoken() -> None:
    known = [name_of(path) for path in FILES if "protos" in ours(path)]
    assert known and [name for name in known if not name.startswith((*STUBS, "protos/"))] == []


def test_no_bytes_are_ever_run() -> None:
    wrong = []
    for path in FILES:
        wrong += [(name_of(path), module) for module in imports(path) if module.split(".")[0] in FORBIDDEN]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "eval",
                "exec",
                "compile",
                "torch.load",
                "np.load",
            ):
                wrong.append((name_of(path), ast.unparse(node)))
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                wrong.append((name_of(path), "allow_pickle"))
    assert wrong == []


def test_everything_public_says_what_it_is() -> None:
    silent = []
    for path in WRITTEN:
        tree = ast.parse(path.read_text())
        named = [(name_of(path), tree), *((node.name, node) for node in tree.body if isinstance(node, _NAMED))]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named += [(f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, _NAMED)]
        silent += [
            f"{name_of(path)}: {name}"
            for name, node in named
            if not name.split(".")[-1].startswith("_") and not ast.get_docstring(node)
        ]
    assert silent == []


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def test_importing_millstream_brings_nothing_heavy() -> None:
    modules = ["millstream", *(f"millstream.core.{path.stem}" for path in (SOURCE / "core").glob("[!_]*.py"))]
    script = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "heavy = {'torch', 'gymnasium', 'matplotlib', 'rich', 'sqlite3', 'PIL', 'grpc', 'minari', 'confluent_kafka'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert millstream.__all__ and all(hasattr(millstream, name) for name in millstream.__all__)
