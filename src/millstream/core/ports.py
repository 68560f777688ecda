"""The ports: all that a role knows of the world. Each has an in-process implementation that is the default product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from numpy.random import Generator

from millstream.core.data import (
    NONE,
    Array,
    Batch,
    Carry,
    Decision,
    Delivery,
    Gradients,
    Lesson,
    Params,
    Policy,
    Receipt,
    Rollout,
    Sample,
    Stamp,
    Start,
    Statistics,
    Step,
    Stop,
    Version,
    Worker,
)
from millstream.core.spec import EnvSpec
from millstream.core.topics import Report, Topic

M = TypeVar("M")
S = TypeVar("S")


@runtime_checkable
class Env(Protocol):
    """Several copies of one world, stepped together. A slot whose episode ended resets itself."""

    spec: EnvSpec
    slots: int

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot. Only `observations`, `first` and `masks` of the answer mean anything."""

    def step(self, actions: Array) -> Step:
        """Take one action a slot, already legal for the spec's action space (continuous ones are clipped here)."""

    def render(self, slot: int = 0) -> Array | None:
        """One slot as [height, width, 3] uint8; None when this environment has no picture."""

    def close(self) -> None:
        """Let go of everything."""


@runtime_checkable
class Snapshots(Protocol):
    """An optional gift of environments and roles: their whole state as arrays and plain values."""

    def snapshot(self) -> Mapping[str, Any]:
        """A tree of dictionaries, lists, arrays and plain values."""

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly where the snapshot was taken."""


@runtime_checkable
class Agent(Protocol[S]):
    """An algorithm as functions over its own state, built for one spec."""

    spec: EnvSpec
    Hyper: type
    """Its hyper-parameters: a frozen dataclass of settings."""
    window: int
    """How many rollouts an actor may be ahead of the learner."""
    max_lag: int | None
    """How many updates old experience may be; None bears any age."""
    sequences: bool
    """Whether a row of its batches is a slot's whole sequence [T, ...] rather than one step."""

    def init(self, seed: int) -> S:
        """A fresh state: a tree of dataclasses, dictionaries, arrays and plain values."""

    def policy(self, state: S, hyper: Any) -> Params:
        """What actors need: weights, frozen statistics, their hyper-parameters."""

    def carry(self, params: Params, slots: int) -> Carry:
        """What a policy remembers at the start of an episode."""

    def act(
        self,
        params: Params,
        observations: Mapping[str, Array],
        carry: Carry,
        first: Array,
        mask: Array | None,
        rng: Generator | None,
    ) -> tuple[Decision, Carry]:
        """Choose for all slots; with no generator, the most probable action."""

    def prepare(self, state: S, rollouts: Sequence[Rollout], hyper: Any) -> tuple[S, Batch]:
        """Advantages, targets, normalised inputs: once an update. Statistics move here."""

    def gradients(self, state: S, minibatch: Batch, hyper: Any) -> tuple[Gradients, Lesson]:
        """The mean gradient over the minibatch, the caller's from then on. Pure: threads call it at once on shards."""

    def apply(self, state: S, gradients: Gradients, hyper: Any) -> S:
        """Clip and step the optimiser; the old state may be used up."""


@runtime_checkable
class Adopts(Protocol):
    """An optional gift of agents: to begin with the weights of another run."""

    def adopt(self, state: Any, params: Params) -> Any:
        """The state with these weights and statistics; CheckpointError when they do not fit."""


@runtime_checkable
class Corrects(Protocol):
    """An optional gift of agents: to learn from experience that is too old for them as it is."""

    def correct(self, state: Any, rollouts: Sequence[Rollout], stale: Sequence[bool], hyper: Any) -> tuple[Any, Batch]:
        """As `prepare`, with what is stale corrected for the policy that made it."""


