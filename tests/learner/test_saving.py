from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.core.data import Policy, Version
from millstream.core.errors import CheckpointError
from millstream.core.spec import Discrete, EnvSpec
from millstream.learner.checkpoint import Checkpoints
from millstream.learner.saving import Saver
from millstream.testing import FakeClock
from tests.agents.rollouts import NUMBERS, SPECS, agent_for
from tests.learner.making import SLOTS, STEPS, Told, feed, learner, one_update

ROLLOUT = STEPS * SLOTS
OTHER = EnvSpec("other", NUMBERS, Discrete(9))


class Companion:
    """A role beside the learner."""

    def __init__(self, value: int = 0) -> None:
        self.value, self.reopened = value, []  # type: ignore[var-annotated]

    def snapshot(self) -> dict[str, Any]:
        return {"value": self.value, "array": np.full(2, self.value)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        assert snapshot["array"].tolist() == [snapshot["value"]] * 2
        self.value = snapshot["value"]

    def reopen(self, number: int) -> None:
        self.reopened.append(number)


def saver(folder: Path, told: Told, **changes: Any) -> tuple[Saver, list[Policy]]:
    kept: list[Policy] = []
    about = {"env": "discrete", "algo": "ppo", "spec": SPECS["discrete"].to_json()}
    settings: dict[str, Any] = {
        "about": about, "keep": kept.append, "report": told.report, "clock": FakeClock(), "steps": 0, "seconds": 0,
    }  # fmt: skip
    return Saver(Checkpoints(folder), **{**settings, **changes}), kept


def train(of: Any, updates: int, start: int = 0, epoch: int = 0) -> list[int]:
    """Updates, and after each how many checkpoints there were."""
    of.step()
    found = []
    for sequence in range(start, start + updates):
        feed(of, sequence, epoch=epoch)
        one_update(of)
        found.append(len([r for r in of.saver_told.reports if r["kind"] == "checkpoint"]))
    return found


def saved_learner(
    folder: Path, told: Told | None = None, learning: dict[str, Any] | None = None, **changes: Any
) -> Any:
    told = told or Told()
    keeper, kept = saver(folder, told, **changes)
    of: Any = learner(told, saver=keeper, total_steps=10**6, **(learning or {}))
    of.saver_told, of.kept = told, kept
    return of


def test_a_checkpoint_is_due_by_steps(tmp_path: Path) -> None:
    assert train(saved_learner(tmp_path, steps=2 * ROLLOUT), 5) == [0, 1, 1, 2, 2]


def test_a_checkpoint_is_due_by_time(tmp_path: Path) -> None:
    clock = FakeClock()
    of = saved_learner(tmp_path, clock=clock, seconds=30.0)
    counts = []
    for sequence, passed in enumerate((0, 29, 1, 29, 31)):
        clock.advance(passed)
        counts += train(of, 1, sequence)
    assert counts == [0, 0, 1, 1, 2]


def test_a_checkpoint_is_due_when_people_ask_once_for_each_asking(tmp_path: Path) -> None:
    asked = [0]
    of = saved_learner(tmp_path, asked=lambda: asked[0])
    counts = train(of, 1)
    asked[0] = 1
    counts += train(of, 2, 1)
    assert counts == [0, 1, 1]


def test_the_end_is_always_saved_and_only_once(tmp_path: Path) -> None:
    of = saved_learner(tmp_path)
    of.total_steps = 2 * ROLLOUT
    assert train(of, 2) == [0, 1]
    of.close()
    assert [each.number for each in Checkpoints(tmp_path).saved()] == [2] and len(of.kept) == 1


def test_the_policy_that_goes_with_it_is_kept(tmp_path: Path) -> None:
    of = saved_learner(tmp_path)
    train(of, 2)
    of.close()
    (policy,) = of.kept
    assert (policy.version, policy.steps) == (Version(0, 2), 2 * ROLLOUT)
    assert np.array_equal(policy.params.tensors["weights"], of.state.weights)


def test_a_learner_and_its_companions_continue(tmp_path: Path) -> None:
    companion, other = Companion(7), Companion(0)
    of = saved_learner(tmp_path, companions=lambda: {"actor-0": companion})
    train(of, 3)
    of.close()
    assert companion.reopened == [3]
    again = saved_learner(
        tmp_path, learning={"epoch": 1}, companions=lambda: {"actor-0": other, "actor-1": Companion()}
    )
    assert again.saver.restore(again) is True
    assert again.counters == of.counters and np.array_equal(again.state.weights, of.state.weights)
    assert (other.value, other.reopened) == (7, [3])
    again.close()
    assert again.kept == []  # it is saved already


def test_without_a_checkpoint_there_is_nothing_to_continue(tmp_path: Path) -> None:
    of = saved_learner(tmp_path)
    assert of.saver.restore(of) is False and of.counters.updates == 0


def test_a_damaged_one_is_told(tmp_path: Path) -> None:
    of = saved_learner(tmp_path, steps=1)
    train(of, 2)
    (tmp_path / "00000002" / "state.json").write_text("{")
    again = saved_learner(tmp_path)
    again.saver.restore(again)
    assert again.counters.updates == 1
    texts = [(report["level"], report["text"]) for report in again.saver_told.reports]
    assert texts[0][0] == "warning" and "checkpoint 2 is damaged" in texts[0][1]
    assert texts[1] == ("info", "continuing from checkpoint 1")


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"algo": "impala"}, "is of ppo on discrete, this experiment is impala on discrete"),
        ({"env": "other", "spec": OTHER.to_json()}, "this experiment is ppo on other: the policy chooses one of"),
    ],
)
def test_a_checkpoint_of_another_experiment_is_refused_in_one_line(
    tmp_path: Path, about: dict[str, Any], words: str
) -> None:
    of = saved_learner(tmp_path)
    train(of, 1)
    of.close()
    again = saved_learner(tmp_path, about={**of.saver.about, **about})
    before = again.state.weights.copy()
    with pytest.raises(CheckpointError, match=words) as caught:
        again.saver.restore(again)
    assert "\n" not in str(caught.value) and "start a new run" in str(caught.value)
    assert np.array_equal(again.state.weights, before) and again.counters.updates == 0


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    of = saved_learner(tmp_path)
    train(of, 1)
    of.close()
    again = saved_learner(tmp_path, learning={"agent": agent_for(hidden=(5,))})
    with pytest.raises(CheckpointError, match=r"state.weights has shape"):
        again.saver.restore(again)
