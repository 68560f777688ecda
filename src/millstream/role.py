"""A worker process: `python -m millstream.role`, started by a host with a JSON order on its standard input.

The order: {"role", "index", "epoch", "config", "folder", ..., "fds": {"channel": fd, "life": fd, ...}}. What the host's
brief adds to it comes through unchanged; descriptors keep their numbers. `millstream.assembly` provides

    run_worker(order: Mapping, channel: Channel, ending: Callable[[], bool]) -> None

which builds the roles, runs the shell until `ending()` or a stop command from the channel, and returns.

Exit codes: 0 ended as asked or finished, 2 a MillError (the text went over the channel), 1 anything else (the
traceback is in the log), 143 ended by SIGTERM.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from millstream.core.errors import MillError
from millstream.hosts.life import Leash
from millstream.hosts.process import NEWS
from millstream.wires.channel import Channel

Run = Callable[[Mapping[str, Any], Channel, Callable[[], bool]], None]


def main(run: Run | None = None) -> int:
    """Read the order, run the worker, say how it ended."""
    order = json.loads(sys.stdin.buffer.read())
    _keep_to_ourselves(order["fds"])
    leash = Leash(order["fds"]["life"] if order.get("leashed", True) else None)
    leash.hold()
    channel = Channel.adopt(order["fds"]["channel"])
    try:
        (run or _assembled)(order, channel, leash.ending)
    except MillError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        _tell(channel, error)
        return error.exit_code
    except Exception as error:
        traceback.print_exc()
        _tell(channel, error)
        return 1
    finally:
        sys.stdout.flush()
        leash.let_go()
    return leash.exit_code


def _assembled(order: Mapping[str, Any], channel: Channel, ending: Callable[[], bool]) -> None:
    from millstream import assembly  # late: whatever it cannot import is reported over the channel

    assembly.run_worker(order, channel, ending)


def _keep_to_ourselves(fds: Mapping[str, int | list[int]]) -> None:
    # An environment may start processes of its own; with our channel they would look like us after our death.
    for fd in fds.values():
        for each in [fd] if isinstance(fd, int) else fd:
            os.set_inheritable(each, False)


def _tell(channel: Channel, error: Exception) -> None:
    channel.send(NEWS, {"kind": "error", "error": type(error).__name__, "text": str(error)})


if __name__ == "__main__":
    sys.exit(main())
