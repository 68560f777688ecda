"""The programs in `benchmarks` are no package: they import one another as neighbours."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
