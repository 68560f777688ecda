"""Compiles the little that is written in C, where there is a compiler. Without one everything works, more slowly."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/millstream/agents/networks/activations.c")
LIBRARY = SOURCE.with_name("libactivations.so")
FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-shared", "-fPIC")


class Compile(BuildHookInterface):
    """Puts the library beside its source, for wheels and for installations in place."""

    def initialize(self, version, build_data):
        """Called before files are gathered."""
        if compiled(Path(self.root)):
            build_data["artifacts"].append(f"/{LIBRARY}")
            build_data["pure_python"] = False
            # it is called through ctypes and knows no Python: one wheel serves every version of it
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"


def compiled(root):
    """Whether there was a compiler and it could."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    library, fresh = root / LIBRARY, (root / LIBRARY).with_suffix(".new")
    library.unlink(missing_ok=True)
    if compiler is None:
        print("no C compiler: tanh stays in NumPy")
        return False
    command = [*compiler.split(), *FLAGS, "-o", fresh, root / SOURCE]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        print(f"{compiler} could not compile {SOURCE.name}, tanh stays in NumPy:\n{ended.stderr}")
        return False
    fresh.replace(library)  # whoever has the old one open keeps it whole
    return True
