"""A worker's end of the bus on Kafka: experience in a log with credit, commands and metrics beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from millstream.core.data import Rollout
from millstream.core.errors import Unavailable
from millstream.core.ports import Subscription
from millstream.core.topics import COMMANDS, EXPERIENCES, Topic
from millstream.wires.channel import plain
from millstream.wires.kafka.cluster import PATIENCE, Cluster
from millstream.wires.kafka.outlet import Outlet
from millstream.wires.kafka.policies import KafkaPolicies
from millstream.wires.kafka.reading import Admit, Experiences
from millstream.wires.kafka.reports import Reports
from millstream.wires.kafka.sending import Sending
from millstream.wires.kafka.topics import Names

M = TypeVar("M")
_REPORTS = 10_000
"""Reports that may wait for the broker."""


class KafkaBus:
    """The bus of a run whose topics are there. `policies` carries the credit; metrics are read from `since` on."""

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        run: str,
        policies: KafkaPolicies,
        window: int = 1,
        admit: Admit = lambda rollout: None,
        since: float | None = None,
    ) -> None:
        self._cluster, self._names, self._run, self._policies = cluster, names, run, policies
        self.admit, self._since = admit, since
        self.outlet = Outlet(cluster)
        self.sending = Sending(self.outlet, names, run, window, policies)
        self._readers: list[Any] = []
        self.dropped = 0
        """Reports that found no room on the way to the broker."""

    def claim(self, topic: Topic[M], sender: int, size: int) -> memoryview | None:
        """Memory for the sender's next rollout, the same until it publishes; None: no credit."""
        return self.sending.claim(sender, size)

    def publish(self, topic: Topic[M], message: M) -> bool:
        """Hand a message over; False: no credit or full."""
        if topic.name == EXPERIENCES.name:
            return self.sending.publish(cast(Rollout, message))
        body = json.dumps(cast(Mapping[str, Any], message), separators=(",", ":"), default=plain).encode()
        if topic.name == COMMANDS.name:
            return self._command(body)
        room = self.outlet.waiting < _REPORTS and self.outlet.send(topic.name, self._run, body)
        self.dropped += not room
        self.outlet.look()
        return True  # a report that is lost is counted, and nobody waits for it

    def settled(self, topic: Topic[M], sender: int) -> int:
        """The last sequence of this sender up to which the broker has acknowledged all."""
        return self.sending.settled(sender)

    def subscribe(self, topic: Topic[M], group: str) -> Subscription[M]:
        """A reader from the beginning of the log; of metrics, from the time that was given."""
        if topic.name == EXPERIENCES.name:
            reader: Any = Experiences(
                self._cluster, self._names, self._run, self._policies, self.outlet, lambda rollout: self.admit(rollout)
            )
        else:
            reader = Reports(self._cluster, topic.name, self._run, None if topic.name == COMMANDS.name else self._since)
        self._readers.append(reader)
        return cast(Subscription[M], reader)

    def close(self, seconds: float = PATIENCE) -> None:
        """Send what is left, as far as a broker listens, and let go."""
        for reader in self._readers:
            reader.close()
        self.sending.flush(seconds)
        self.outlet.flush(seconds)

    def _command(self, body: bytes) -> bool:
        """A command is given when the broker has it; one that could not be given in time is not given later."""
        heard: list[Any] = []
        outlet = Outlet(self._cluster, {"message.timeout.ms": int(PATIENCE * 1000)})
        sent = outlet.send(COMMANDS.name, self._run, body, heard=lambda error, message: heard.append(error))
        if not sent or not outlet.flush(PATIENCE + 1.0) or heard != [None]:
            raise Unavailable(f"the command did not reach the brokers at {self._cluster.bootstrap}; are they running?")
        return True
