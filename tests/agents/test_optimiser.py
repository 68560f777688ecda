"""Adam and clipping over one flat vector, against torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from millstream.agents import optimiser
from millstream.core import native
from millstream.core.errors import Diverged
from tests.agents.rollouts import agent_for


def without_c(library, monkeypatch):
    """Only where `library` is C may C be used."""
    if library == "c" and native.LIBRARY is None:
        pytest.skip("no compiler was there when Millstream was installed")
    if library != "c":
        monkeypatch.setattr(native, "LIBRARY", None)


@pytest.mark.parametrize("piece", [optimiser.PIECE, 16])
@pytest.mark.parametrize("library", ["c", "numpy", "torch"])
def test_adam_walks_where_torch_walks(library, piece, monkeypatch):
    without_c(library, monkeypatch)
    monkeypatch.setattr(optimiser, "PIECE", piece)
    rng = np.random.default_rng(0)
    start = rng.normal(size=50).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(start))
    reference = torch.optim.Adam([theirs], lr=3e-3, eps=1e-5)
    put = torch.tensor if library == "torch" else np.array
    weights = put(start)
    moments = optimiser.Adam.fresh(weights)
    for step in range(30):
        gradient = (rng.normal(size=50) * 10.0 ** (step % 5 - 3)).astype(np.float32)
        theirs.grad = torch.tensor(gradient)
        reference.step()
        optimiser.adam(weights, put(gradient), moments, 3e-3)
        assert np.allclose(weights, theirs.detach(), atol=1e-6)
    assert moments.count == 30


@pytest.mark.parametrize("library", ["c", "numpy", "torch"])
def test_what_follows_goes_a_share_of_the_way(library, monkeypatch):
    without_c(library, monkeypatch)
    put = torch.tensor if library == "torch" else np.array
    start, goal = np.random.default_rng(0).normal(size=(2, 50)).astype(np.float32)
    weights = put(start)
    optimiser.follow(weights, put(goal), 0.25)
    np.testing.assert_allclose(np.asarray(weights), 0.75 * start + 0.25 * goal, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("limit", [0.5, 1e3])
def test_gradients_are_clipped_as_torch_clips_them(library, limit):
    gradient = np.random.default_rng(1).normal(size=40).astype(np.float32)
    theirs = torch.nn.Parameter(torch.zeros(40))
    theirs.grad = torch.tensor(gradient)
    norm = torch.nn.utils.clip_grad_norm_([theirs], limit)
    found, found_norm = optimiser.clip(torch.tensor(gradient) if library == "torch" else gradient, limit)
    assert found_norm == pytest.approx(float(norm), rel=1e-5)
    assert np.allclose(found, theirs.grad, atol=1e-5)


def test_no_limit_leaves_gradients_as_they_are():
    gradient = np.full(4, 1e3, np.float32)
    found, norm = optimiser.clip(gradient, 0)
    assert found is gradient
    assert norm == 2000


@pytest.mark.parametrize("kind", ["mlp", "torch"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_never_reach_the_weights(kind, bad):
    agent = agent_for("ppo", kind=kind)
    state = agent.init(0)
    before = np.array(agent.policy(state, agent.Hyper()).tensors["weights"])
    gradient = state.weights * 0
    gradient[3] = bad
    with pytest.raises(Diverged, match="not finite"):
        agent.apply(state, gradient, agent.Hyper())
    assert np.array_equal(before, np.asarray(state.weights))
    assert state.adam.count == 0
