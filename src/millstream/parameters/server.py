"""Parameters in one place: workers push gradients or deltas, everyone reads the latest version.

Readers take no lock and never wait: an update makes new arrays and then one reference changes. Writers take turns. No
call waits for another worker; who wants the next version asks `latest`, or `wait` with a limit. What pushes say of
themselves is of any type here: it may come from strangers, and what is wrong with it is counted, not raised.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from millstream.core.data import NONE, Array, Params, Policy, Receipt, Statistics, Version, check_newer
from millstream.core.errors import CheckpointError, ConfigError, Diverged, MillError, RunError
from millstream.core.files import replace_durably
from millstream.parameters import optimise, options, saving
from millstream.parameters.aggregate import Aggregate
from millstream.parameters.combine import Combiner
from millstream.parameters.counting import Counts
from millstream.parameters.held import Held
from millstream.parameters.layout import Layout, Pushed, Refusal, params_of
from millstream.parameters.optimise import Optimiser
from millstream.parameters.privacy import Privacy
from millstream.parameters.rounds import Push, Round, amount, lag, worker_name

FIRST = Version(0, 0)


class ParameterServer:
    """Versioned parameters that workers of one process share; a policy store for learners and actors, too.

    initial_params: `Params`, arrays by name, or one flat array; without any, the first publish or load gives them.
    mode: "async" applies each push at once; "sync" waits until `quorum` different workers pushed, and applies once.
    aggregation: how a round becomes one vector: average, weighted, federated, median, trimmed_mean, or a function.
    optimiser: "sgd" descends by `learning_rate`, "add" adds what is pushed; or apply(weights, gradients) -> weights.
    max_staleness: how many versions behind a push may be; by default any number in async, none in sync.
    privacy: keeps the clients of federated rounds private, and counts what that costs.
    trained: the tensors that pushes move, held as float32; by default `weights` of Params, else every float one.
    """

    def __init__(
        self,
        initial_params: Params | Mapping[str, Array] | Array | None = None,
        *,
        mode: str = "async",
        quorum: int = 1,
        aggregation: str | Aggregate = "average",
        optimiser: str | Optimiser = "sgd",
        learning_rate: float = 1e-2,
        max_staleness: int | None = None,
        privacy: Privacy | None = None,
        trained: Sequence[str] | None = None,
        version: Version = FIRST,
    ):
        self.mode, self.quorum, self.privacy = mode, quorum, privacy
        self.aggregation, self.optimiser, self.learning_rate = aggregation, optimiser, learning_rate
        self.max_staleness = 0 if mode == "sync" and max_staleness is None else max_staleness
        self._combiner, self._trained = Combiner(aggregation, quorum, privacy), trained
        options.check(mode, quorum, aggregation, max_staleness, privacy)
        optimise.check(optimiser, learning_rate)
        self.accountant = self._combiner.accountant
        self._counts, self._round = Counts(), Round(quorum)
        self._writing, self._saving, self._news = threading.Lock(), threading.Lock(), threading.Condition()
        self._closed = False
        self._held: Held | None = None
        if initial_params is not None:
            self._held = Held.of(Layout.of(initial_params, trained), params_of(initial_params), version)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> Version:
        """The latest version; NONE while there are no parameters."""
        held = self._held
        return NONE if held is None else held.policy.version

    def get(self) -> Policy:
        """The latest policy. Its arrays are shared and read-only: copy what you want to change."""
        policy = self.latest()
        if policy is None:
            raise RunError("the server has no parameters yet; give it some, publish a policy, or load a checkpoint")
        return policy

    def latest(self, newer_than: Version = NONE) -> Policy | None:
        """The latest policy, or None when there is nothing newer than that."""
        held = self._held
        return held.policy if held is not None and held.policy.version > newer_than else None

    def wait(self, newer_than: Version, timeout: float) -> Policy | None:
        """Like `latest`, but for at most `timeout` seconds it waits for something newer; closing ends the wait."""
        with self._news:
            limit = min(max(timeout, 0.0), threading.TIMEOUT_MAX)
            self._news.wait_for(lambda: self._closed or self.latest(newer_than) is not None, limit)
        return self.latest(newer_than)

    def statistics(self) -> Statistics:
        """What was counted since the server was made."""
        held, private = self._held, self.privacy
        epsilon = None if private is None else self.accountant.epsilon(private.delta)
        delta = None if private is None else private.delta
        steps = 0 if held is None else held.policy.steps
        return self._counts.statistics(self.version, steps, len(self._round.pushes), epsilon, delta)

    # --- writing -----------------------------------------------------------------------------------------------------

    def publish(self, policy: Policy) -> None:
        """Make this the latest, whole; Fenced when it is not newer."""
        with self._writing:
            self._check_open()
            check_newer(policy.version, self.version, "or pushes moved it on: fetch the latest and publish a newer one")
            held = self._prepared(policy, policy.version)
            self._give_up_round(Round(self.quorum))
            self._set(held)

    def push_gradients(
        self, worker: Any, version: Any, gradients: Pushed, samples: Any = 1, weight: Any = None
    ) -> Receipt:
        """Descend along these gradients: at once, or with the round's. `weight` is what "weighted" counts it with.

        `version` is the one that they were computed on, `samples` how many steps they were computed from.
        """
        return self._push("gradients", worker, version, gradients, samples, weight)

    def push_delta(self, client: Any, version: Any, delta: Pushed, samples: Any = 1, weight: Any = None) -> Receipt:
        """Go along what a client learnt on its own: its weights less those of `version`. It is added as it is.

        An optimiser that was given as a function gets the negative of it as gradients (Reddi et al. 2021).
        """
        return self._push("delta", client, version, delta, samples, weight)

    def begin_round(self, clients: Iterable[str | int]) -> frozenset[str]:
        """Open a round for these clients, and say who takes part: with privacy, whom chance drew; there may be none.

        It ends when all of them have pushed, or by `end_round`. What an open round held is dropped and counted.
        """
        if self.mode != "sync":
            raise ConfigError("rounds are for mode='sync'; in mode 'async' every push is applied at once")
        names = list(dict.fromkeys(str(client) for client in clients))
        with self._writing:
            self._check_open()
            members = frozenset(names) if self.privacy is None else self.privacy.draw(names)
            self._give_up_round(Round(self.quorum, members))
        return members

    def end_round(self) -> Version:
        """Apply what the open round has, without waiting for the rest, and say which version is the latest.

        A private round that was opened by `begin_round` is released even when nobody pushed: silence would tell that.
        """
        with self._writing:
            self._check_open()
            drawn = self.privacy is not None and self._round.members is not None
            if self._held is not None and (self._round.pushes or drawn):
                try:
                    self._finish_round(self._held, len(self._round.pushes))
                except Refusal as refusal:
                    raise Diverged(f"the round was dropped: {refusal}") from refusal
        return self.version

    def close(self) -> None:
        """Take no more pushes and wake who waits. The latest policy can still be read."""
        with self._writing:
            self._closed = True
            self._give_up_round(Round(self.quorum))
            self._combiner.close()
        with self._news:
            self._news.notify_all()

    # --- on disk -----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write parameters, version, privacy spent and the optimiser's snapshot (where it has one); no open round.

        The file is whole or not there.
        """
        with self._saving:
            with self._writing:  # only to copy what moves: a policy never does, and the file can wait
                held = self._held
                spent, snapshot = self.accountant.history(), optimise.snapshot(self.optimiser)
            if held is None:
                raise RunError("the server has no parameters yet, so there is nothing to save")
            saved = saving.Saved(held.policy, held.trained, spent, snapshot)
            replace_durably(Path(path), saving.encode(saved))
        return Path(path)

    def load(self, path: str | Path, epoch: int = 0) -> Version:
        """Continue from a file in a new epoch: this one, or one after the file's and the server's own.

        What this server has spent of privacy stays spent: the file's share is added to it.
        """
        saved = saving.read(Path(path))
        with self._writing:
            self._check_open()
            version = saved.policy.version
            newer = Version(max(epoch, version.epoch + 1, self.version.epoch + 1), version.number)
            try:
                held = self._prepared(saved.policy, newer, saved.trained)
                optimise.restore(self.optimiser, saved.optimiser)
            except (MillError, ValueError, TypeError, KeyError) as error:
                raise CheckpointError(f"{path} does not fit this server: {error}") from error
            self.accountant.add(saved.spent)
            self._give_up_round(Round(self.quorum))
            self._set(held)
        return newer

    # --- inside ------------------------------------------------------------------------------------------------------

    def _push(self, kind: str, worker: Any, version: Any, pushed: Pushed, samples: Any, weight: Any) -> Receipt:
        try:
            held = self._ready(kind)
            lag(version, held.policy.version, self.max_staleness)  # before its numbers are copied
            count = amount("samples", samples)
            share = count if weight is None else amount("weight", weight)
            push = Push(worker_name(worker), kind, version, held.layout.vector(pushed), count, share)
            with self._writing:
                behind = self._take(push)
        except Refusal as refusal:
            self._counts.refuse(refusal.cause)
            return Receipt(False, self.version, str(refusal))
        self._counts.accept(push.vector.nbytes, behind)
        return Receipt(True, self.version)

    def _take(self, push: Push) -> int:
        held = self._ready(push.kind)
        behind = lag(push.version, held.policy.version, self.max_staleness)  # it may have moved on meanwhile
        if self.mode == "async":
            self._apply(held, push.vector, push.kind, push.samples)
            return behind
        if self._round.add(push):
            self._counts.add("replaced")
        if self._round.complete:
            self._finish_round(held, len(self._round.pushes) - 1)  # this one is not, yet
        return behind

    def _ready(self, kind: str) -> Held:
        held = self._held
        if self._closed:
            raise Refusal("closed", "the server was closed")
        if held is None:
            raise Refusal("empty", "the server has no parameters yet; publish a policy first")
        if self.privacy is not None and kind != "delta":
            raise Refusal("kind", "this server keeps its clients private, and gradients are not; push a delta")
        if self.privacy is not None and self.privacy.draws and self._round.members is None:
            raise Refusal("round", "the server draws who takes part, and no round is open; see begin_round")
        return held

    def _finish_round(self, held: Held, accepted: int) -> None:
        """Apply the open round, of which so many pushes were accepted. One that fails is gone, not stuck."""
        finished, self._round = self._round, Round(self.quorum)
        try:
            vector = self._combiner.combine(finished, held.layout.size)
            samples = 0.0 if self.privacy is not None else sum(push.samples for push in finished.pushes.values())
            self._apply(held, vector, finished.kind or "delta", samples)
        except Exception:
            self._counts.add("dropped", accepted)
            raise

    def _apply(self, held: Held, vector: np.ndarray, kind: str, samples: float) -> None:
        weights = optimise.moved(self.optimiser, held.weights, vector, kind, self.learning_rate)
        self._counts.add("rounds")
        self._set(held.moved_to(weights, samples))

    def _prepared(self, policy: Policy, version: Version, trained: Sequence[str] | None = None) -> Held:
        """What the server would hold with this policy; raises when it does not fit."""
        held = self._held
        layout = Layout.of(policy.params, self._trained or trained) if held is None else held.layout
        return Held.of(layout, policy.params, version, policy.steps)

    def _set(self, held: Held) -> None:
        self._held = held  # one reference: a reader has the old version or the new one, whole
        with self._news:
            self._news.notify_all()

    def _give_up_round(self, following: Round) -> None:
        self._counts.add("dropped", len(self._round.pushes))
        self._round = following

    def _check_open(self) -> None:
        if self._closed:
            raise RunError("this parameter server was closed; make a new one, and load its checkpoint")
