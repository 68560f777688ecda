"""Sides of a benchmark that fail, hang or are cut off."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import measure
import pytest


def side(tmp_path, name, code, **more):
    script = tmp_path / f"{name}.py"
    script.write_text(code)
    return measure.Side(name, Path(sys.executable), str(script), **more)


GOOD = "import json; print('noise'); print(json.dumps({'rate': 10}))"


def test_a_side_that_fails_leaves_the_others_their_row(tmp_path, capsys):
    sides = [side(tmp_path, "ours", GOOD), side(tmp_path, "broken", "raise SystemExit('no such thing')")]
    found = measure.alternate(sides, 2)
    assert [len(results) for results in found.values()] == [2, 0]
    assert "no such thing" in capsys.readouterr().err
    lines = measure.table("Rates", "rate", "a second", found, more={"other": "other"}).splitlines()
    assert lines[-2] == "| ours | 10 | 10 to 10 | 1.00 | - |"
    assert lines[-1] == "| broken | failed | - | - | - |"


def test_a_row_without_our_side_says_so(tmp_path):
    with pytest.raises(measure.Failed, match="never came to its end"):
        measure.table("Rates", "rate", "a second", {"ours": [], "peer": [{"rate": 1.0}]})


def test_a_side_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        f"process = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(process.pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(measure.Failed, match="after 3 seconds"):
        side(tmp_path, "hangs", code, limit=3.0).run()
    assert gone(int(child.read_text()))


def test_the_runner_ends_its_side_when_it_is_told_to_end(tmp_path):
    pid = tmp_path / "pid"
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "__init__.py").touch()
    hangs = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    (tmp_path / "hangs.py").write_text(hangs)
    (tmp_path / "rows" / "memory.py").write_text(
        "from measure import OURS, Side, alternate\n"
        f"def row(repeats):\n    return str(alternate([Side('hangs', OURS, {str(tmp_path / 'hangs.py')!r})], 1))\n"
    )
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(measure.HERE)!r}]; import run; run.main()"
    with subprocess.Popen([sys.executable, "-c", code, "--only", "memory"], stderr=subprocess.DEVNULL) as runner:
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.02)
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(30) == 143
    assert gone(int(pid.read_text()))


def gone(pid, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
