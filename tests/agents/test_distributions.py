"""Log-probabilities, entropies and the way back, against torch's own distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from millstream.agents.distributions import Categorical, DiagGaussian, MultiCategorical, for_space
from millstream.core.spec import Box, Discrete, MultiDiscrete
from tests.agents.written_out import log_prob_and_entropy

SPACES = {
    "categorical": Discrete(5),
    "multi": MultiDiscrete((3, 2, 4)),
    "gaussian": Box((3,)),
    "gaussian-matrix": Box((2, 2)),
}
ROWS = 7


def case(space, masked, rng):
    distribution = for_space(space)
    outputs = {"policy": rng.normal(size=(ROWS, distribution.width)).astype(np.float32) * 2}
    if distribution.spread:
        outputs["log_std"] = rng.normal(size=distribution.spread).astype(np.float32) * 0.3
    mask = None
    if masked:
        mask = rng.random((ROWS, distribution.width)) < 0.6
        edges = np.cumsum((0, *(space.nvec if isinstance(space, MultiDiscrete) else (space.n,))))
        mask[:, edges[:-1]] = True
    actions, _ = distribution.sample(outputs, mask, rng)
    return distribution, outputs, actions, mask


cases = pytest.mark.parametrize(
    ("name", "masked"), [(name, False) for name in SPACES] + [("categorical", True), ("multi", True)]
)


@cases
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_log_prob_entropy_and_gradients_equal_those_of_autograd(name, masked, library):
    rng = np.random.default_rng(3)
    distribution, outputs, actions, mask = case(SPACES[name], masked, rng)
    d_log_prob, d_entropy = rng.normal(size=(2, ROWS)).astype(np.float32)

    leaves = {key: torch.tensor(array, requires_grad=True) for key, array in outputs.items()}
    log_prob, entropy = log_prob_and_entropy(
        SPACES[name], leaves, torch.as_tensor(actions), None if mask is None else torch.as_tensor(mask)
    )
    loss = (log_prob * torch.as_tensor(d_log_prob)).sum() + (entropy * torch.as_tensor(d_entropy)).sum()
    expected = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    put = torch.as_tensor if library == "torch" else np.asarray
    found_log_prob, found_entropy, tape = distribution.evaluate(
        {key: put(array) for key, array in outputs.items()}, put(actions), None if mask is None else put(mask)
    )
    found = distribution.backward(tape, put(d_log_prob), put(d_entropy))
    assert np.allclose(found_log_prob, log_prob.detach(), atol=1e-5)
    assert np.allclose(found_entropy, entropy.detach(), atol=1e-5)
    assert set(found) == set(expected)
    for key, gradient in expected.items():
        assert isinstance(found[key], torch.Tensor if library == "torch" else np.ndarray)
        assert np.allclose(found[key], gradient, atol=1e-5), key


@cases
def test_a_sample_carries_the_log_probability_that_evaluation_finds(name, masked):
    rng = np.random.default_rng(4)
    distribution, outputs, _, mask = case(SPACES[name], masked, rng)
    for generator in (rng, None):
        actions, log_prob = distribution.sample(outputs, mask, generator)
        evaluated, _, _ = distribution.evaluate(outputs, actions, mask)
        assert actions.shape == (ROWS, *SPACES[name].shape)
        assert np.allclose(log_prob, evaluated, atol=1e-5)


def test_choices_are_sampled_as_often_as_their_probabilities_say():
    p = np.array([0.5, 0.0, 0.3, 0.2])
    logits = np.log(np.maximum(p, 1e-30)).astype(np.float32)[None].repeat(20_000, 0)
    actions, _ = Categorical(4).sample({"policy": logits}, None, np.random.default_rng(0))
    assert np.bincount(actions, minlength=4) / len(actions) == pytest.approx(p, abs=0.015)


def test_several_choices_are_sampled_apart_from_each_other():
    logits = np.log(np.array([0.7, 0.3, 0.2, 0.8], np.float32))[None].repeat(20_000, 0)
    actions, _ = MultiCategorical((2, 2)).sample({"policy": logits}, None, np.random.default_rng(0))
    found = np.bincount(actions[:, 0] * 2 + actions[:, 1], minlength=4) / len(actions)
    assert found == pytest.approx([0.14, 0.56, 0.06, 0.24], abs=0.015)


def test_numbers_are_sampled_with_the_mean_and_the_spread_asked_for():
    outputs = {
        "policy": np.tile(np.array([1.0, -2.0], np.float32), (20_000, 1)),
        "log_std": np.log(np.array([0.5, 2.0], np.float32)),
    }
    actions, _ = DiagGaussian(Box((2,))).sample(outputs, None, np.random.default_rng(0))
    assert actions.dtype == np.float32
    assert actions.mean(axis=0) == pytest.approx([1, -2], abs=0.05)
    assert actions.std(axis=0) == pytest.approx([0.5, 2], rel=0.03)


@pytest.mark.parametrize("legal", [[0], [4], [2], [1, 3], [0, 4]])
def test_what_is_not_legal_is_never_sampled_however_likely(legal):
    mask = np.zeros((5000, 5), bool)
    mask[:, legal] = True
    logits = np.where(mask, -3.0, 30.0).astype(np.float32)
    drawn, _ = Categorical(5).sample({"policy": logits}, mask, np.random.default_rng(1))
    best, _ = Categorical(5).sample({"policy": logits}, mask, None)
    assert set(drawn) == set(legal)
    assert set(best) <= set(legal)


def test_masks_of_several_choices_are_kept_apart():
    mask = np.tile(np.array([True, False, False, False, True]), (500, 1))
    logits = np.random.default_rng(0).normal(size=(500, 5)).astype(np.float32)
    actions, log_prob = MultiCategorical((2, 3)).sample({"policy": logits}, mask, np.random.default_rng(1))
    assert (actions == [0, 2]).all()
    assert np.allclose(log_prob, 0, atol=1e-6)


def test_what_is_not_legal_has_no_gradient():
    mask = np.array([[True, False, True]])
    logits = np.array([[0.1, 5.0, 0.2]], np.float32)
    _, entropy, tape = Categorical(3).evaluate({"policy": logits}, np.array([0]), mask)
    gradient = Categorical(3).backward(tape, np.ones(1, np.float32), np.ones(1, np.float32))["policy"]
    assert gradient[0, 1] == 0
    assert abs(gradient[0, 0]) > 0.1
    assert entropy[0] < np.log(2) + 1e-6


def test_a_draw_never_falls_behind_every_choice():
    class Edge:
        def random(self, size, dtype):
            return np.full(size, np.nextafter(np.float32(1), np.float32(0)), dtype)

    logits = np.random.default_rng(0).normal(size=(2000, 7)).astype(np.float32)
    actions, _ = Categorical(7).sample({"policy": logits}, None, Edge())
    assert actions.max() == 6
    masked, _ = Categorical(7).sample({"policy": logits}, np.tile(np.arange(7) < 3, (2000, 1)), Edge())
    assert masked.max() == 2


def test_with_no_generator_the_most_probable_action_is_taken():
    logits = np.array([[0.0, 3.0, 1.0]], np.float32)
    assert Categorical(3).sample({"policy": logits}, None, None)[0].tolist() == [1]
    mean = {"policy": logits, "log_std": np.zeros(3, np.float32)}
    assert np.array_equal(DiagGaussian(Box((3,))).sample(mean, None, None)[0], logits)
