"""An exported policy computes what the policy computes."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

from millstream import exporting, testing
from millstream.agents import registry as agents
from millstream.agents.networks.mlp import Mlp
from millstream.agents.worth import worth_of
from millstream.core.codec import decode_tensors
from millstream.core.data import Policy, Version
from millstream.core.errors import AgentError, MissingPart
from millstream.core.spec import Box, Discrete, EnvSpec, MultiDiscrete
from millstream.envs.cartpole import CartPole
from millstream.playing import Player

ROWS = 7


class Foreign(Mlp):
    """A network from outside the package."""


def player_for(spec: EnvSpec, **network: Any) -> Player:
    """A policy with random weights, biases among them, and statistics of random observations."""
    agent: Any = agents.make("ppo", spec, network)
    state = agent.init(3)
    rng = np.random.default_rng(4)
    weights = rng.normal(0, 0.1, agent.network.size).astype(np.float32)
    for name, moments in state.observations.items():
        moments.see(rng.normal(1, 2, (50, *spec.observations[name].shape)))
    params = agent.policy(state, agent.Hyper(normalise_observations=True))
    params.tensors["weights"][:] = weights
    about = {"algo": "ppo", "network": network, "spec": spec.to_json()}
    return Player(agent, Policy(Version(0, 5), params, 100), about)


def seen_by(spec: EnvSpec) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    found: dict[str, np.ndarray] = {}
    for name, space in spec.observations.items():
        lead = (ROWS, spec.stack) if spec.stack > 1 else (ROWS,)
        if isinstance(space, Discrete):
            found[name] = rng.integers(0, space.n, lead)
        elif isinstance(space, MultiDiscrete):
            found[name] = rng.integers(0, space.nvec, (*lead, len(space.nvec)))
        elif space.dtype == "uint8":
            found[name] = rng.integers(0, 256, (*lead, *space.shape), np.uint8)
        else:
            found[name] = rng.normal(0, 30, (*lead, *space.shape)).astype(space.dtype)  # far enough to be cut
    return found


def compute(model: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs), strict=True))


def expected(player: Player, inputs: dict[str, np.ndarray], carry: dict[str, np.ndarray]) -> Any:
    agent: Any = player.agent
    tensors = player.policy.params.tensors
    first = np.zeros(ROWS, bool)
    return agent.network.act(tensors["weights"], agent.features.inputs(inputs, tensors), carry, first)


def check(player: Player) -> dict[str, np.ndarray]:
    inputs = seen_by(player.spec)
    rng = np.random.default_rng(6)
    carry = {
        name: rng.normal(size=array.shape).astype(np.float32)
        for name, array in player.agent.network.carry(ROWS).items()  # type: ignore[attr-defined]
    }
    given = compute(exporting.onnx(player), {**inputs, **carry})
    outputs, memory = expected(player, inputs, carry)
    policy = given["logits"] if "logits" in given else given["mean"]
    np.testing.assert_allclose(policy, outputs["policy"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(given["value"], outputs["value"], rtol=1e-4, atol=1e-4)
    for name, array in memory.items():
        np.testing.assert_allclose(given[f"{name}_next"], array, rtol=1e-4, atol=1e-4)
    return given


@pytest.mark.parametrize("network", [{}, {"shared": True, "activation": "relu", "hidden": (16, 8, 4)}])
def test_cartpole_as_onnx_acts_like_the_player(network: dict[str, Any]) -> None:
    player = player_for(CartPole(1).spec, kind="mlp", **network)
    given = check(player)
    np.testing.assert_array_equal(given["action"], player.act(seen_by(player.spec)["obs"]))


@pytest.mark.parametrize("dueling", [False, True])
def test_distributions_over_returns_are_given_as_their_means(dueling: bool) -> None:
    spec = EnvSpec("own", {"obs": Box((4,))}, Discrete(3))
    chosen = {"atoms": 9, "v_min": -2.0, "v_max": 5.0, "dueling": dueling}
    agent: Any = agents.make("dqn", spec, {"kind": "mlp"}, chosen)
    params = agent.policy(agent.init(0), agent.Hyper(**chosen))
    params.tensors["weights"][:] = np.random.default_rng(1).normal(0, 0.6, agent.network.size)
    player = Player(agent, Policy(Version(0, 5), params, 100), {"algo": "dqn", "network": {}, "spec": spec.to_json()})
    seen = {"obs": np.random.default_rng(5).normal(size=(ROWS, 4)).astype(np.float32)}
    given = compute(exporting.onnx(player), seen)
    outputs, _ = expected(player, seen, {})
    means = worth_of(3, dueling, 9, -2.0, 5.0).values(outputs)
    np.testing.assert_allclose(given["logits"], means, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(given["action"], player.act(seen))
    assert len(set(given["action"].tolist())) > 1


def test_continuous_actions_come_with_their_spread() -> None:
    player = player_for(testing.ContinuousEnv(1).spec, kind="mlp")
    given = check(player)
    np.testing.assert_array_equal(
        given["log_std"], player.agent.network.names(player.policy.params.tensors["weights"])["log_std"]  # type: ignore[attr-defined]
    )  # fmt: skip
    np.testing.assert_allclose(given["action"], player.act(seen_by(player.spec)), rtol=1e-4, atol=1e-4)


def test_dictionaries_choices_and_several_actions_at_once() -> None:
    spaces = {"numbers": Box((2, 3)), "one": Discrete(4), "many": MultiDiscrete((2, 3)), "value": Box((1,), "float64")}
    spec = EnvSpec("own", spaces, MultiDiscrete((2, 4)))
    player = player_for(spec, kind="mlp")
    inputs = seen_by(spec)
    renamed = {"value_in" if name == "value" else name: array for name, array in inputs.items()}
    given = compute(exporting.onnx(player), renamed)
    np.testing.assert_allclose(given["logits"], expected(player, inputs, {})[0]["policy"], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(given["action"], player.act(inputs))


def test_frames_are_stacked_by_the_caller() -> None:
    check(player_for(EnvSpec("own", {"obs": Box((3,)), "which": Discrete(3)}, Discrete(2), stack=4), kind="mlp"))


def test_where_a_mask_decides_the_graph_gives_no_action() -> None:
    assert "action" not in check(player_for(EnvSpec("own", {"obs": Box((3,))}, Discrete(2), masked=True), kind="mlp"))


@pytest.mark.parametrize("shape", [(10, 10, 3), (40, 40), (3, 20, 20)])
@pytest.mark.parametrize("stack", [1, 2])
def test_convolutions_of_torch(shape: tuple[int, ...], stack: int) -> None:
    pytest.importorskip("torch")
    spec = EnvSpec("own", {"picture": Box(shape, "uint8", 0, 255), "speed": Box((2,))}, Discrete(3), stack=stack)
    check(player_for(spec, kind="torch", activation="relu"))


def test_memory_of_torch_goes_in_and_comes_out() -> None:
    pytest.importorskip("torch")
    assert check(player_for(CartPole(1).spec, kind="lstm", memory=8))["lstm_h_next"].shape == (ROWS, 8)


def test_safetensors_hold_every_weight_and_statistic_by_name() -> None:
    player = player_for(CartPole(1).spec, kind="mlp")
    tensors, about = decode_tensors(exporting.safetensors(player))
    assert sum(array.size for name, array in tensors.items() if "/" not in name) == player.agent.network.size  # type: ignore[attr-defined]
    assert {"mean/obs", "scale/obs", "hidden.1.bias"} <= tensors.keys()
    assert (about["algo"], about["env"], about["version"]) == ("ppo", "CartPole-v1", "0.5")


def test_a_network_from_outside_is_refused_with_what_to_do() -> None:
    player = player_for(CartPole(1).spec, kind=f"{__name__}:Foreign")
    with pytest.raises(AgentError, match="Foreign; try safetensors"):
        exporting.onnx(player)
    assert decode_tensors(exporting.safetensors(player))[0]


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "onnx":
            raise ImportError(name)
        return real(name, *rest)

    player = player_for(CartPole(1).spec, kind="mlp")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingPart, match=r"pip install 'millstream\[onnx\]'"):
        exporting.onnx(player)
