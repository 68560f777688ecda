"""The peers, each in a virtual environment of its own, made once and kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from measure import Failed

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("MILL_BENCH_HOME", ROOT / ".bench"))
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    """What to install for a peer."""

    name: str
    packages: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    """What pip is told in calls of their own that come first."""

    @property
    def python(self) -> Path:
        return HOME / self.name / "bin" / "python"

    def ready(self) -> Path:
        """Its interpreter, installed first where that was not done yet."""
        stamp = HOME / self.name / "installed"
        calls = (*self.before, self.packages)
        wanted = hashlib.sha256(" ".join(word for call in calls for word in call).encode()).hexdigest()
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"installing {self.name} ({', '.join(self.packages)}) ...", file=sys.stderr, flush=True)
            venv.create(HOME / self.name, with_pip=True, clear=True)
            install = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            for call in calls:
                if subprocess.run([*install, *call]).returncode:
                    raise Failed(f"{self.name} could not be installed")
            stamp.write_text(wanted)
        return self.python


SB3 = Peer("sb3", (TORCH, "stable-baselines3==2.9.2"))
SB3_WORLDS = Peer(  # apart from the other: what lies beside it, it imports, and that would weigh in start and memory
    "sb3-worlds", (*SB3.packages, "gymnasium[box2d]", "ale-py==0.12.1", "opencv-python-headless==5.0.0.93")
)
REJAX = Peer("rejax", ("rejax==0.1.3", "gymnax==0.0.9", "jax==0.10.2", "jaxlib==0.10.2"))
RLLIB = Peer("rllib", (TORCH, "ray[rllib]==2.60.0"))
SAMPLE_FACTORY = Peer("sample_factory", (TORCH, "sample-factory==2.1.1"))
TIANSHOU = Peer("tianshou", (TORCH, "tianshou==2.0.1"))
CPPRB = Peer("cpprb", ("cpprb==11.0.0",))
TORCHRL = Peer("torchrl", (TORCH, "torchrl==0.14.1"))
REVERB = Peer("reverb", ("dm-reverb[tensorflow]==0.14.0",))
CLEANRL = Peer(  # the release that is packaged needs a Gym that only an old setuptools can build
    "cleanrl",
    (TORCH, "cleanrl==0.4.8", "stable-baselines3==1.8.0", "gym==0.21.0", "numpy==1.26.4"),
    before=(("setuptools==65.5.0", "wheel==0.38.4"), ("--no-build-isolation", "gym==0.21.0", "numpy==1.26.4")),
)
CLEANRL_ENVPOOL = Peer(  # made for an older Python, and for a Gym that is no more: its program is all that is wanted
    "cleanrl-envpool",
    ("--no-deps", "--ignore-requires-python", "cleanrl==1.2.0"),
    before=((TORCH, "envpool==1.2.5", "gymnasium", "tensorboard"),),
)
