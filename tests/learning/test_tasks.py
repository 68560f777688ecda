"""Learning, each task with a fixed budget of steps and three seeds. `make test-slow` prints what they reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import assembly, training
from millstream.playing import load

pytestmark = pytest.mark.slow
SEEDS = (1, 2, 3)


def learn(folder: Path, env: str, seed: int, **settings: Any) -> training.Run:
    given = {"env.id": env, "seed": seed, "folder": str(folder), "topology": "inline", "target": None, **settings}
    run = training.start(assembly.experiment(None, given))
    print(f"{env} {settings} seed {seed}: {run.evaluation}")
    return run


def mean(run: training.Run) -> float:
    assert run.evaluation is not None
    return float(run.evaluation["mean"])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("network", ["mlp", "torch"])
@pytest.mark.parametrize("topology", ["inline", "processes"])
@pytest.mark.parametrize("algo", ["ppo", "impala"])
def test_cartpole_is_solved(tmp_path: Path, algo: str, topology: str, network: str, seed: int) -> None:
    settings = {"algo": algo, "topology": topology, "network.kind": network, "target": 475 if algo == "ppo" else 490}
    run = learn(tmp_path, "CartPole-v1", seed, **settings)
    assert run.result["target_reached"] and mean(run) >= 475


HIDDEN = {
    "total_steps": 300_000,
    "actor.envs": 16,
    "actor.unroll": 32,
    "minibatch": 128,
    "epochs": 6,
    "learning_rate": 1e-3,
    "learning_rate_end": 1e-5,
    "discount": 0.98,
    "trace": 0.8,
    "normalise_observations": True,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_memory_balances_a_pole_whose_velocities_are_hidden(tmp_path: Path, seed: int) -> None:
    run = learn(tmp_path, "millstream.testing:HiddenVelocityCartPole", seed, **HIDDEN, **{"network.kind": "lstm"})
    assert mean(run) >= 400


@pytest.mark.parametrize("seed", SEEDS)
def test_without_memory_it_cannot_be_balanced(tmp_path: Path, seed: int) -> None:
    run = learn(tmp_path, "millstream.testing:HiddenVelocityCartPole", seed, **HIDDEN, **{"network.kind": "mlp"})
    assert mean(run) < 200


@pytest.mark.parametrize("seed", SEEDS)
def test_a_convolution_finds_its_way_on_a_small_image(tmp_path: Path, seed: int) -> None:
    settings = {"env.args.size": 8, "total_steps": 80_000, "actor.envs": 16, "actor.unroll": 32, "minibatch": 256}
    rates = {"learning_rate": 1e-3, "learning_rate_end": 1e-5, "entropy": 0.01, "entropy_end": 0.0, "discount": 0.95}
    run = learn(tmp_path, "millstream.testing:ImageGrid", seed, **settings, **rates)
    assert mean(run) >= 0.95 * (1 + 2 * 8 / 30)  # shortest walks from everywhere to everywhere


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pendulum_swings_up(tmp_path: Path, seed: int) -> None:
    assert mean(learn(tmp_path, "Pendulum-v1", seed, total_steps=500_000)) >= -250


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("env", ["MultiDiscreteEnv", "DictEnv"])
def test_several_choices_and_several_observations_reach_their_optimum(tmp_path: Path, env: str, seed: int) -> None:
    settings = {"total_steps": 150_000, "actor.envs": 64, "actor.unroll": 16, "network.activation": "relu"}
    rates = {"learning_rate": 1e-3, "minibatch": 256, "discount": 0.5, "trace": 0.5}
    run = learn(tmp_path, f"millstream.testing:{env}", seed, **settings, **rates)
    assert mean(run) >= 9.8  # of 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_an_endless_world_is_worth_its_endless_sum_though_we_stop_watching(
    tmp_path: Path, mode: str, seed: int
) -> None:
    discount = 0.9
    run = learn(
        tmp_path,
        "millstream.testing:EndlessEnv",
        seed,
        total_steps=60_000,
        discount=discount,
        learning_rate=3e-3,
        learning_rate_end=1e-5,
        minibatch=256,
        **{"env.args.autoreset_mode": mode, "actor.envs": 8, "actor.unroll": 32, "evaluation.episodes": 10},
    )
    player = load(run.folder)
    space = player.spec.observations["obs"]
    rows = {"obs": np.zeros((4, *space.shape), space.dtype)}
    decision, _ = player.agent.act(player.policy.params, rows, {}, np.ones(4, bool), None, None)
    print(f"{mode}: {decision.extras['value']}")
    assert np.allclose(decision.extras["value"], 1 / (1 - discount), rtol=0.05)
