"""A root with three workers, to be killed: prints their process numbers, then goes round for ever."""

import json
import os
import sys
from pathlib import Path

from millstream.core.clock import SystemClock
from millstream.core.data import Start
from millstream.core.topics import METRICS_ACTORS
from millstream.hosts.process import Brief, ProcessHost
from millstream.wires.channel import Channel
from millstream.wires.memory import MemoryBus
from millstream.wires.ring import Ring

moods = sys.argv[2].split(",")
bus = MemoryBus(2)
rings = [Ring.create(f"actor-{i}", 2) for i in range(3)]


def brief(order):
    return Brief({"mood": moods[order.index]}, {"rings": [ring.descriptor for ring in rings]})


command = [sys.executable, str(Path(__file__).with_name("toy_worker.py"))]
host = ProcessHost(brief, Channel, bus, Path(sys.argv[1]), SystemClock(), os.environ, command)
reports = bus.subscribe(METRICS_ACTORS, "recorder")
for index in range(len(moods)):
    host.start(Start("actor", index))
up: set[int] = set()
while True:
    host.step()
    new = {d.message["up"] for d in reports.poll(100) if "up" in d.message}
    if new and len(up := up | new) == len(moods):
        print(json.dumps([worker.pid for worker in host.workers()]), flush=True)
