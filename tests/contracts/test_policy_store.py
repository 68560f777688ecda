"""What every policy store promises, over all implementations."""

import subprocess
import sys

import numpy as np
import pytest

from millstream.core.data import NONE, Params, Policy, Version
from millstream.core.errors import CodecError, Fenced
from millstream.parameters.server import ParameterServer
from millstream.wires.memory import MemoryPolicies
from millstream.wires.policies import SharedPolicies
from tests.kafka_runs import until


class Ends:
    def __init__(self, writer, reader):
        self.writer, self.reader = writer, reader


@pytest.fixture(params=["memory", "shared", "server", "grpc", "kafka"])
def store(request):
    if request.param == "kafka":
        run = request.getfixturevalue("on_kafka")
        both = Arriving(run.policies(), run.policies())
        return Ends(both, both)
    if request.param == "grpc":
        return over_the_network(request.addfinalizer)
    if request.param != "shared":
        one = MemoryPolicies() if request.param == "memory" else ParameterServer()
        return Ends(one, one)
    writer = SharedPolicies.create()
    request.addfinalizer(writer.close)
    return Ends(writer, SharedPolicies(writer.descriptor))


class Arriving:
    """Both ends of a store over a network; who reads waits until the newest that was published can have arrived."""

    def __init__(self, writer, reader):
        self._writer, self._reader, self._newest = writer, reader, NONE
        reader.latest()  # the place is found before anything is written

    def publish(self, policy):
        self._writer.publish(policy)
        self._newest = policy.version

    def latest(self, newer_than=NONE):
        if self._newest != NONE:
            assert until(lambda: (read := self._reader.latest()) and read.version == self._newest)
        return self._reader.latest(newer_than)


def over_the_network(later):
    pytest.importorskip("grpc")
    from millstream.services import parameters
    from millstream.services.serving import Listening, Served
    from millstream.wires.grpc import RemoteParameters

    served = Served(Listening(), [parameters.offer(ParameterServer())])
    served.start()
    later(served.stop)
    writer, reader = (RemoteParameters(served.address, timeout=20) for _ in range(2))
    later(writer.close)
    later(reader.close)
    return Ends(writer, reader)


@pytest.fixture
def shared():
    writer = SharedPolicies.create()
    yield writer
    writer.close()


def policy(number: int, epoch: int = 0, size: int = 1000) -> Policy:
    weights = np.full(size, number, np.float32)
    return Policy(Version(epoch, number), Params({"w": weights}, {"epsilon": 0.5}), steps=number * 10)


def test_an_empty_store_has_nothing(store):
    assert store.reader.latest() is None


def test_the_latest_policy_is_read_whole(store):
    store.writer.publish(policy(3))
    read = store.reader.latest()
    assert read.version == Version(0, 3)
    assert read.steps == 30
    assert read.params.hyper == {"epsilon": 0.5}
    np.testing.assert_array_equal(read.params.tensors["w"], np.full(1000, 3, np.float32))


def test_readers_skip_to_the_newest(store):
    for number in range(1, 8):
        store.writer.publish(policy(number))
    assert store.reader.latest(Version(0, 2)).version == Version(0, 7)


def test_nothing_newer_is_none(store):
    store.writer.publish(policy(3))
    assert store.reader.latest(Version(0, 3)) is None
    assert store.reader.latest(Version(1, 0)) is None
    assert store.reader.latest(NONE) is not None


def test_a_learner_that_went_back_is_newer_by_its_epoch(store):
    store.writer.publish(policy(50, epoch=0))
    store.writer.publish(policy(10, epoch=1))
    assert store.reader.latest(Version(0, 50)).version == Version(1, 10)


@pytest.mark.parametrize("late", [policy(5), policy(4), policy(99, epoch=-1)])
def test_a_policy_that_is_not_newer_is_fenced(store, late):
    store.writer.publish(policy(5))
    with pytest.raises(Fenced, match="another learner"):
        store.writer.publish(late)
    assert store.reader.latest().version == Version(0, 5)


def test_weights_that_change_after_publishing_do_not_change_the_version(store):
    made = policy(1)
    store.writer.publish(made)
    made.params.tensors["w"][:] = -1
    assert store.reader.latest().params.tensors["w"][0] == 1


def test_a_torn_buffer_gives_the_previous_policy(shared):
    for number in (1, 2):
        shared.publish(policy(number))
    reader = SharedPolicies(shared.descriptor)
    shared._buffers[2][500] ^= 0xFF  # the second publish went to buffer 2
    assert reader.latest().version == Version(0, 1)
    assert reader.latest(Version(0, 1)) is None
    shared.publish(policy(3))
    assert reader.latest(Version(0, 1)).version == Version(0, 3)


def test_a_writer_that_died_before_the_last_word_changed_nothing(shared):
    shared.publish(policy(1))
    shared._buffers[2][:4000] = b"\xff" * 4000  # where the second publish was being written
    assert SharedPolicies(shared.descriptor).latest().version == Version(0, 1)
    replacement = SharedPolicies(shared.descriptor)
    replacement.publish(policy(1, epoch=1))
    assert SharedPolicies(shared.descriptor).latest().version == Version(1, 1)


def test_a_policy_may_grow_a_little_and_is_refused_clearly_when_it_grows_much(shared):
    shared.publish(policy(1, size=1000))
    shared.publish(policy(2, size=1100))
    with pytest.raises(CodecError, match="does not fit"):
        shared.publish(policy(3, size=1_000_000))
    assert SharedPolicies(shared.descriptor).latest().version == Version(0, 2)


READER = """
import sys
from millstream.core.data import NONE
from millstream.wires.policies import SharedPolicies
store, version = SharedPolicies(int(sys.argv[1])), NONE
print("up", flush=True)
seen = 0
while version.number < int(sys.argv[2]):
    policy = store.latest(version)
    if policy is not None:
        assert policy.version > version
        weights = policy.params.tensors["w"]
        assert (weights == policy.version.number).all(), "half of one policy, half of another"
        version, seen = policy.version, seen + 1
print(seen)
"""


def test_a_reader_in_another_process_never_sees_half_a_policy(shared):
    last = 400
    command = [sys.executable, "-c", READER, str(shared.descriptor), str(last)]
    with subprocess.Popen(command, pass_fds=[shared.descriptor], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "up\n"
        for number in range(1, last + 1):
            shared.publish(policy(number, size=50_000))
        assert int(reader.communicate(timeout=30)[0]) >= 1
    assert reader.returncode == 0
