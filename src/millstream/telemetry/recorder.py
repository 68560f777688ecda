"""The role through which every report passes: counted, then handed to whoever keeps or shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from millstream.core.ports import MetricSink, Subscription
from millstream.core.topics import Report
from millstream.telemetry.progress import Progress
from millstream.telemetry.scalars import annotate

Poll: TypeAlias = Callable[[int], Iterable[Report]]
"""Up to so many reports that have arrived, oldest first."""


class Recorder:
    """Drains what has arrived, keeps the progress up to date and writes to the sinks."""

    def __init__(
        self,
        source: Poll | Sequence[Subscription[Report]],
        sinks: Sequence[MetricSink],
        progress: Progress,
        limit: int = 256,
    ) -> None:
        self.progress = progress
        self.sinks = tuple(sinks)
        self.limit = limit
        self._poll = source if callable(source) else _poll_all(source)

    def step(self) -> int:
        """Take up to `limit` reports; how many there were."""
        count = 0
        for report in self._poll(self.limit):
            self.write(report)
            count += 1
        return count

    def write(self, report: Report) -> None:
        """Take one report that did not come by the bus, such as an event of this very process."""
        self.progress.take(report)
        noted = annotate(report, self.progress)
        for sink in self.sinks:
            sink.write(noted)

    def close(self) -> None:
        """Take what is left, then close the sinks: all of them, even when one breaks."""
        while self.step():
            pass
        failure: Exception | None = None
        for sink in self.sinks:
            try:
                sink.close()
            except Exception as error:  # the others still hold what was measured
                failure = failure or error
        if failure:
            raise failure

    def snapshot(self) -> dict[str, object]:
        """The state of the progress."""
        return self.progress.snapshot()

    def restore(self, snapshot: dict[str, object]) -> None:
        """Continue where the snapshot was taken."""
        self.progress.restore(snapshot)


def _poll_all(subscriptions: Sequence[Subscription[Report]]) -> Poll:
    def poll(limit: int) -> Iterable[Report]:
        return [delivery.message for subscription in subscriptions for delivery in subscription.poll(limit)]

    return poll
