"""Algorithms and networks by name, and one's own from outside the package."""

from __future__ import annotations

import textwrap
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from millstream.agents import registry
from millstream.agents.networks.mlp import Mlp
from millstream.agents.networks.torch import TorchNetwork
from millstream.core.errors import AgentError, ConfigError, UnknownName
from tests.agents.rollouts import SPECS, play

OUTSIDE = """
import numpy as np
from millstream.agents.networks.mlp import Mlp
from millstream.agents.networks.torch import TorchNetwork
from millstream.agents.ppo import PPO

class Timid(PPO):
    window = 1

class Straight(Mlp):
    '''Only one hidden layer, whatever is asked.'''
    def __init__(self, width, outputs, spread, hidden, activation, shared):
        super().__init__(width, outputs, spread, hidden[:1], activation, shared)

class Eyes(TorchNetwork):
    '''Reads the spec itself, so it may have images and memory.'''

class NotAnAgent:
    def __init__(self, spec, network, features):
        self.spec = spec

class NotANetwork:
    size = 3
    def __init__(self, *arguments, **settings):
        pass

number = 7
"""
needs_a_package = "import a_package_that_nobody_has\n"


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    (tmp_path / "my_outside_rl.py").write_text(textwrap.dedent(OUTSIDE))
    (tmp_path / "my_broken_rl.py").write_text(needs_a_package)
    monkeypatch.syspath_prepend(tmp_path)


def test_an_unknown_algorithm_is_answered_with_the_nearest_names():
    with pytest.raises(UnknownName, match=r"unknown algorithm 'pppo'; did you mean ppo\?.*module:Class"):
        registry.make("pppo", SPECS["discrete"])
    with pytest.raises(UnknownName, match="impala"):
        registry.find("impale")


def test_an_unknown_network_is_answered_with_the_nearest_names():
    with pytest.raises(UnknownName, match=r"unknown network 'lstn'; did you mean lstm\?"):
        registry.make("ppo", SPECS["discrete"], {"kind": "lstn"})


def test_an_algorithm_from_outside_joins_as_module_and_class():
    agent = registry.make("my_outside_rl:Timid", SPECS["discrete"], {"hidden": (8,)})
    hyper = agent.Hyper()
    state = agent.init(0)
    state, batch = agent.prepare(state, [play(agent, agent.policy(state, hyper))], hyper)
    gradient, _ = agent.gradients(state, batch, hyper)
    assert agent.window == 1
    assert np.abs(gradient).max() > 0


def test_a_network_from_outside_joins_as_module_and_class():
    agent = registry.make("impala", SPECS["continuous"], {"kind": "my_outside_rl:Straight", "hidden": (9, 9, 9)})
    assert agent.network.hidden == (9,)
    rollout = play(agent, agent.policy(agent.init(0), agent.Hyper()))
    assert rollout.actions.shape == (6, 3, 2)


def test_a_network_from_outside_that_asks_for_the_spec_gets_it():
    agent = registry.make("ppo", SPECS["image"], {"kind": "my_outside_rl:Eyes", "memory": 6})
    assert agent.network.images
    assert agent.network.memory == 6
    assert play(agent, agent.policy(agent.init(0), agent.Hyper())).carry["lstm_h"].shape == (3, 6)


def test_an_algorithm_from_an_installed_package_joins_by_its_entry_point(monkeypatch):
    point = EntryPoint("timid", "my_outside_rl:Timid", "millstream.agents")

    def entry_points(group, name=None):
        assert group == "millstream.agents"
        return [point] if name in (None, "timid") else []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    names = ["a2c", "cloning", "dqn", "impala", "ppo", "reinforce", "sac", "td3", "timid"]
    assert registry.names() == names
    assert registry.find("timid").__name__ == "Timid"


def test_something_that_is_no_agent_is_refused_with_what_it_lacks():
    with pytest.raises(AgentError, match="my_outside_rl:NotAnAgent is not an agent: it lacks Hyper, window"):
        registry.make("my_outside_rl:NotAnAgent", SPECS["discrete"])


def test_something_that_is_no_agent_is_refused_when_it_is_looked_for():
    with pytest.raises(AgentError, match="is not an agent: it lacks Hyper, window"):
        registry.find("my_outside_rl:NotAnAgent")


def test_a_class_that_takes_something_else_is_refused():
    with pytest.raises(ConfigError, match="fractions:Fraction is not a network: it should take a width"):
        registry.make("ppo", SPECS["discrete"], {"kind": "fractions:Fraction"})


def test_something_that_is_no_network_is_refused_with_what_it_lacks():
    with pytest.raises(ConfigError, match="is not a network: it lacks recurrent, images, init"):
        registry.make("ppo", SPECS["discrete"], {"kind": "my_outside_rl:NotANetwork"})


@pytest.mark.parametrize(
    "path",
    [
        "no_such_module_at_all:Thing",
        "my_outside_rl:Nothing",
        "my_outside_rl:",
        ":Thing",
        ".near:Thing",
        "my_broken_rl:Thing",
    ],
)
def test_a_path_that_leads_nowhere_is_named_in_the_error(path):
    with pytest.raises(UnknownName, match="cannot be"):
        registry.make(path, SPECS["discrete"])
    with pytest.raises(UnknownName, match="cannot be"):
        registry.make("ppo", SPECS["discrete"], {"kind": path})


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(AgentError, match="my_outside_rl:number is not an agent but 7"):
        registry.make("my_outside_rl:number", SPECS["discrete"])
    with pytest.raises(ConfigError, match="my_outside_rl:number is not a network but 7"):
        registry.make("ppo", SPECS["discrete"], {"kind": "my_outside_rl:number"})


def test_numbers_get_the_network_of_numpy_and_images_that_of_torch():
    assert isinstance(registry.make("ppo", SPECS["discrete"]).network, Mlp)
    pictures = registry.make("ppo", SPECS["image"])
    assert isinstance(pictures.network, TorchNetwork)
    assert list(pictures.features.images) == ["board"]
    flat = registry.make("ppo", SPECS["image"], {"kind": "mlp"})
    assert isinstance(flat.network, Mlp)
    assert not flat.features.images
    assert registry.make("ppo", SPECS["discrete"], {"kind": "lstm", "memory": 9}).network.memory == 9
