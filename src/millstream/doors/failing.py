"""What becomes of an error: one line for a person, one object for a program, and an exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from millstream.core import errors
from millstream.core.errors import MillError, WorkerFailed
from millstream.doors import saying

INTERRUPTED, BUG = 130, 1
"""Exit codes of Ctrl-C, and of a fault of ours."""
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_WORKER = re.compile(r"^\S+ failed: (?P<kind>\w+): (?P<text>.*)$", re.DOTALL)


def guarded(command: Callable[[], int], as_json: str = "") -> int:
    """Run a command; whatever goes wrong is told, and becomes an exit code. `as_json`: "json", "json-lines" or ""."""
    try:
        if not as_json:
            return _guarded(command, "")
        with saying.for_programs_only():
            return _guarded(command, as_json)
    except BrokenPipeError:
        # whoever read us has gone, as in `mill runs | head`; Python would complain again when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _guarded(command: Callable[[], int], as_json: str) -> int:
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        if as_json or hasattr(error, "__notes__"):  # a person who is owed nothing more is told nothing more
            error.args = ("interrupted",)
            _say("Interrupted", one_line(error), as_json)
        return INTERRUPTED
    except SystemExit as ending:  # `--help`
        return ending.code if isinstance(ending.code, int) else 0
    except Exception as error:
        return _told(known(error), as_json)


def known(error: Exception) -> Exception:
    """The same as an error of ours where that can be: a failed worker as its cause, a full disk by its name."""
    if isinstance(error, WorkerFailed):
        return cause(error)
    if isinstance(error, OSError) and error.errno in _DISK:
        from millstream.core.files import storage_error

        return storage_error(error, Path(os.fsdecode(error.filename or "a file")))
    return error


def cause(error: WorkerFailed) -> MillError:
    """What the worker complained of, without saying who it was; as it is where the worker did not know either."""
    found = _WORKER.match(str(error))
    told = errors.named(found["kind"], found["text"]) if found else None
    if told is not None:
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        return told
    return error


def one_line(error: BaseException) -> str:
    """The text of an error, with what was noted about it, in one line."""
    parts = [str(error) or type(error).__name__, *getattr(error, "__notes__", ())]
    return "; ".join(" ".join(part.split()) for part in parts)


def _told(error: Exception, as_json: str) -> int:
    ours = isinstance(error, MillError)
    text = one_line(error) if ours else _apology(error)
    _say(type(error).__name__, text, as_json)
    return error.exit_code if isinstance(error, MillError) else BUG


def _say(name: str, text: str, as_json: str) -> None:
    print(f"mill: {text}", file=sys.stderr)
    if as_json:
        kind = {"kind": "error"} if as_json == "json-lines" else {}
        saying.say_json({**kind, "error": name, "text": text})


def _apology(error: Exception) -> str:
    """A fault of ours: what happened, and where all of it can be read."""
    what = f"sorry, this is a bug in millstream or in code of yours that it called: {type(error).__name__}: {error}"
    if os.environ.get("MILL_DEBUG"):
        traceback.print_exception(error)
        return " ".join(what.split())
    notes = getattr(error, "__notes__", ())
    where = notes[0] if notes else f"the traceback is in {_kept(error)}"
    return f"{' '.join(what.split())}; {where} (MILL_DEBUG=1 shows it here)"


def _kept(error: Exception) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="mill-", suffix=".log", delete=False) as file:
        traceback.print_exception(error, file=file)
    return file.name
