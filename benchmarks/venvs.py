"""The peers, each in a virtual environment of its own, made once and kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("MILL_BENCH_HOME", ROOT / ".bench"))
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    """What to install for a peer."""

    name: str
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        return HOME / self.name / "bin" / "python"

    def ready(self) -> Path:
        """Its interpreter, installed first where that was not done yet."""
        stamp = HOME / self.name / "installed"
        wanted = hashlib.sha256(" ".join(self.packages).encode()).hexdigest()
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"installing {self.name} ({', '.join(self.packages)}) ...", file=sys.stderr, flush=True)
            venv.create(HOME / self.name, with_pip=True, clear=True)
            command = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.packages]
            subprocess.run(command, check=True)
            stamp.write_text(wanted)
        return self.python


SB3 = Peer("sb3", (TORCH, "stable-baselines3==2.9.2"))
SB3_WORLDS = Peer(  # apart from the other: what lies beside it, it imports, and that would weigh in start and memory
    "sb3-worlds", (*SB3.packages, "gymnasium[box2d]", "ale-py==0.12.1", "opencv-python-headless==5.0.0.93")
)
REJAX = Peer("rejax", ("rejax==0.1.3", "gymnax==0.0.9", "jax==0.10.2", "jaxlib==0.10.2"))
