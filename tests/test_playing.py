from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import playing
from millstream.core.data import Params, Policy, Version
from millstream.core.errors import CheckpointError, EnvError
from millstream.core.spec import Box, EnvSpec
from millstream.parameters.keeping import Keeper
from millstream.playing import Player
from tests.agents.rollouts import SPECS, agent_for, legal, observe


def player(spec: str | EnvSpec = "discrete", kind: str = "mlp", **changes: Any) -> Player:
    agent = agent_for("ppo", spec, kind)
    state = agent.init(3)
    return Player(agent, Policy(Version(0, 1), agent.policy(state, agent.Hyper())), {}, **changes)


def some(spec: str, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return observe(SPECS[spec], count, np.random.default_rng(seed))


def nth(rows: dict[str, np.ndarray], index: int) -> dict[str, Any]:
    return {name: array[index] for name, array in rows.items()}


def test_one_observation_gives_one_action_as_a_plain_number() -> None:
    rows = some("discrete", 5)["obs"]
    for row in rows:
        action = player().act(row)
        assert type(action) is int and 0 <= action < 4


def test_many_observations_give_as_many_actions_as_one_by_one() -> None:
    rows = some("discrete", 20)["obs"]
    many = player().act(rows)
    assert many.shape == (20,) and many.tolist() == [player().act(row) for row in rows]
    assert len(set(many.tolist())) > 1


def test_lists_are_observations_too() -> None:
    assert player().act([0.1, 0.2, 0.3]) == player().act(np.array([0.1, 0.2, 0.3]))
    assert player().act([[0.1, 0.2, 0.3]]).shape == (1,)


def test_a_batch_of_one_is_still_a_batch() -> None:
    assert player().act(some("discrete", 1)["obs"]).shape == (1,)


def test_dictionaries_alone_and_in_a_batch() -> None:
    rows = some("dictionary", 6)
    many = player("dictionary").act(rows)
    assert many.tolist() == [player("dictionary").act(nth(rows, index)) for index in range(6)]


@pytest.mark.parametrize("spec", ["multi", "continuous"])
def test_actions_of_several_numbers_are_arrays(spec: str) -> None:
    found = player(spec)
    assert found.act(some(spec, 1)["obs"][0]).shape == (2,) and found.act(some(spec, 3)["obs"]).shape == (3, 2)


def test_continuous_actions_stay_inside_their_bounds() -> None:
    spec = EnvSpec("narrow", {"obs": Box((3,))}, Box((2,), "float64", low=(-0.01, -1.0), high=(0.02, 0.5)))
    actions = player(spec).act(some("discrete", 500)["obs"], stochastic=True)
    assert actions.dtype == np.float64 and actions.min(axis=0).tolist() == [-0.01, -1.0]
    assert actions.max(axis=0).tolist() == [0.02, 0.5]


def test_it_is_greedy_unless_asked() -> None:
    rows = np.zeros((300, 3), np.float32)
    assert len(set(player().act(rows).tolist())) == 1
    drawn = player(seed=1).act(rows, stochastic=True)
    assert len(set(drawn.tolist())) == 4
    assert (
        drawn.tolist()
        == player(seed=1).act(rows, stochastic=True).tolist()
        != player(seed=2).act(rows, stochastic=True).tolist()
    )


@pytest.mark.parametrize(
    ("spec", "given", "words"),
    [
        ("discrete", np.zeros(4), r"obs should have shape \(3,\).*got \(4,\)"),
        ("discrete", np.zeros((2, 4)), r"got \(2, 4\)"),
        ("discrete", np.zeros((2, 2, 3)), r"got \(2, 2, 3\)"),
        ("discrete", 5.0, r"got \(\)"),
        ("discrete", "abc", "obs should hold numbers"),
        ("discrete", None, "obs should"),
        ("discrete", [[1, 2, 3], [1, 2]], "obs should hold numbers"),
        ("discrete", {"other": np.zeros(3)}, r"expects \['obs'\], got \['other'\]"),
        ("dictionary", np.zeros(3), r"expects \['what', 'where', 'which'\], got \['obs'\]"),
        ("dictionary", {**some("dictionary", 2), "what": 1}, "some observations come in a batch"),
        ("dictionary", {**some("dictionary", 2), "what": np.zeros(3)}, "of another size"),
    ],
)
def test_an_observation_of_another_shape_is_said(spec: str, given: Any, words: str) -> None:
    with pytest.raises(EnvError, match=words):
        player(spec).act(given)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_observation_that_is_no_number_is_said(bad: float) -> None:
    width = player().spec.observations["obs"].shape[0]
    with pytest.raises(EnvError, match=f"obs should hold finite numbers, got {bad}"):
        player().act([0.0] * (width - 1) + [bad])


def test_a_mask_forbids() -> None:
    rng = np.random.default_rng(0)
    rows, masks = some("masked", 200)["obs"], legal(SPECS["masked"], 200, rng)
    actions = player("masked").act(rows, masks, stochastic=True)
    assert masks[np.arange(200), actions].all()
    assert player("masked").act(rows[0], [False, False, True, False]) == 2
    assert player("masked").act(rows[0], np.array([[False, True, False, False]])) == 1


@pytest.mark.parametrize("mask", [np.ones(3), np.ones((2, 2)), np.ones((2, 4)), np.ones(())])
def test_a_mask_of_another_shape_is_said(mask: np.ndarray) -> None:
    with pytest.raises(EnvError, match=r"a mask should have shape \(1, 4\)"):
        player("masked").act(some("masked", 1)["obs"][0], mask)


def test_earlier_frames_are_remembered_until_reset() -> None:
    found, rows = player("stacked"), some("stacked", 6)["obs"]
    alone = [player("stacked").act(row) for row in rows]
    once = [found.act(row) for row in rows]
    found.reset()
    assert [found.act(row) for row in rows] == once
    assert found.act(rows[0]) is not None
    found.reset()
    assert found.act(rows[0]) == alone[0]


def memory(of: Player) -> np.ndarray:
    assert of._carry is not None
    return np.concatenate([np.asarray(array).reshape(len(array), -1) for array in of._carry.values()], axis=1)


@pytest.mark.parametrize(("spec", "kind"), [("stacked", "mlp"), ("discrete", "lstm")])
def test_memory_grows_with_each_step_and_reset_forgets_it(spec: str, kind: str) -> None:
    if kind == "lstm":
        pytest.importorskip("torch")
    found, rows = player(spec, kind), some(spec, 3)["obs"]
    found.act(rows[0])
    fresh = memory(found).copy()
    found.act(rows[1])
    found.act(rows[0])
    assert not np.allclose(memory(found), fresh)
    found.reset()
    found.act(rows[0])
    assert np.array_equal(memory(found), fresh)


def test_another_number_of_slots_starts_with_an_empty_memory() -> None:
    found, rows = player("stacked"), some("stacked", 4)["obs"]
    found.act(rows[0])
    assert found.act(rows).tolist() == player("stacked").act(rows).tolist()


def kept(folder: Path, spec: str = "discrete") -> Keeper:
    network = {"kind": "mlp", "hidden": [8, 7]}
    return Keeper(folder, {"algo": "ppo", "network": network, "spec": SPECS[spec].to_json()})


def test_a_policy_is_loaded_from_a_run_and_plays_the_same(tmp_path: Path) -> None:
    mine = player("dictionary")
    kept(tmp_path, "dictionary").keep("latest", mine.policy)
    loaded = playing.load(tmp_path)
    rows = some("dictionary", 30)
    assert loaded.spec == SPECS["dictionary"] and loaded.policy.version == Version(0, 1)
    assert loaded.act(rows).tolist() == mine.act(rows).tolist()
    assert playing.load(str(tmp_path), "latest").about["algo"] == "ppo"


def test_a_folder_without_a_policy_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="was it trained"):
        playing.load(tmp_path)


def test_the_policy_of_a_player_is_not_changed_by_playing() -> None:
    found = player()
    before = found.policy.params.tensors["weights"].copy()
    found.act(some("discrete", 5)["obs"])
    assert np.array_equal(found.policy.params.tensors["weights"], before) and isinstance(found.policy.params, Params)


def test_a_policy_whose_settings_shape_its_network_is_loaded_as_it_was(tmp_path: Path) -> None:
    chosen = {"atoms": 5, "v_min": 0.0, "v_max": 9.0}
    agent = agent_for("dqn", "discrete", hyper=chosen)
    params = agent.policy(agent.init(0), agent.Hyper(**chosen))
    network = {"kind": "mlp", "hidden": [8, 7]}
    about = {"algo": "dqn", "network": network, "hyper": chosen, "spec": SPECS["discrete"].to_json()}
    Keeper(tmp_path, about).keep("latest", Policy(Version(0, 1), params))
    rows = some("discrete", 6)["obs"]
    assert np.array_equal(playing.load(tmp_path).act(rows), Player(agent, Policy(Version(0, 1), params), {}).act(rows))
