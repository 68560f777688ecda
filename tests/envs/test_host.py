"""Environments whose arrays live elsewhere: torch's tensors here, and a device that is only claimed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import assembly, training
from millstream.core.data import Step
from millstream.core.errors import EnvError
from millstream.core.ports import Env
from millstream.envs.cartpole import CartPole
from millstream.envs.check import check
from millstream.envs.host import on_host
from millstream.envs.promises import slot_findings
from millstream.envs.registry import make
from millstream.parameters import keeping

torch = pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")


class Far:
    """An array on a device that DLPack numbers 2, as CUDA's are: NumPy cannot read it where it is."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("this array is not on the CPU")

    def cpu(self) -> Any:
        return torch.from_numpy(self._array.copy())


def placed(tree: Any, place: Any) -> Any:
    if isinstance(tree, dict):
        return {name: placed(part, place) for name, part in tree.items()}
    if isinstance(tree, np.ndarray) and tree.dtype != object:
        return place(tree.copy())
    return tree


class Placed(CartPole):
    """CartPole, but every array that it answers with lives where `place` puts it."""

    place: Any = staticmethod(torch.from_numpy)

    def reset(self, seed: int) -> Step:
        return self._moved(super().reset(seed))

    def step(self, actions: Any) -> Step:
        assert isinstance(actions, np.ndarray)
        return self._moved(super().step(actions))

    def _moved(self, step: Step) -> Step:
        return Step(**{field.name: placed(getattr(step, field.name), self.place) for field in fields(step)})


class PlacedFar(Placed):
    place = staticmethod(Far)


class PlacedVector(gymnasium.vector.VectorWrapper):
    """Gymnasium's CartPole, whose answers are tensors."""

    def __init__(self, num_envs: int, mode: str = "SameStep") -> None:
        mode = gymnasium.vector.AutoresetMode(mode)
        makers = [lambda: gymnasium.make("CartPole-v1")] * num_envs
        super().__init__(gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=mode))

    def reset(self, **options: Any) -> Any:
        observations, infos = self.env.reset(**options)
        return torch.from_numpy(observations), infos

    def step(self, actions: Any) -> Any:
        *arrays, infos = self.env.step(actions)
        infos = dict(infos)
        if "final_obs" in infos:
            ended = [torch.from_numpy(final) for final in infos["final_obs"] if final is not None]
            whole = torch.zeros(self.num_envs, 4)
            whole[torch.from_numpy(infos["_final_obs"])] = torch.stack(ended)
            infos["final_obs"] = whole
        return *(torch.from_numpy(np.asarray(array)) for array in arrays), infos


def played(env: Env, steps: int = 120) -> list[dict[str, Any]]:
    """Each answer of an environment to the same actions, copied."""
    rng, found = np.random.default_rng(0), []
    for at in range(steps + 1):
        answer = env.step(rng.integers(0, 2, env.slots)) if at else env.reset(3)
        found.append(
            {
                "obs": np.array(answer.observations["obs"]),
                "finals": np.array(answer.finals["obs"]),
                **{name: np.array(getattr(answer, name)) for name in ("rewards", "terminated", "valid", "ended")},
            }
        )
        for part in (answer.observations["obs"], answer.finals["obs"], answer.rewards, answer.first):
            assert isinstance(part, np.ndarray)
    return found


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    return all(np.array_equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a)


@pytest.mark.parametrize("kind", ["Placed", "PlacedFar"])
def test_an_environment_whose_arrays_live_elsewhere_plays_as_one_whose_arrays_do_not(kind: str) -> None:
    env = make(f"{__name__}:{kind}", 4)
    found = played(env)
    assert sum(len(each["ended"]) for each in found) > 3
    assert same(found, played(CartPole(4)))
    assert slot_findings(make(f"{__name__}:{kind}", 3), 100, 1) == []


def test_a_vector_that_answers_with_tensors_plays_as_gymnasiums_own() -> None:
    found = played(make(f"{__name__}:PlacedVector", 4))
    assert sum(len(each["ended"]) for each in found) > 3
    assert same(found, played(make("CartPole-v1", 4, vector="sync")))


def test_tensors_are_read_where_they_lie_and_not_copied() -> None:
    tensor = torch.zeros(3, requires_grad=True)
    array = on_host({"deep": (tensor,)})["deep"][0]
    with torch.no_grad():
        tensor[1] = 7.0
    assert array.tolist() == [0.0, 7.0, 0.0]


def test_what_is_no_array_stays_as_it_is() -> None:
    text, numbers, plain = "pole", [1, 2], np.zeros(2)
    assert on_host(text) is text
    assert on_host(numbers) is numbers
    assert on_host(plain) is plain
    assert on_host(None) is None


def test_an_array_that_cannot_be_brought_is_said_with_the_name_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(Far, "cpu")
    with pytest.raises(EnvError, match=r"PlacedFar failed in reset: TypeError: this array is not on the CPU"):
        make(f"{__name__}:PlacedFar", 2).reset(0)


def test_a_run_learns_from_an_environment_of_tensors_what_it_learns_from_arrays(tmp_path: Path) -> None:
    weights = []
    for env in (f"{__name__}:Placed", f"{__name__}:Plain"):
        settings = {"env.id": env, "actor.envs": 4, "actor.unroll": 32, "total_steps": 1_024, "evaluation.episodes": 0}
        run = training.start(
            assembly.experiment(None, {**settings, "topology": "inline", "folder": str(tmp_path), "seed": 1})
        )
        policy, _ = keeping.read(keeping.find(run.folder))
        weights.append(policy.params.tensors["weights"])
    assert np.array_equal(*weights)


class Plain(CartPole):
    """CartPole as it is, behind the same guard."""


def test_the_checker_says_that_it_is_well() -> None:
    assert check(f"{__name__}:Placed") == []
