"""A learner that is killed comes back, redoes what the journal has, and arrives at the very weights it had."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.core.journal import effective
from millstream.learner.ledger import is_hashed
from millstream.learner.replaying import Replaying
from tests.learner.durable import DurableLog, Life, Player, agent_and_hyper, counted, crew, steps

PPO = {"minibatch": 8, "epochs": 2, "learning_rate": 1e-2}
DQN = {
    "minibatch": 8, "gradients": 2, "capacity": 120, "n_step": 3, "prioritised": True, "target_every": 3,
    "learning_rate": 1e-2,
}  # fmt: skip
ALGORITHMS = pytest.mark.parametrize(("algorithm", "settings"), [("ppo", PPO), ("dqn", DQN)], ids=["ppo", "dqn"])
EVERY = {"ppo": 200, "dqn": 60}
"""Steps between two checkpoints: some updates of each."""


def exactly_once(life: Life) -> None:
    """Every rollout of the log is used, dropped, or still on its way: never two of them, never twice."""
    lines = effective(life.lines())
    assert [line["update"] for line in lines] == list(range(1, len(lines) + 1))
    named = counted(lines, "used", "dropped")
    assert len(named) == len(set(named))
    written = {rollout.stamp.identity: rollout.count for rollout in life.log.rollouts()}
    assert set(named) <= set(written)
    kept = life.learner.source.snapshot()  # what is done with, and belongs to the next update
    under_way = {tuple(each[:3]) for each in kept.get("arrived", kept.get("dropped"))}
    oldest = life.subscription.positions()
    for source, records in enumerate(life.log.records):
        for position in records:
            identity = life.log.at(f"part-{source}", position).stamp.identity
            assert identity in named or identity in under_way or position >= oldest[f"part-{source}"]
    counters = life.learner.counters
    assert (counters.trained, counters.stale) == (steps(lines, "used"), steps(lines, "dropped"))
    for line in lines:
        assert all(written[actor, epoch, sequence] == n for actor, epoch, sequence, n in line["used"] + line["dropped"])


def unsaved(life: Life, update: int, players: Sequence[Player], rng: np.random.Generator) -> tuple[int, int]:
    """Bring it to that update, or a little further: the last one that is saved, and the one that it reached."""
    saved = end = 0
    while end < update or end - saved < 4:
        end += 1
        life.until(end, players, rng)
        saved = max((int(path.name) for path in (life.run / "checkpoints").glob("*")), default=0)
    return saved, end


@ALGORITHMS
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_learner_arrives_at_the_weights_it_had(
    tmp_path: Path, algorithm: str, settings: dict[str, Any], seed: int
) -> None:
    agent, hyper = agent_and_hyper(algorithm, **settings)
    log, rng = DurableLog(), np.random.default_rng(seed)
    players = crew(log, agent)
    first = Life(tmp_path, log, agent, hyper, epoch=0, seed=seed, save_every=EVERY[algorithm])
    saved, end = unsaved(first, 20, players, rng)  # killed: nothing of it is closed or saved
    second = Life(tmp_path, log, agent, hyper, epoch=1, seed=seed + 50, save_every=0)
    assert second.restored and second.learner.counters.updates == saved and second.learner.redoing
    second.until(end, [], rng)
    assert second.hashes == {update: first.hashes[update] for update in range(saved + 1, end + 1)}
    assert second.learner.counters == first.learner.counters
    assert second.course.redone == end - saved and not second.told("warning")
    assert len(second.lines()) == end and second.lines()[-1]["epoch"] == 0
    second.until(end + 10, players, rng)
    assert second.lines()[-1]["epoch"] == 1
    exactly_once(second)


@ALGORITHMS
def test_it_may_be_killed_again_while_it_redoes_and_after_any_update(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    agent, hyper = agent_and_hyper(algorithm, **settings)
    log, rng = DurableLog(), np.random.default_rng(3)
    players, reached = crew(log, agent), 0
    hashes: dict[int, str] = {}
    for epoch in range(12):
        life = Life(tmp_path, log, agent, hyper, epoch, seed=epoch, save_every=EVERY[algorithm] if epoch % 2 else 0)
        begun = life.learner.counters.updates
        reached = max(reached, begun + int(rng.integers(1, 9)))
        life.until(max(begun + 1, reached - int(rng.integers(0, 4))), players, rng)
        for update, found in life.hashes.items():
            assert hashes.setdefault(update, found) == found
        for player in players[: epoch % 3]:  # actors may be replaced too
            player.epoch, player.sequence, player.policy = player.epoch + 1, 0, None
            log.released.pop(player.index, None)
    life.until(reached, players, rng)
    exactly_once(life)


@ALGORITHMS
def test_a_run_that_was_never_saved_is_redone_from_its_first_update(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    agent, hyper = agent_and_hyper(algorithm, **settings)
    log, rng = DurableLog(), np.random.default_rng(1)
    first = Life(tmp_path, log, agent, hyper, epoch=0)
    first.until(9, crew(log, agent), rng)
    second = Life(tmp_path, log, agent, hyper, epoch=1, seed=77)
    assert not second.restored
    second.until(9, [], rng)
    assert second.hashes == first.hashes and second.learner.counters == first.learner.counters


@ALGORITHMS
def test_a_run_that_was_closed_loses_nothing(tmp_path: Path, algorithm: str, settings: dict[str, Any]) -> None:
    agent, hyper = agent_and_hyper(algorithm, **settings)
    log, rng = DurableLog(), np.random.default_rng(1)
    players = crew(log, agent)
    for epoch in range(8):
        life = Life(tmp_path, log, agent, hyper, epoch, seed=epoch)
        life.until(7 * (epoch + 1), players, rng)
        for _ in range(12):  # some are gathered or dropped and belong to no update yet
            [player.step(life.policies) for player in players]
            life.ingest.step()
            if life.learner.between_updates:
                life.learner.step()
        life.learner.close()
    exactly_once(life)


def test_policies_of_the_earlier_learner_stay_the_newest_until_all_is_redone(tmp_path: Path) -> None:
    agent, hyper = agent_and_hyper("ppo", **PPO)
    log, rng = DurableLog(), np.random.default_rng(1)
    Life(tmp_path, log, agent, hyper, epoch=0).until(6, crew(log, agent), rng)
    life = Life(tmp_path, log, agent, hyper, epoch=1)
    life.until(5, [], rng)
    assert life.policies.latest() is None and life.learner.redoing
    life.until(6, [], rng)
    policy = life.policies.latest()
    assert policy is not None and (policy.version.epoch, policy.version.number) == (1, 6)
    assert life.told("info") == [
        "redoing updates 1 to 6 by the journal",
        "redid updates 1 to 6 by the journal; 5 of 5 hashes of weights agree",
    ]
    assert [report for report in life.reports if report["kind"] == "update"] == []


def test_what_the_earlier_learner_s_policies_made_is_fresh_afterwards_if_it_is_not_too_old(tmp_path: Path) -> None:
    agent, hyper = agent_and_hyper("ppo", **PPO)
    log, rng = DurableLog(), np.random.default_rng(1)
    players = crew(log, agent)
    first = Life(tmp_path, log, agent, hyper, epoch=0)
    first.until(6, players, rng)
    newest = first.policies.latest()
    assert newest is not None and newest.version.number == 6
    for player in players:
        player.window = 100
        player.step(first.policies)
    life = Life(tmp_path, log, agent, hyper, epoch=1)
    life.until(7, [], rng)  # of nothing but what epoch 0 had made
    used = {tuple(each[:3]) for each in life.lines()[6]["used"]}
    made = {rollout.stamp.identity: rollout.stamp.policy for rollout in log.rollouts()}
    assert used and all(made[each].epoch == 0 and made[each].number in (5, 6) for each in used)


@ALGORITHMS
def test_a_course_whose_rollouts_are_gone_is_given_up_and_training_goes_on(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    agent, hyper = agent_and_hyper(algorithm, **settings)
    log, rng = DurableLog(), np.random.default_rng(1)
    players = crew(log, agent)
    first = Life(tmp_path, log, agent, hyper, epoch=0)
    first.until(9, players, rng)
    actor, *_ = first.lines()[4]["used"][0]
    sequence = next(each[2] for each in first.lines()[4]["used"] if each[0] == actor)
    log.trim(actor, 100 + sequence + 1)
    life = Life(tmp_path, log, agent, hyper, epoch=1)
    life.until(12, players, rng)
    (words,) = life.told("warning")
    assert "cannot be followed: rollout 0 of actor" in words and "is not in the log; going on freely" in words
    assert life.course.reason is not None and life.lines()[9]["update"] == 1
    lines = effective(life.lines())
    assert [line["update"] for line in lines] == list(range(1, 13)) and {line["epoch"] for line in lines} == {1}


@pytest.mark.parametrize("who", ["all that an actor made", "the end of what it made"])
def test_a_log_that_ends_too_early_is_noticed(tmp_path: Path, who: str) -> None:
    agent, hyper = agent_and_hyper("ppo", **PPO)
    log, rng = DurableLog(), np.random.default_rng(1)
    Life(tmp_path, log, agent, hyper, epoch=0).until(6, crew(log, agent), rng)
    kept = 0 if who.startswith("all") else 2
    log.records[1] = dict([*log.records[1].items()][:kept])
    life = Life(tmp_path, log, agent, hyper, epoch=1)
    for _ in range(500):
        life.ingest.step(), life.learner.step()
    assert not life.learner.redoing and "is not in the log" in life.told("warning")[0]
    assert life.course.last == life.course.redone < 6


def test_what_a_wire_refused_is_counted_once_however_often_it_is_read_again(tmp_path: Path) -> None:
    agent, hyper = agent_and_hyper("ppo", **PPO)
    log, rng = DurableLog(), np.random.default_rng(1)
    players, refused = crew(log, agent), [(0, 5, n, 3, "damaged" if n % 2 else "too large") for n in range(12)]

    def wire(read: int) -> Any:
        """Refuses one more at each call, from that one on."""
        left = iter(refused[read:])
        return lambda: [*islice(left, 1)]

    first = Life(tmp_path, log, agent, hyper, epoch=0, save_every=EVERY["ppo"], refused=wire(0))
    saved, end = unsaved(first, 9, players, rng)
    assert first.learner.counters.refused and end < 12
    second = Life(tmp_path, log, agent, hyper, epoch=1, seed=7, refused=wire(saved - 3))  # some of them again
    second.until(end, [], rng)
    assert second.learner.counters.refused == first.learner.counters.refused
    second.until(20, players, rng)
    named = counted(effective(second.lines()), "refused")
    assert named == [each[:3] for each in refused]
    assert second.learner.counters.refused == {"damaged": 18, "too large": 18}


def test_weights_that_turn_out_otherwise_are_told_once(tmp_path: Path) -> None:
    agent, hyper = agent_and_hyper("ppo", **PPO)
    log, rng = DurableLog(), np.random.default_rng(1)
    first = Life(tmp_path, log, agent, hyper, epoch=0)
    first.until(9, crew(log, agent), rng)
    lines = first.lines()
    wrong = [{**line, "weights": "0" * 64} if line.get("weights") and line["update"] > 4 else line for line in lines]
    life = Life(tmp_path, log, agent, hyper, epoch=1, lines=wrong)
    life.until(9, [], rng)
    assert life.told("warning") == [f"the weights after update 6 are {first.hashes[6][:12]}, in the journal {'0' * 12}"]
    assert (life.course.compared, life.course.agreed) == (7, 4)


# --- replay --------------------------------------------------------------------------------------------------------


@ALGORITHMS
@pytest.mark.parametrize("start", ["nothing", "a checkpoint"])
def test_a_replay_says_that_all_weights_are_the_same(
    tmp_path: Path, algorithm: str, settings: dict[str, Any], start: str
) -> None:
    agent, hyper = agent_and_hyper(algorithm, **settings)
    log, rng = DurableLog(), np.random.default_rng(1)
    players = crew(log, agent)
    first = Life(tmp_path, log, agent, hyper, epoch=0, save_every=EVERY[algorithm] if start == "a checkpoint" else 0)
    saved, end = unsaved(first, 20, players, rng)
    life = Life(tmp_path, log, agent, hyper, epoch=1, seed=8)
    replaying = Replaying(life.ingest, life.learner)
    for _ in range(100_000):
        replaying.step()
        if replaying.finished:
            break
    answer = replaying.answer()
    hashed = sum(is_hashed(update, 3) for update in range(saved + 1, end + 1))
    assert answer.same and answer.updates == end - saved and answer.compared == answer.agreed == hashed
    assert life.hash == first.hash and replaying.step() == 0 and life.learner.counters.updates == end
    assert len(life.lines()) == end


def test_a_replay_names_the_first_difference_and_why_it_ended(tmp_path: Path) -> None:
    agent, hyper = agent_and_hyper("ppo", **PPO)
    log, rng = DurableLog(), np.random.default_rng(1)
    first = Life(tmp_path, log, agent, hyper, epoch=0)
    first.until(9, crew(log, agent), rng)
    log.records[0] = dict([*log.records[0].items()][:-3])
    life = Life(tmp_path, log, agent, hyper, epoch=1, shards=1)
    life.learner.state.weights[0] += 1e-3
    replaying = Replaying(life.ingest, life.learner)
    while not replaying.finished:
        replaying.step()
    answer = replaying.answer()
    assert not answer.same and answer.difference is not None
    assert (answer.difference.update, answer.difference.recorded) == (1, first.hashes[1])
    assert answer.difference.found != first.hashes[1] and answer.agreed == 0
    assert answer.reason is not None and "is not in the log" in answer.reason
