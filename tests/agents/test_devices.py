"""Where networks compute is a setting: on the CPU everywhere, on other devices where there are any."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.core.errors import ConfigError
from tests.agents.rollouts import agent_for, given, play

torch = pytest.importorskip("torch")

from millstream.agents.networks.torch import devices  # noqa: E402

LEARNERS = {
    "ppo": ("discrete", "torch"),
    "impala": ("multi", "lstm"),
    "a2c": ("continuous", "torch"),
    "reinforce": ("discrete", "torch"),
    "dqn": ("discrete", "torch"),
    "sac": ("continuous", "torch"),
    "td3": ("continuous", "torch"),
}
ABSENT = [name for name in ("cuda", "mps", "xpu") if not any(each.startswith(name) for each in devices())]


@pytest.fixture(params=LEARNERS)
def algorithm(request):
    return request.param


@pytest.mark.parametrize("device", ["meta", "abacus", *ABSENT])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(algorithm, device):
    spec, kind = LEARNERS[algorithm]
    with pytest.raises(ConfigError, match=rf"network.device '{device}' cannot be used here: .*; there is cpu"):
        agent_for(algorithm, spec, kind, device=device)


def learnt(algorithm, device):
    spec, kind = LEARNERS[algorithm]
    agent = agent_for(algorithm, spec, kind, device=device)
    table = {"minibatch": 8, "gradients": 2} if hasattr(agent, "replayed") else {}
    hyper, state = agent.Hyper(**table), agent.init(0)
    for update in range(2):
        params = agent.policy(state, hyper)
        assert all(isinstance(tensor, np.ndarray) for tensor in params.tensors.values())
        played = [play(agent, params, seed=update)]
        state, batch = agent.prepare(state, given(agent, hyper, played), hyper)
        wanted = torch.device(device)
        assert {column.device.type for column in batch.values()} == {wanted.type}
        gradients, _ = agent.gradients(state, batch, hyper)
        assert gradients.device.type == wanted.type
        state = agent.apply(state, gradients, hyper)
    return agent.policy(state, hyper).tensors["weights"]


def test_what_is_learnt_lives_on_the_device_and_actors_get_plain_arrays(algorithm):
    assert np.array_equal(learnt(algorithm, "cpu"), learnt(algorithm, "cpu:0"))


if devices()[1:]:

    @pytest.mark.parametrize("device", devices()[1:])
    def test_another_device_learns_what_the_cpu_learns(algorithm, device):
        assert np.allclose(learnt(algorithm, "cpu"), learnt(algorithm, device), atol=1e-3)


def test_numbers_alone_go_to_torch_where_a_device_is_asked_for():
    assert type(agent_for("ppo", kind="auto", device="cpu:0").network).__name__ == "TorchNetwork"
    assert type(agent_for("ppo", kind="auto").network).__name__ == "Mlp"


def test_the_network_of_numpy_refuses_a_device_rather_than_to_ignore_it():
    with pytest.raises(ConfigError, match="computes on the CPU, not on 'cuda'; try --network torch"):
        agent_for("ppo", kind="mlp", device="cuda")
