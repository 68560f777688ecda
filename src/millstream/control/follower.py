"""A worker's own reading of the commands, so that they work with no supervisor alive."""

from __future__ import annotations

from millstream.control.commands import parse
from millstream.control.state import Desired, Intent, begun
from millstream.core.errors import MillError
from millstream.core.ports import Subscription
from millstream.core.topics import Report

_MOST = 100


class Follower:
    """A role that keeps a worker's desired state up to date: ask it whether to pause or stop."""

    def __init__(self, commands: Subscription[Report], desired: Desired) -> None:
        self._commands = commands
        self.desired = desired
        self.refused = 0
        """Commands that this worker did not understand."""

    def step(self) -> int:
        """Apply what has arrived. Always 0: reading commands must not keep a shell from resting."""
        for delivery in self._commands.poll(_MOST):
            self.take(delivery.message)
        return 0

    def take(self, message: Report) -> None:
        """Apply one command."""
        try:
            self.desired = begun(message) or parse(message).apply(self.desired)
        except MillError:
            self.refused += 1  # a newer door may know more than this worker; the door has told the asker

    def stopping(self) -> bool:
        """Whether the run should end."""
        return self.desired.stopping

    def paused(self) -> bool:
        """Whether work should wait."""
        return self.desired.paused


class Following:
    """A role that keeps a root to the commands on its wire, whoever gave them; a run that is stopping stays so."""

    def __init__(self, follower: Follower, intent: Intent) -> None:
        self._follower, self._intent = follower, intent

    def step(self) -> int:
        """Take over what has changed."""
        self._follower.step()
        if not self._intent.desired.stopping:
            self._intent.desired = self._follower.desired
        return 0
