"""Compiles the little that is written in C, where there is a compiler. Without one everything works, more slowly."""

import os
import platform
import shutil
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/millstream/core")
FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-shared", "-fPIC")
LEVELS = {"libmill.so": ()}
if platform.machine() == "x86_64":  # the best that the processor can run is chosen when Millstream starts
    LEVELS |= {"libmill-avx2.so": ("-mavx2", "-mfma"), "libmill-avx512.so": ("-mavx512f", "-mavx2", "-mfma")}


class Compile(BuildHookInterface):
    """Puts the libraries beside their source, for wheels and for installations in place."""

    def initialize(self, version, build_data):
        """Called before files are gathered."""
        built = [name for name, flags in LEVELS.items() if compiled(Path(self.root), name, flags)]
        if built:
            build_data["artifacts"] += [f"/{FOLDER / name}" for name in built]
            build_data["pure_python"] = False
            # they are called through ctypes and know no Python: one wheel serves every version of it
            system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{system}"


def sources(root):
    """All that is written in C, in whatever room."""
    return sorted((root / "src/millstream").rglob("*.c"))


def compiled(root, name, flags):
    """Whether there was a compiler and it could."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    library = root / FOLDER / name
    fresh = library.with_suffix(".new")
    if compiler is None:
        print(f"no C compiler for {name}: NumPy serves instead")
    else:
        command = [*compiler.split(), *FLAGS, *flags, "-o", fresh, *sources(root)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            fresh.replace(library)  # whoever has the old one open keeps it whole
            return True
        print(f"{compiler} could not compile {name}:\n{ended.stderr}")
    library.unlink(missing_ok=True)  # it was made from an older source
    return False
