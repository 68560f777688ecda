"""The workers of a run as processes of this machine, and what connects them: rings, policies, a host."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream import assembly
from millstream import config as configuration
from millstream.config import Experiment
from millstream.control.state import MOST_ACTORS, Intent
from millstream.control.supervisor import Supervisor
from millstream.core.ports import Clock, Role
from millstream.hosts.process import Brief, ProcessHost
from millstream.wires.channel import Channel
from millstream.wires.memory import MemoryBus
from millstream.wires.policies import SharedPolicies
from millstream.wires.ring import Ring

if TYPE_CHECKING:
    from millstream.streaming import KafkaCrew


class Crew:
    """Opens what workers share; the host starts them. Closing ends them and lets go of everything."""

    def __init__(self, config: Experiment, folder: Path, first_epoch: int, intent: Intent, clock: Clock):
        self._intent, self._clock = intent, clock
        self.bus = MemoryBus(1)
        """Reports of the workers arrive here, and commands to them leave from here."""
        window = assembly.window_of(config, timed=True)
        self.rings = [Ring.create(f"actor-{index}", window) for index in range(MOST_ACTORS)]
        self.policies = SharedPolicies.create()
        order = {"config": configuration.to_plain(config), "folder": str(folder), "first_epoch": first_epoch}
        fds: Mapping[str, Any] = {
            "rings": [ring.descriptor for ring in self.rings],
            "policies": self.policies.descriptor,
        }
        self.host = ProcessHost(
            lambda start: Brief({**order, "desired": asdict(intent.desired)}, fds),
            Channel,
            self.bus,
            folder / "logs",
            clock,
            environment(),
        )

    def roles(self, report: Callable[[dict[str, Any]], object]) -> list[Role]:
        """Who looks after the workers."""
        return [self.host, Supervisor(self.host, self._intent, self._clock, report)]

    def under_way(self) -> int:
        """Rollouts that were published and not released."""
        return sum(ring.waiting for ring in self.rings)

    def close(self) -> None:
        """End all workers, then let go of what they shared."""
        self.host.close()
        for ring in self.rings:
            ring.close()
        self.policies.close()


def environment() -> dict[str, str]:
    """What workers inherit; what can be imported here can be imported there."""
    path = os.pathsep.join(part or str(Path.cwd()) for part in sys.path)
    return {**os.environ, "PYTHONPATH": path}


def crew_of(config: Experiment, folder: Path, first_epoch: int, intent: Intent, clock: Clock) -> Crew | KafkaCrew:
    """The workers of a run, by its topology."""
    if config.topology == "kafka":
        from millstream.streaming import KafkaCrew  # late: it needs a client library that others do without

        return KafkaCrew(config, folder, intent, clock)
    return Crew(config, folder, first_epoch, intent, clock)
