from __future__ import annotations

import itertools
import json
import math
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from millstream.core import codec
from millstream.core.codec import Layout, decode, decode_tensors, encode, encode_tensors, rollout_of, seal
from millstream.core.data import Params, Policy, Rollout, Stamp, Version
from millstream.core.errors import CodecError
from millstream.core.spec import Box, Discrete, EnvSpec, MultiDiscrete

DTYPES = ("float32", "float64", "uint8", "int64", "bool")
names = st.text("abcxyz/_ é", max_size=6)
stamps = st.builds(
    Stamp,
    experiment=st.text(max_size=10),
    actor=st.integers(0, 20),
    epoch=st.integers(0, 2**40),
    sequence=st.integers(0, 2**60),
    policy=st.builds(Version, st.integers(-1, 9), st.integers(-1, 2**40)),
    made_at=st.floats(allow_nan=False),
)


def noise(seed: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Every bit pattern may come, NaN and infinities too."""
    drawn = np.random.default_rng(seed).integers(0, 256, (math.prod(shape) * 8,), np.uint8)
    if dtype == "bool":
        return (drawn[: math.prod(shape)] > 127).reshape(shape)
    return drawn[: math.prod(shape) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)


@st.composite
def rollouts(draw: Any) -> Rollout:
    steps, slots = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    endings, seed = draw(st.integers(0, 3)), draw(st.integers(0, 2**32))
    kinds = st.dictionaries(
        names, st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=2)), max_size=3
    )

    def group(lead: tuple[int, ...], shown: dict[str, Any]) -> dict[str, np.ndarray]:
        return {name: noise(seed, dtype, (*lead, *shape)) for name, (dtype, shape) in shown.items()}

    shown = draw(kinds)
    return Rollout(
        observations=group((steps + 1, slots), shown),
        finals=group((endings,), shown),
        final_at=noise(seed, "int64", (endings, 2)),
        actions=noise(
            seed, draw(st.sampled_from(DTYPES)), (steps, slots, *draw(st.lists(st.integers(0, 3), max_size=2)))
        ),
        rewards=noise(seed, "float32", (steps, slots)),
        terminated=noise(seed, "bool", (steps, slots)),
        truncated=noise(seed, "bool", (steps, slots)),
        first=noise(seed, "bool", (steps + 1, slots)),
        valid=noise(seed, "bool", (steps, slots)),
        carry=group((slots,), draw(kinds)),
        extras=group((steps, slots), draw(kinds)),
        stamp=draw(stamps),
    )


def same(one: Rollout, other: Rollout) -> bool:
    mine, theirs = codec.paths(one), codec.paths(other)
    return (
        one.stamp == other.stamp
        and mine.keys() == theirs.keys()
        and all(
            mine[path].shape == theirs[path].shape
            and mine[path].dtype == theirs[path].dtype
            and mine[path].tobytes() == theirs[path].tobytes()
            for path in mine
        )
    )


def small() -> Rollout:
    """Two steps of two slots, one ending."""
    return Rollout(
        observations={"obs": np.arange(18, dtype=np.float32).reshape(3, 2, 3)},
        finals={"obs": np.full((1, 3), 9, np.float32)},
        final_at=np.array([[1, 0]]),
        actions=np.array([[0, 1], [1, 0]]),
        rewards=np.ones((2, 2), np.float32),
        terminated=np.array([[False, False], [True, False]]),
        truncated=np.zeros((2, 2), bool),
        first=np.array([[True, True], [False, False], [True, False]]),
        valid=np.ones((2, 2), bool),
        carry={"memory": np.ones((2, 4), np.float32)},
        extras={"value": np.zeros((2, 2), np.float32)},
        stamp=Stamp("run", 3, 1, 7, Version(1, 5), 12.5),
    )


# --- rollouts --------------------------------------------------------------------------------------------------------


@given(rollouts())
def test_any_rollout_comes_back_from_its_bytes(rollout: Rollout) -> None:
    assert same(decode(encode(rollout)), rollout)
    assert same(decode(bytes(encode(rollout))), rollout)


@given(rollouts())
def test_any_rollout_that_lives_elsewhere_is_copied_into_a_slab(rollout: Rollout) -> None:
    slab = memoryview(bytearray(codec.HEADER_ROOM + 64 * 30 + sum(a.nbytes for a in codec.paths(rollout).values())))
    seal(slab, rollout)
    assert same(decode(slab), rollout)


SPECS = {
    "vector": EnvSpec("a", {"obs": Box((4,))}, Discrete(3)),
    "masked": EnvSpec("b", {"obs": Box((4,))}, MultiDiscrete((2, 3)), masked=True),
    "dictionary": EnvSpec("c", {"seen/now": Box((2, 2), "uint8"), "goal": Discrete(3)}, Box((2,), "float64", -1, 1)),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("finals", [0, 1, 6])
def test_a_rollout_built_in_a_slab_is_sealed_and_read_without_a_copy(spec: EnvSpec, finals: int) -> None:
    layout = Layout.of(spec, 3, 2, {"h": np.zeros((2, 5), np.float32)}, {"value": np.zeros(2, np.float32)})
    slab = np.zeros(layout.size, np.uint8)
    arrays = layout.views(slab.data)
    for index, array in enumerate(arrays.values()):
        array[...] = noise(index, str(array.dtype), array.shape)
    made = rollout_of(arrays, 3, finals, Stamp("run", 0, 0, 0, Version(0, 0), 0.0))
    before = {path: array.copy() for path, array in codec.paths(made).items()}
    seal(slab.data, made)
    read = decode(slab.data)
    assert same(read, made)
    for path, array in codec.paths(read).items():
        assert array.tobytes() == before[path].tobytes(), f"{path} was written over"
        if array.size:
            assert np.shares_memory(array, slab) and np.shares_memory(array, codec.paths(made)[path])


def test_arrays_of_a_layout_never_share_bytes_and_stand_aligned() -> None:
    layout = Layout.of(SPECS["dictionary"], 3, 2, {}, {"value": np.zeros(2, np.float32)})
    taken = sorted((at, at + np.dtype(d).itemsize * math.prod(shape)) for d, shape, at in layout.arrays.values())
    assert taken[0][0] == codec.HEADER_ROOM and all(start % 64 == 0 for start, _ in taken)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))
    assert taken[-1][1] <= layout.size


def test_a_rollout_too_large_for_its_slab_is_refused() -> None:
    with pytest.raises(CodecError, match="its slab has"):
        seal(memoryview(bytearray(codec.HEADER_ROOM + 64)), small())


def test_numbers_of_the_other_byte_order_arrive_as_the_same_numbers() -> None:
    odd = small()
    odd.carry["memory"] = np.arange(8, dtype=">f4").reshape(2, 4)  # type: ignore[index]
    assert np.array_equal(decode(encode(odd)).carry["memory"], np.arange(8).reshape(2, 4))
    tensors, _ = decode_tensors(encode_tensors({"w": np.arange(3, dtype=">i4")}))
    assert tensors["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("array", [np.zeros((2, 2), object), np.zeros((2, 2), "U3"), np.zeros((2, 2), "complex64")])
def test_what_is_not_a_number_does_not_travel(array: np.ndarray) -> None:
    wrong = small()
    wrong.extras["value"] = array  # type: ignore[index]
    with pytest.raises(CodecError, match="do not travel"):
        encode(wrong)
    with pytest.raises(CodecError, match="do not travel"):
        encode_tensors({"w": array})


def test_no_shortened_message_is_taken() -> None:
    whole = bytes(encode(small()))
    for length in range(len(whole)):
        with pytest.raises(CodecError):
            decode(whole[:length])


def test_a_flipped_bit_is_found_or_harmless() -> None:
    whole, rollout = bytes(encode(small())), small()
    for position in range(len(whole)):
        for bit in range(8):
            broken = bytearray(whole)
            broken[position] ^= 1 << bit
            try:
                assert same(decode(broken), rollout), (position, bit)
            except CodecError:
                continue


def forged(change: Any, checked: bool = False) -> bytes:
    """A message whose header was written by a stranger."""
    whole = bytes(encode(small()))
    length = struct.unpack_from("<I", whole, 8)[0]
    header, body = json.loads(whole[16 : 16 + length]), whole[-(-(16 + length) // 64) * 64 :]
    header = change(header) or header
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    rest = text + b"\0" * (-(16 + len(text)) % 64) + body
    return struct.pack("<4sHHII", b"MILL", 1, int(checked), len(text), zlib.crc32(rest) if checked else 0) + rest


def place(path: str, dtype: Any = None, shape: Any = None, offset: Any = None) -> Any:
    def change(header: Any) -> None:
        for row in header["arrays"]:
            if row[0] == path:
                row[1:] = [row[1] if dtype is None else dtype, row[2] if shape is None else shape,
                           row[3] if offset is None else offset]  # fmt: skip

    return change


def stamped(**fields: Any) -> Any:
    return lambda header: header["stamp"].update(fields)


FORGERIES = {
    "negative shape": place("rewards", shape=[-2, -2]),
    "one negative dimension": place("rewards", shape=[-1, 4]),
    "huge shape": place("rewards", shape=[2**62, 2**62]),
    "shape beyond every integer": place("rewards", shape=[10**400]),
    "empty and huge": place("rewards", shape=[0, 2**63]),
    "shape of text": place("rewards", shape="22"),
    "shape of fractions": place("rewards", shape=[2.0, 2.0]),
    "shape of none": place("rewards", shape=[None, 2]),
    "no shape": place("rewards", shape=7),
    "shape of a hundred dimensions": place("rewards", shape=[1] * 100),
    "another shape": place("rewards", shape=[4]),
    "shape that does not fit the others": place("rewards", shape=[1, 4]),
    "first too short": place("first", shape=[2, 2]),
    "finals without a place": place("final_at", shape=[0, 2]),
    "place of three numbers": place("final_at", shape=[1, 1]),
    "memory of other slots": place("carry/memory", shape=[4, 2]),
    "overflowing offset": place("rewards", offset=2**63),
    "offset of a thousand digits": place("rewards", offset=10**1000),
    "negative offset": place("rewards", offset=-(2**40)),
    "offset that is not a number": place("rewards", offset=math.nan),
    "offset of text": place("rewards", offset="0"),
    "unknown type": place("rewards", dtype="<c8"),
    "objects": place("rewards", dtype="|O"),
    "a list as type": place("rewards", dtype=["<f4"]),
    "path that is a number": lambda header: header["arrays"][0].__setitem__(0, 5),
    "path that is a list": lambda header: header["arrays"][0].__setitem__(0, []),
    "unknown field": lambda header: header["arrays"][0].__setitem__(0, "stamp"),
    "unknown group": lambda header: header["arrays"][0].__setitem__(0, "secrets/x"),
    "missing field": lambda header: header["arrays"].pop(0) and None,
    "rows too short": lambda header: header["arrays"].__setitem__(0, ["rewards"]),
    "no arrays": lambda header: header.pop("arrays") and None,
    "arrays of text": lambda header: header.update(arrays="abc"),
    "no stamp": lambda header: header.pop("stamp") and None,
    "stamp of text": lambda header: header.update(stamp="x"),
    "stamp with more": stamped(more=1),
    "experiment that is a number": stamped(experiment=5),
    "actor of text": stamped(actor="0"),
    "actor that is true": stamped(actor=True),
    "sequence in fractions": stamped(sequence=1.5),
    "made at nowhere": stamped(made_at=None),
    "policy of text": stamped(policy=["a", "b"]),
    "policy of three": stamped(policy=[1, 2, 3]),
    "policy that is a number": stamped(policy=4),
    "a list": lambda header: b"[]",
    "a number": lambda header: b"5",
    "text": lambda header: b'"x"',
    "nothing": lambda header: b"null",
    "not JSON": lambda header: b"{",
    "not text": lambda header: b"\xff\xfe\xfa",
    "a deep hole": lambda header: b"[" * 200_000,
    "empty": lambda header: b" ",
}  # fmt: skip


@pytest.mark.parametrize("checked", [False, True], ids=["in a slab", "with a true checksum"])
@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_header_is_refused_and_costs_no_memory(change: Any, checked: bool) -> None:
    message = forged(change, checked)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(message)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_forgery_that_changes_nothing_is_read() -> None:
    assert same(decode(forged(lambda header: None)), small())
    assert same(decode(forged(lambda header: None, checked=True)), small())


@pytest.mark.parametrize(
    "prefix",
    [b"", b"MILL", b"LLIM\1\0\0\0", b"MILL\2\0\0\0", b"MILL\1\0\2\0", b"MILL\1\0\0\0\xff\xff\xff\xff"],
    ids=["nothing", "too short", "another magic", "a later schema", "unknown flags", "a header longer than it"],
)
def test_what_does_not_start_like_a_message_is_none(prefix: bytes) -> None:
    whole = bytes(encode(small()))
    with pytest.raises(CodecError):
        decode(prefix + whole[len(prefix) :] if len(prefix) > 4 else prefix)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_no_bytes_do_harm(data: bytes) -> None:
    for read in (decode, decode_tensors, codec.decode_policy):
        for message in (data, b"MILL\1\0\0\0" + data, struct.pack("<Q", len(data)) + data):
            with pytest.raises(CodecError):
                read(message)


# --- weights ---------------------------------------------------------------------------------------------------------

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "number": np.array(3.5),
    "count": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float32),
    "flags": np.array([True, False, True]),
    "bytes": np.arange(5, dtype=np.uint8),
    "half": np.array([1.5, -2], np.float16),
    "é/name with spaces": np.array([-1], np.int32),
}


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one
    )


def test_our_files_are_read_by_the_safetensors_library() -> None:
    assert equal(load_tensors(encode_tensors(ARRAYS, {"about": "ü"})), ARRAYS)


def test_files_of_the_safetensors_library_are_read_by_us() -> None:
    whole = {name: np.ascontiguousarray(array) if array.ndim else array for name, array in ARRAYS.items()}
    tensors, metadata = decode_tensors(save_tensors(whole, {"about": "ü"}))
    assert equal(tensors, ARRAYS) and metadata == {"about": "ü"}


def test_a_file_of_nothing_is_read_by_both() -> None:
    assert load_tensors(encode_tensors({})) == {}
    assert decode_tensors(save_tensors({})) == ({}, {})


def test_tensors_that_were_read_are_theirs_to_change() -> None:
    tensors, _ = decode_tensors(encode_tensors(ARRAYS))
    assert all(array.flags.writeable and array.flags.owndata for array in tensors.values())


def tensor_file(header: Any, body: bytes = bytes(16), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


MALICE = {
    "nothing": b"",
    "half a length": b"\1\2",
    "length beyond the file": tensor_file({}, length=2**63),
    "the largest length": tensor_file({}, length=2**64 - 1),
    "a list": tensor_file(b"[]"),
    "text": tensor_file(b'"abc"'),
    "a number": tensor_file(b"1"),
    "a deep hole": tensor_file(b"[" * 200_000),
    "an entry of text": tensor_file({"w": "abc"}),
    "an entry of nothing": tensor_file({"w": None}),
    "unknown type": tensor_file({"w": entry("F8")}),
    "a list as type": tensor_file({"w": entry(["F32"])}),
    "negative shape": tensor_file({"w": entry(shape=[-4])}),
    "two negatives": tensor_file({"w": entry(shape=[-2, -2])}),
    "overflowing shape": tensor_file({"w": entry(shape=[2**62, 4])}),
    "an empty shape that is huge": tensor_file({"w": entry(shape=[0, 2**63], offsets=[0, 0])}),
    "shape of text": tensor_file({"w": entry(shape=["4"])}),
    "offsets the wrong way": tensor_file({"w": entry(offsets=[16, 0])}),
    "offsets beyond": tensor_file({"w": entry(offsets=[8, 24])}),
    "negative offsets": tensor_file({"w": entry(offsets=[-16, 0])}),
    "offsets of text": tensor_file({"w": entry(offsets=["0", "16"])}),
    "three offsets": tensor_file({"w": entry(offsets=[0, 8, 16])}),
    "more claimed than there": tensor_file({"w": entry(shape=[2])}),
    "bytes that belong to nobody": tensor_file({"w": entry(shape=[2], offsets=[0, 8])}),
    "one region for many": tensor_file({f"w{i}": entry() for i in range(100)}),
    "metadata of numbers": tensor_file({"__metadata__": {"a": 1}, "w": entry()}),
    "metadata that is a list": tensor_file({"__metadata__": [1], "w": entry()}),
}


@pytest.mark.parametrize("data", MALICE.values(), ids=MALICE)
def test_a_malicious_file_of_weights_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode_tensors(data)


def test_many_names_for_the_same_bytes_ask_for_no_memory() -> None:
    body = bytes(1_000_000)
    names = {f"w{i}": entry("U8", [len(body)], [0, len(body)]) for i in range(200)}
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="the file holds"):
            decode_tensors(tensor_file(names, body))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_policy_comes_back_with_its_version() -> None:
    policy = Policy(Version(2, 17), Params({"weights": np.arange(3.0)}, {"epsilon": 0.1}), 4096)
    read = codec.decode_policy(codec.encode_policy(policy, {"algo": "ppo"}))
    assert (read.version, read.steps, read.params.hyper) == (policy.version, 4096, {"epsilon": 0.1})
    assert np.array_equal(read.params.tensors["weights"], policy.params.tensors["weights"])


@pytest.mark.parametrize("about", ["{}", "[]", "5", "x", '{"version": ["a", 1], "hyper": {}, "steps": 1}',
                                   '{"version": [1, 2], "hyper": 3, "steps": 1}',
                                   '{"version": [1, 2], "hyper": {}, "steps": "many"}'])  # fmt: skip
def test_tensors_without_a_version_are_no_policy(about: str) -> None:
    with pytest.raises(CodecError, match="not a policy"):
        codec.decode_policy(encode_tensors({}, {"millstream": about}))
