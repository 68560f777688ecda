"""A worker that does what its order says: `python toy_worker.py`, in the place of `python -m millstream.role`."""

import os
import subprocess
import sys
import time
from pathlib import Path

from millstream.control.follower import Follower
from millstream.control.state import Desired
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError
from millstream.core.topics import COMMANDS, METRICS_ACTORS
from millstream.hosts.heartbeat import Heartbeat
from millstream.hosts.shell import run
from millstream.role import main
from millstream.wires.shared import SharedBus


class Work:
    def step(self) -> int:
        return 0


def toy(order, channel, ending):
    bus = SharedBus(channel=channel)
    mood = order.get("mood", "good")
    if mood == "wrong":
        raise ConfigError("batch_size must be positive, got -1")
    if mood == "broken":
        raise ZeroDivisionError("on purpose")
    if mood == "abrupt":
        print("last line of the log", file=sys.stderr, flush=True)
        os._exit(3)
    if mood == "parent":
        child = subprocess.Popen(["sleep", "300"], close_fds=False)
        bus.publish(METRICS_ACTORS, {"grandchild": child.pid})
    handed = sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())[:-1]  # the last one looks at them
    about = {"threads": os.environ["OPENBLAS_NUM_THREADS"], "fds": handed}
    bus.publish(METRICS_ACTORS, {"up": order["index"], "epoch": order["epoch"], "pid": os.getpid(), **about})
    if mood in ("stuck", "deaf"):
        while True:  # never looks at anything
            time.sleep(1)
    follower = Follower(bus.subscribe(COMMANDS, "worker"), Desired())
    beat = Heartbeat(bus, METRICS_ACTORS, f"actor-{order['index']}", order["epoch"], SystemClock(), period=0.02)
    roles = [follower, beat, Work()]
    run(roles, SystemClock(), lambda: ending() or follower.stopping())


if __name__ == "__main__":
    sys.exit(main(toy))
