from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from millstream.core.data import Params, Policy, Version
from millstream.core.errors import CheckpointError
from millstream.parameters import keeping
from millstream.parameters.keeping import Keeper


def policy(number: int) -> Policy:
    return Policy(
        Version(0, number), Params({"weights": np.full(3, number, np.float32)}, {"epsilon": 0.5}), number * 10
    )


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path, {"algo": "ppo"})


def best(folder: Path) -> int:
    return keeping.read(keeping.find(folder, "best"))[0].version.number


def test_a_policy_that_was_kept_can_be_read_by_us_and_by_anyone(tmp_path: Path, keeper: Keeper) -> None:
    path = keeper.keep("latest", policy(4))
    read, about = keeping.read(path)
    assert (read.version, read.steps, read.params.hyper) == (Version(0, 4), 40, {"epsilon": 0.5})
    assert about == {"algo": "ppo"} and load_file(path)["weights"].tolist() == [4, 4, 4]


def test_the_best_is_replaced_only_by_a_better_one(tmp_path: Path, keeper: Keeper) -> None:
    assert [keeper.keep_best(policy(i), score) for i, score in enumerate((1.0, 0.5, 1.0, 2.0))] == [
        True,
        False,
        False,
        True,
    ]
    assert best(tmp_path) == 3
    again = Keeper(tmp_path, {"algo": "ppo"})  # another process
    assert not again.keep_best(policy(5), 1.9) and again.keep_best(policy(6), 2.1) and best(tmp_path) == 6


def test_scores_below_zero_count_like_others(tmp_path: Path, keeper: Keeper) -> None:
    assert keeper.keep_best(policy(1), -200.0) and not keeper.keep_best(policy(2), -300.0)
    assert keeper.keep_best(policy(3), -100.0) and best(tmp_path) == 3


def test_a_score_that_is_no_number_is_never_the_best(tmp_path: Path, keeper: Keeper) -> None:
    assert not keeper.keep_best(policy(1), math.nan) and not (tmp_path / "policies").exists()
    assert keeper.keep_best(policy(2), 1.0) and not keeper.keep_best(policy(3), math.nan) and best(tmp_path) == 2


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff" * 100])
def test_a_damaged_best_makes_room(tmp_path: Path, keeper: Keeper, damage: bytes) -> None:
    keeper.keep_best(policy(1), 100.0)
    (tmp_path / "policies" / "best.safetensors").write_bytes(damage)
    assert keeper.keep_best(policy(2), 1.0) and best(tmp_path) == 2


def test_the_best_is_found_before_the_latest_and_either_by_name(tmp_path: Path, keeper: Keeper) -> None:
    keeper.keep("latest", policy(9))
    assert keeping.find(tmp_path).name == "latest.safetensors"
    keeper.keep_best(policy(5), 1.0)
    assert keeping.find(tmp_path).name == "best.safetensors"
    assert keeping.find(tmp_path, "latest").name == "latest.safetensors"
    assert keeping.find(tmp_path / "policies" / "latest.safetensors").name == "latest.safetensors"


def test_where_there_is_none_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no best or latest policy"):
        keeping.find(tmp_path)
    with pytest.raises(CheckpointError, match="holds no other policy"):
        keeping.find(tmp_path, "other")


def test_a_file_that_is_no_policy_is_refused_in_one_line(tmp_path: Path, keeper: Keeper) -> None:
    whole = keeper.keep("latest", policy(1)).read_bytes()
    path = tmp_path / "policy.safetensors"
    for body in (b"", whole[:20], whole[:-1], whole + b"\0", b"\0" * 50):
        path.write_bytes(body)
        with pytest.raises(CheckpointError, match="is not a policy"):
            keeping.read(path)
    for metadata in (None, {"about": "{}"}, {"millstream": "{}"}, {"about": "5", "millstream": "5"}):
        save_file({"weights": np.zeros(3)}, path, metadata)
        with pytest.raises(CheckpointError, match="is not a policy"):
            keeping.read(path)
    with pytest.raises(CheckpointError, match="No such file"):
        keeping.read(tmp_path / "none.safetensors")
