"""JSON lines over a socket pair, when the other end is slow, damaged or gone."""

import json
import socket

import numpy as np
import pytest

from millstream.core.topics import COMMANDS, METRICS_ACTORS
from millstream.wires.channel import Channel


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    yield Channel(left, capacity=8), right
    left.close()
    right.close()


def test_messages_go_both_ways(ends):
    channel, end = ends
    other = Channel(end)
    assert channel.send(METRICS_ACTORS, {"reward": 1.5})
    assert other.send(COMMANDS, {"command": "pause"})
    assert other.receive() == [("metrics.actors", {"reward": 1.5})]
    assert channel.receive() == [("commands.control", {"command": "pause"})]
    assert channel.receive() == []


def test_numpy_values_become_plain(ends):
    channel, end = ends
    channel.send(METRICS_ACTORS, {"mean": np.float32(2), "all": np.arange(2)})
    assert Channel(end).receive()[0][1] == {"mean": 2.0, "all": [0, 1]}


def test_a_message_in_pieces_arrives_once_it_is_whole(ends):
    channel, end = ends
    line = json.dumps({"topic": "t", "body": {"a": 1}}).encode() + b"\n"
    for byte in line[:-1]:
        end.send(bytes([byte]))
        assert channel.receive() == []
    end.send(line[-1:] + line)
    assert channel.receive() == [("t", {"a": 1})] * 2


@pytest.mark.parametrize("line", [b"garbage", b'{"topic": 1}', b"[]", b"\xff\xfe", b""])
def test_a_damaged_line_is_counted_and_skipped(ends, line):
    channel, end = ends
    end.send(line + b'\n{"topic": "t", "body": 2}\n')
    assert channel.receive() == [("t", 2)]
    assert channel.damaged == 1


def test_a_slow_reader_costs_the_oldest_reports_but_no_command(ends):
    channel, end = ends
    filler = "x" * 100_000
    while channel.send(COMMANDS, {"filler": filler}):
        pass
    assert not channel.send(COMMANDS, {"n": 0})
    assert channel.dropped == 0
    other, seen = Channel(end), []
    while arrived := other.receive():
        seen += arrived
        channel.flush()
    assert all(body == {"filler": filler} for _, body in seen)
    assert channel.waiting == 0


def test_reports_make_room_for_newer_ones(ends):
    channel, end = ends
    sent = 200
    for number in range(sent):
        assert channel.send(METRICS_ACTORS, {"n": number, "filler": "x" * 50_000})
    other, seen = Channel(end), []
    while arrived := other.receive():
        seen += [body["n"] for _, body in arrived]
        channel.flush()
    assert seen[-8:] == list(range(sent - 8, sent))
    assert channel.dropped == sent - len(seen) > 0


def test_the_end_of_the_other_side_shows_after_its_last_words(ends):
    channel, end = ends
    other = Channel(end)
    other.send(COMMANDS, {"last": "words"})
    other.close()
    assert not channel.closed
    assert channel.receive() == [("commands.control", {"last": "words"})]
    assert channel.closed
    assert not channel.send(COMMANDS, {})


def test_last_words_are_read_even_after_a_failed_write(ends):
    channel, end = ends
    other = Channel(end)
    other.send(COMMANDS, {"last": "words"})
    other.close()
    channel.send(METRICS_ACTORS, {"n": 1})
    assert channel.closed
    assert channel.receive() == [("commands.control", {"last": "words"})]