@runtime_checkable
class Subscription(Protocol[M]):
    """One reader's place in a topic."""

    def poll(self, limit: int) -> list[Delivery[M]]:
        """What has arrived, oldest first for each source; empty when there is nothing."""

    def release(self, stamp: Stamp) -> None:
        """This message and those before it from its actor are done with: memory and credit go back to the sender."""

    def positions(self) -> Mapping[str, int]:
        """Source -> next position to read; fits JSON."""

    def seek(self, positions: Mapping[str, int]) -> None:
        """Read again from there: whatever was not released is delivered once more."""


@runtime_checkable
class Bus(Protocol):
    """Carries messages between roles. "Not now" is an answer, never an exception."""

    def claim(self, topic: Topic[M], sender: int, size: int) -> memoryview | None:
        """Memory in which to build the sender's next message without a copy; None: no credit, ask again."""

    def publish(self, topic: Topic[M], message: M) -> bool:
        """Hand a message over; False: no credit or full, ask again."""

    def settled(self, topic: Topic[M], sender: int) -> int:
        """The last sequence of this sender that is safe; -1 when none is."""

    def subscribe(self, topic: Topic[M], group: str) -> Subscription[M]:
        """A reader that starts at the oldest message still held."""


@runtime_checkable
class Replay(Protocol):
    """Experience at rest."""

    @property
    def waiting(self) -> int:
        """How many items are held and not yet used up."""

    def insert(self, rollout: Rollout) -> bool:
        """Keep it; False: full, ask again."""

    def sample(self, size: int) -> Sample | None:
        """Pick `size` items; None when there are not enough yet."""

    def reprioritise(self, keys: Array, priorities: Array) -> None:
        """Change how likely items are to be picked."""


@runtime_checkable
class PolicyStore(Protocol):
    """Where policies are put by the learner and fetched by everyone else."""

    def publish(self, policy: Policy) -> None:
        """Make this the latest; it must be newer than the latest."""

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The latest policy, or None when there is nothing newer than that."""


@runtime_checkable
class Parameters(PolicyStore, Protocol):
    """Parameters that workers push gradients or deltas to. A push that is wrong is a receipt that says so."""

    @property
    def version(self) -> Version:
        """The latest version; NONE while there are no parameters."""

    def get(self) -> Policy:
        """The latest policy; RunError while there is none."""

    def wait(self, newer_than: Version, timeout: float) -> Policy | None:
        """Like `latest`, but for at most `timeout` seconds it waits for something newer."""

    def push_gradients(
        self, worker: str | int, version: Version, gradients: Any, samples: float = 1, weight: float | None = None
    ) -> Receipt:
        """Descend along gradients that were computed on `version` from so many samples."""

    def push_delta(
        self, client: str | int, version: Version, delta: Any, samples: float = 1, weight: float | None = None
    ) -> Receipt:
        """Go along what a client learnt on its own: its weights less those of `version`."""

    def begin_round(self, clients: Iterable[str | int]) -> frozenset[str]:
        """Open a round for these clients, and say who takes part."""

    def end_round(self) -> Version:
        """Apply what the open round has, and say which version is the latest."""

    def statistics(self) -> Statistics:
        """What was counted since the server was made."""

    def close(self) -> None:
        """Take no more pushes."""


@runtime_checkable
class MetricSink(Protocol):
    """Somewhere that reports end up."""

    def write(self, report: Report) -> None:
        """Take one report."""

    def close(self) -> None:
        """Flush and let go."""


@runtime_checkable
class Role(Protocol):
    """A part of a run."""

    def step(self) -> int:
        """One bounded unit of work that never waits; how much was done, 0 means "not now"."""


@runtime_checkable
class Host(Protocol):
    """A place where workers run."""

    def start(self, order: Start) -> None:
        """Begin to start a worker."""

    def stop(self, order: Stop) -> None:
        """Ask a worker to finish its step and end."""

    def workers(self) -> Sequence[Worker]:
        """What is here now, the dead included until they are replaced."""


@runtime_checkable
class Clock(Protocol):
    """The time."""

    def now(self) -> float:
        """Seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def rest(self, seconds: float) -> None:
        """Let others have the processor."""
