"""Dead letters: messages that could not be learnt from, with the reason and the place where they stood."""

from __future__ import annotations

from collections import Counter, deque

from confluent_kafka import KafkaError, Message

from millstream.core.errors import CodecError
from millstream.wires.kafka.outlet import Heard, Outlet

_EVIDENCE = 64 << 10
"""How much of a bad message is kept."""
_Letter = tuple[str, bytes, dict[str, str]]


class DeadLetters:
    """Writes to the topic of dead letters. The same place in the log has the same key, however often it is read."""

    def __init__(self, outlet: Outlet | None, topic: str) -> None:
        self._outlet, self._topic = outlet, topic
        self._waiting: deque[_Letter] = deque()
        self.counts: Counter[str] = Counter()
        """Messages put aside, by reason."""

    def put(self, message: Message, error: CodecError) -> None:
        """Put a message aside."""
        self.counts[error.reason] += 1
        if self._outlet is None:
            return
        body, place = message.value() or b"", f"{message.topic()}/{message.partition()}/{message.offset()}"
        headers = {
            "reason": error.reason,
            "text": str(error)[:1000],
            "topic": message.topic() or "",
            "partition": str(message.partition()),
            "offset": str(message.offset()),
            "bytes": str(len(body)),
        }
        self._waiting.append((place, body[:_EVIDENCE], headers))

    def send(self) -> bool:
        """Put them on their way; False while there is no room for one."""
        while self._outlet is not None and self._waiting:
            self._outlet.look()
            letter = self._waiting[0]
            place, body, headers = letter
            if not self._outlet.send(self._topic, place, body, headers=headers, heard=self._again(letter)):
                return False
            self._waiting.popleft()
        return True

    def _again(self, letter: _Letter) -> Heard:
        def heard(error: KafkaError | None, message: Message) -> None:
            if error is not None and self._outlet is not None and self._outlet.breaks(error):
                self._waiting.append(letter)

        return heard
