"""A command and all that it starts, watched to its end: the highest sum of their proportional set sizes.

A page that several processes share counts once. The command has a terminal, as when a person starts it.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

EVERY = 0.02
"""Seconds between two looks."""
PROC = Path("/proc")


def main() -> None:
    command = sys.argv[1:]
    ours, theirs = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "TERM": "xterm-256color", "MILL_FOLDER": folder}
        root = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.close(theirs)
        said: list[bytes] = []
        threading.Thread(target=listen, args=(ours, said), daemon=True).start()
        start, peak, most = time.perf_counter(), 0, 0
        while root.poll() is None:
            sizes = [size for size in map(proportional, family(root.pid)) if size]
            peak, most = max(peak, sum(sizes)), max(most, len(sizes))
            time.sleep(EVERY)
        seconds = time.perf_counter() - start
    if root.returncode:
        sys.exit(b"".join(said).decode(errors="replace"))
    print(json.dumps({"megabytes": peak / 1024, "processes": most, "seconds": seconds}))


def family(root: int) -> set[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            text = _read(entry / "stat")
            if text:
                children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, left = {root}, [root]
    while left:
        born = children.get(left.pop(), [])
        found.update(born)
        left += born
    return found


def proportional(process: int) -> int:
    """Its set size in KiB, with shared pages by their share; nothing once it has ended."""
    for line in _read(PROC / str(process) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def listen(terminal: int, said: list[bytes]) -> None:
    """Read what the command shows, so that it never waits for its terminal."""
    try:
        while text := os.read(terminal, 65536):
            said[:] = [*said[-20:], text]
    except OSError:  # the other end was closed
        pass


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


if __name__ == "__main__":
    main()
