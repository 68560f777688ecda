import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import CodecError, TooLarge
from millstream.core.parts import Joined, cut


def joined(parts, size, limit=1000):
    whole = Joined(size, limit)
    for part, checksum in parts:
        whole.add(part, checksum)
    return bytes(whole.whole())


@given(st.binary(max_size=100), st.integers(1, 120))
def test_what_was_cut_can_be_joined(data, size):
    parts = list(cut(data, size))
    assert len(parts) == -(-len(data) // size)
    assert joined(parts, len(data)) == data


@pytest.mark.parametrize(
    "spoil",
    [
        lambda parts: [*parts[:1], *parts[2:]],
        lambda parts: [*parts[:2], parts[1], *parts[2:]],
        lambda parts: [parts[1], parts[0], *parts[2:]],
        lambda parts: [(b"\x00" + parts[0][0][1:], parts[0][1]), *parts[1:]],
        lambda parts: [*parts, *parts[-1:]],
        lambda parts: parts[:-1],
        lambda parts: [],
    ],
    ids=["missing", "doubled", "swapped", "damaged", "too many", "too few", "none"],
)
def test_parts_that_are_not_those_that_were_sent_are_noticed(spoil):
    data = bytes(range(1, 41))
    with pytest.raises(CodecError, match="send it again"):
        joined(spoil(list(cut(data, 10))), len(data))


@pytest.mark.parametrize("size", [11, 10**18, -1])
def test_what_is_too_large_is_refused_before_a_byte_of_it_is_taken(size):
    with pytest.raises(TooLarge, match="at once, which is 10"):
        Joined(size, limit=10)
