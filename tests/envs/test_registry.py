from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from millstream.core.errors import ConfigError, EnvError, MissingPart, UnknownName
from millstream.core.spec import SINGLE
from millstream.envs.cartpole import CartPole
from millstream.envs.gymnasium import Gymnasium
from millstream.envs.registry import check, make, names
from millstream.envs.snake import Snake

OWN = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

class Mine(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)
    def __init__(self, level=1):
        self.level = level
    def reset(self, *, seed=None, options=None):
        return np.full(2, self.level / 10, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), float(self.level), False, False, {}

def several(num_envs):
    return gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point")

def too_few(slots):
    from millstream.envs.cartpole import CartPole
    return CartPole(1)

def nonsense():
    return 5

class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

gymnasium.register("MineRegistered-v0", entry_point=Mine, max_episode_steps=7)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_world.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_world"
    sys.modules.pop("own_world", None)
    gymnasium.registry.pop("MineRegistered-v0", None)


def test_cartpole_is_ours_unless_it_is_asked_for_otherwise() -> None:
    assert isinstance(make("CartPole-v1", 2), CartPole)
    assert isinstance(make("CartPole-v1", 2, vector="native"), CartPole)
    wrapped = {"wrappers": ["gymnasium.wrappers:RecordEpisodeStatistics"]}
    for asked in ({"vector": "sync"}, {"args": {"sutton_barto_reward": True}}, wrapped):
        assert isinstance(make("CartPole-v1", 2, **asked), Gymnasium)


def test_our_cartpole_and_gymnasiums_fit_the_same_policy() -> None:
    assert make("CartPole-v1", 2).spec.difference(make("CartPole-v1", 2, vector="sync").spec) is None


def test_snake_takes_its_arguments() -> None:
    env = make("Snake-v0", 2, {"size": 6, "vision": 1})
    assert isinstance(env, Snake)
    assert env.spec.observations[SINGLE].shape == (18,)


def test_a_factory_of_single_environments_gets_its_arguments(own: str) -> None:
    env = make(f"{own}:Mine", 3, {"level": 4})
    assert env.reset(0).observations[SINGLE].tolist() == [[pytest.approx(0.4)] * 2] * 3
    assert env.step(np.zeros(3, np.int64)).rewards.tolist() == [4.0] * 3


def test_wrappers_are_applied_to_each_environment(own: str) -> None:
    env = make(f"{own}:Mine", 2, wrappers=[f"{own}:Doubled"])
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).rewards.tolist() == [2.0, 2.0]


def test_wrappers_work_on_named_environments_and_in_processes(own: str) -> None:
    env = make("CartPole-v1", 2, wrappers=[f"{own}:Doubled"], vector="process")
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).rewards.tolist() == [2.0, 2.0]
    env.close()


def test_a_factory_of_vectors_is_adopted(own: str) -> None:
    env = make(f"{own}:several", 5)
    assert (env.slots, env.spec.id) == (5, f"{own}:several")


def test_a_file_can_be_named_instead_of_a_module(own: str) -> None:
    assert make("own_world.py:Mine", 2).slots == 2
    sys.modules.pop("millstream_user_own_world")


def test_a_module_may_register_names_with_gymnasium(own: str) -> None:
    env = make(f"{own}:MineRegistered-v0", 2)
    assert env.spec.max_episode_steps == 7


def test_a_factory_that_gives_the_wrong_number_of_slots_is_refused(own: str) -> None:
    with pytest.raises(EnvError, match="has 1 slots, 4 were asked for"):
        make(f"{own}:too_few", 4)


def test_a_factory_that_gives_no_environment_is_refused(own: str) -> None:
    with pytest.raises(EnvError, match="gave a int"):
        make(f"{own}:nonsense", 1)


def test_an_unknown_name_offers_what_is_near() -> None:
    with pytest.raises(UnknownName, match="did you mean LunarLander-v3"):
        make("LunarLandr-v3", 1)


def test_an_unknown_factory_offers_what_is_near(own: str) -> None:
    with pytest.raises(UnknownName, match=f"did you mean {own}:Mine"):
        make(f"{own}:Mien", 1)


def test_an_unknown_module_is_named() -> None:
    with pytest.raises(UnknownName, match="no module 'no_such_world'"):
        make("no_such_world:Env", 1)


def test_a_part_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingPart, match=r"pip install 'millstream\[envpool\]'"):
        make("envpool:CartPole-v1", 1)


