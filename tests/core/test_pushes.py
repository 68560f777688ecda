import math

import numpy as np
import pytest

from millstream.core.data import Version
from millstream.core.errors import CodecError
from millstream.core.pushes import amount_text, decode, encode, version_pair, worker_text


@pytest.mark.parametrize("pushed", [np.arange(6.0).reshape(2, 3), [1, 2, 3], np.float32(4), np.zeros(0)])
def test_an_array_stays_an_array_of_its_shape(pushed):
    read = decode(encode(pushed, 10_000))
    assert read.dtype == np.float32 and read.shape == np.shape(pushed) and np.array_equal(read, pushed)


def test_arrays_by_name_stay_by_name_even_by_an_empty_one():
    for pushed in ({"w": np.ones((2, 2)), "b": np.array(3)}, {"": np.ones(2)}, {}):
        read = decode(encode(pushed, 10_000))
        assert read.keys() == pushed.keys() and all(np.array_equal(read[name], pushed[name]) for name in pushed)


@pytest.mark.parametrize("pushed", [None, "text", np.ones(3, complex), np.ones(3, bool), [[1, 2], [3]], {"w": None}])
def test_what_is_not_made_of_numbers_becomes_a_text(pushed):
    assert isinstance(decode(encode(pushed, 10_000)), str)


def test_a_push_that_is_too_large_becomes_a_text_that_says_so():
    assert "at most 100 are taken" in decode(encode(np.ones(1000), 100))
    assert "with its names, and at most 100" in decode(encode({"a long name" * 20: np.ones(2)}, 100))
    assert "4,000,000,000,000 bytes" in decode(encode(np.broadcast_to(np.float32(1), (10**12,)), 1 << 30))


def test_what_float32_cannot_hold_arrives_as_infinity():
    assert decode(encode(np.array([1e39, math.nan, -1e300]), 1000)).tolist()[::2] == [math.inf, -math.inf]


def test_bytes_that_are_no_push_are_an_error():
    with pytest.raises(CodecError, match="not a safetensors file"):
        decode(b"no push")


def test_what_a_push_says_of_itself_can_always_travel():
    assert [worker_text(worker) for worker in ("a", 7, "", None, True, b"a", "x" * 1001)] == ["a", "7"] + [""] * 5
    assert worker_text("\ud800").encode()
    assert version_pair(Version(1, 2)) == (1, 2)
    wrong = (None, (0, 0), Version(0, 0.5), Version(True, 0), Version(0, 2**80), Version("0", 0))
    assert [version_pair(version) for version in wrong] == [None] * 6
    assert [amount_text(value) for value in (3, 0.5, math.inf)] == [3.0, 0.5, math.inf]
    assert [amount_text(value) for value in (None, "3", True, 10**400)] == ["None", "'3'", "True", "1" + "0" * 199]
