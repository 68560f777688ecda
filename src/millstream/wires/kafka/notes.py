"""What the headers of a message say: enough to count the log without opening a single rollout."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Message

from millstream.core.data import Stamp

Life = tuple[int, int]
"""An actor and its epoch."""
_MOST_PARTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Note:
    """Of which run and rollout a message is a part."""

    run: str
    actor: int
    epoch: int
    sequence: int
    steps: int
    """Of the whole rollout, those that count."""
    part: int
    parts: int

    @property
    def life(self) -> Life:
        """Whose it is."""
        return self.actor, self.epoch

    @property
    def identity(self) -> tuple[int, int, int]:
        """What tells its rollout from every other of the run."""
        return self.actor, self.epoch, self.sequence


def headers_of(run: str, stamp: Stamp, steps: int, part: int, parts: int) -> dict[str, str]:
    """The headers of one part of a rollout."""
    identity = f"{stamp.actor}/{stamp.epoch}/{stamp.sequence}"
    return {"run": run, "id": identity, "steps": str(steps), "part": f"{part}/{parts}"}


def note_of(message: Message) -> Note | None:
    """The inverse; None when the headers are not ours, or make no sense."""
    headers = dict(message.headers() or ())
    try:
        actor, epoch, sequence = (int(number) for number in headers["id"].split(b"/"))
        part, parts = (int(number) for number in headers["part"].split(b"/"))
        note = Note(headers["run"].decode(), actor, epoch, sequence, int(headers["steps"]), part, parts)
    except (KeyError, ValueError, AttributeError):
        return None
    sound = min(actor, epoch, sequence, note.steps) >= 0 and 0 <= part < parts <= _MOST_PARTS
    return note if sound else None