@pytest.mark.parametrize("id", ["Snake-v0", "Pendulum-v1", "ALE/Pong-v5", "envpool:CartPole-v1"])
def test_an_argument_that_an_environment_does_not_take_is_named(id: str) -> None:
    with pytest.raises(ConfigError, match="'colour'") as caught:
        make(id, 1, {"colour": "red"})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"id": "CartPole-v1", "slots": 0}, "at least one slot"),
        ({"id": "CartPole-v1", "slots": 1, "vector": "threads"}, "vector must be one of"),
        ({"id": "CartPole-v1", "slots": 1, "stack": 0}, "stack"),
        ({"id": "Pendulum-v1", "slots": 1, "vector": "native"}, "no vector of its own"),
        ({"id": "Snake-v0", "slots": 1, "wrappers": ["a:b"]}, "wrappers"),
        ({"id": "envpool:CartPole-v1", "slots": 1, "wrappers": ["a:b"]}, "wrappers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(asked: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**asked)


def test_a_stack_is_told_to_the_policy_and_frames_stay_single() -> None:
    env = make("SnakeImages-v0", 2, stack=3)
    assert env.spec.stack == 3
    assert env.reset(0).observations[SINGLE].shape == (2, 11, 11, 3)


def test_pictures_come_when_they_are_asked_for() -> None:
    env = make("CartPole-v1", 2, vector="sync", render=True)
    env.reset(0)
    assert env.render(1).shape == (400, 600, 3)
    env.close()


def test_every_name_is_listed_with_what_it_needs() -> None:
    listed = {id: needs for id, _, needs in names()}
    assert listed["CartPole-v1"] == ""
    assert listed["LunarLander-v3"] == "box2d"
    assert listed["ALE/Pong-v5"] == "atari"
    assert listed["envpool:<name>"] == "envpool"


@pytest.mark.parametrize("id", ["CartPole-v1", "Snake-v0", "Pendulum-v1", "millstream.testing:MaskedEnv"])
def test_a_name_that_exists_passes_without_being_made(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium, "make", lambda *_, **__: pytest.fail("it was made"))
    check(id)


@pytest.mark.parametrize("id", ["CartPol-v1", "envpool:CartPol-v1", "millstream.testing:MaskdEnv", "nowhere:Env"])
def test_a_name_that_does_not_exist_is_refused_without_being_made(id: str) -> None:
    if id.startswith("envpool"):
        pytest.importorskip("envpool")
    with pytest.raises(UnknownName):
        check(id)


def test_a_built_in_name_is_known_without_gymnasium() -> None:
    program = "import sys; from millstream.envs.registry import check; check('CartPole-v1'); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "'gymnasium'" not in done.stdout


BAD = """
import gymnasium

class NoSpaces(gymnasium.Env):
    pass

class NoActions(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)

def forgets(env):
    env.changed = True

def words(env):
    return "env"

def crashes(env):
    return 1 / 0
"""


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "bad_world.py").write_text(BAD)
    (tmp_path / "torn_world.py").write_text("x = = 1")
    (tmp_path / "broken_world.py").write_text("\n1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_world", raising=False)
    return "bad_world"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bad_world:NoSpaces", "bad_world:NoSpaces lacks observation_space and action_space; set them in __init__"),
        ("bad_world:NoActions", "bad_world:NoActions lacks action_space; set it in __init__"),
        ("torn_world:Env", "torn_world cannot be imported: SyntaxError: invalid syntax"),
        ("broken_world:Env", "broken_world cannot be imported: ZeroDivisionError: division by zero .*line 2"),
    ],
)
def test_an_environment_that_is_half_written_is_told_what_it_lacks(bad: str, name: str, words: str) -> None:
    with pytest.raises(EnvError, match=words):
        make(name, 2)


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ("forgets", "the wrapper bad_world:forgets gave nothing back; it should return an environment"),
        ("words", "the wrapper bad_world:words gave a str back"),
        ("crashes", "the wrapper bad_world:crashes failed: ZeroDivisionError"),
        ("nothing", "unknown wrapper 'bad_world:nothing'; a wrapper is module:function"),
    ],
)
def test_a_wrapper_that_is_none_is_blamed_by_its_name(bad: str, wrapper: str, words: str) -> None:
    with pytest.raises((EnvError, UnknownName), match=words):
        make("CartPole-v1", 2, wrappers=[f"{bad}:{wrapper}"])


def test_what_is_missing_is_named_with_our_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("Box2D", "gymnasium.envs.box2d"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(MissingPart, match=r"pip install 'millstream\[box2d\]' \(from a clone: pip install -e"):
        make("LunarLander-v3", 1)
