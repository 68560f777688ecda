"""Returns and advantages against slow, obvious references and published numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.agents.maths import (
    discounted,
    explained_variance,
    following_values,
    gae,
    log_softmax,
    n_step,
    namespace,
    one_step_on,
    project,
    vtrace,
)
from tests.agents.written_out import slow_projection, slow_vtrace

quick = settings(max_examples=60, deadline=None)


@st.composite
def histories(draw):
    """Some steps of some slots, with both kinds of endings, and what follows each step by the definition."""
    steps, slots = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rewards, values, finals = rng.normal(size=(3, steps, slots))
    ended = rng.random((steps, slots)) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    truncated = ended & (rng.random((steps, slots)) < 0.5)
    terminated, last = ended & ~truncated, rng.normal(size=slots)
    following = np.empty_like(values)
    for t in range(steps):
        for b in range(slots):
            if terminated[t, b]:
                following[t, b] = 0
            elif truncated[t, b]:
                following[t, b] = finals[t, b]
            else:
                following[t, b] = values[t + 1, b] if t + 1 < steps else last[b]
    return rewards, values, finals, terminated, truncated, last, following, rng.normal(size=(steps, slots))


def each_slot(array):
    return range(array.shape[1])


@quick
@given(histories())
def test_what_follows_a_step_is_nothing_after_the_world_ended_and_the_final_value_after_a_cut(history):
    _, values, finals, terminated, truncated, last, following, _ = history
    assert np.array_equal(following_values(values, last, terminated, truncated, finals), following)


@quick
@given(histories(), st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_sum_of_discounted_errors_until_the_episode_ends(history, discount, trace):
    rewards, values, _, terminated, truncated, _, following, _ = history
    ended = terminated | truncated
    found = gae(rewards, values, following, (~ended).astype(float), discount, trace)
    for b in each_slot(rewards):
        for start in range(len(rewards)):
            expected = 0.0
            for t in range(start, len(rewards)):
                error = rewards[t, b] + discount * following[t, b] - values[t, b]
                expected += (discount * trace) ** (t - start) * error
                if ended[t, b]:
                    break
            assert found[start, b] == pytest.approx(expected)


@quick
@given(histories(), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 3), st.floats(0.1, 3))
def test_vtrace_is_what_its_definition_says(history, discount, trace, clip_rho, clip_c):
    rewards, values, _, terminated, truncated, _, following, log_ratios = history
    ended = terminated | truncated
    targets, advantages = vtrace(
        log_ratios, rewards, values, following, (~ended).astype(float), discount, trace, clip_rho, clip_c
    )
    for b in each_slot(rewards):
        expected = slow_vtrace(
            np.exp(log_ratios[:, b]), rewards[:, b], values[:, b], following[:, b], ended[:, b],
            discount, trace, clip_rho, clip_c,
        )  # fmt: skip
        assert np.allclose(targets[:, b], expected[0], atol=1e-5)
        assert np.allclose(advantages[:, b], expected[1], atol=1e-5)


@quick
@given(histories(), st.floats(0, 1), st.floats(0, 1))
def test_vtrace_of_the_acting_policy_itself_is_the_lambda_return(history, discount, trace):
    rewards, values, _, terminated, truncated, _, following, _ = history
    continues = (~(terminated | truncated)).astype(float)
    targets, _ = vtrace(np.zeros_like(values), rewards, values, following, continues, discount, trace)
    assert np.allclose(targets, values + gae(rewards, values, following, continues, discount, trace))


@quick
@given(histories(), st.floats(0, 1), st.floats(0, 1))
def test_one_step_on_from_targets_of_the_acting_policy_itself_are_the_advantages_of_gae(history, discount, trace):
    rewards, values, _, terminated, truncated, _, following, _ = history
    continues = (~(terminated | truncated)).astype(float)
    expected = gae(rewards, values, following, continues, discount, trace)
    found = one_step_on(values + expected, rewards, values, following, continues, discount, trace)
    assert np.allclose(found, expected)


@quick
@given(histories(), st.floats(0, 1))
def test_one_step_on_from_vtrace_are_its_advantages_before_they_are_weighed(history, discount):
    rewards, values, _, terminated, truncated, _, following, log_ratios = history
    continues = (~(terminated | truncated)).astype(float)
    targets, weighed = vtrace(log_ratios, rewards, values, following, continues, discount)
    found = one_step_on(targets, rewards, values, following, continues, discount, 1.0)
    assert np.allclose(np.minimum(np.exp(log_ratios), 1) * found, weighed)


@quick
@given(histories(), st.floats(0, 1), st.integers(1, 8))
def test_n_step_returns_look_n_steps_ahead_or_to_the_end_of_the_episode(history, discount, n):
    rewards, _, _, terminated, truncated, _, following, _ = history
    ended = terminated | truncated
    found = n_step(rewards, following, (~ended).astype(float), discount, n)
    for b in each_slot(rewards):
        for start in range(len(rewards)):
            expected, end = 0.0, start
            for end in range(start, min(start + n, len(rewards))):
                expected += discount ** (end - start) * rewards[end, b]
                if ended[end, b]:
                    break
            expected += discount ** (end - start + 1) * following[end, b]
            assert found[start, b] == pytest.approx(expected)


@quick
@given(histories(), st.floats(0, 1))
def test_discounted_returns_sum_the_rewards_of_an_episode(history, discount):
    rewards, _, _, terminated, truncated, last, _, _ = history
    ended = terminated | truncated
    found = discounted(rewards, (~ended).astype(float), discount, last)
    for b in each_slot(rewards):
        for start in range(len(rewards)):
            expected, t = 0.0, start
            for t in range(start, len(rewards)):
                expected += discount ** (t - start) * rewards[t, b]
                if ended[t, b]:
                    break
            else:
                expected += discount ** (t - start + 1) * last[b]
            assert found[start, b] == pytest.approx(expected)


@quick
@given(histories())
def test_tensors_give_what_arrays_give(history):
    rewards, values, finals, terminated, truncated, last, following, log_ratios = history
    continues = (~(terminated | truncated)).astype(float)

    def both(function, *arrays, **options):
        plain = function(*arrays, **options)
        tensors = function(*(torch.as_tensor(array) for array in arrays), **options)
        for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (plain, tensors)), strict=True):
            assert isinstance(other, torch.Tensor)
            assert np.allclose(one, other.numpy())

    both(following_values, values, last, terminated, truncated, finals)
    both(gae, rewards, values, following, continues, discount=0.9, trace=0.8)
    both(vtrace, log_ratios, rewards, values, following, continues, discount=0.9, trace=0.8)
    both(one_step_on, rewards + 1, rewards, values, following, continues, discount=0.9, trace=0.8)
    both(n_step, rewards, following, continues, discount=0.9, n=3)
    both(lambda r, c, last: discounted(r, c, 0.9, last), rewards, continues, last)
    assert explained_variance(torch.as_tensor(values), torch.as_tensor(rewards)) == pytest.approx(
        explained_variance(values, rewards)
    )


@quick
@given(st.integers(2, 12), st.floats(-5, 4.5), st.floats(0.1, 9), st.integers(0, 2**32 - 1))
def test_a_projected_distribution_is_what_a_loop_over_its_atoms_gives(n, low, wide, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(n), size=5)
    returns, discounts = rng.normal(size=5) * 4, np.array([0.0, 0.5, 0.9, 0.99, 1.0])
    found = project(probabilities, returns, discounts, low, low + wide)
    assert np.allclose(found, slow_projection(probabilities, returns, discounts, low, low + wide))
    assert np.allclose(found.sum(axis=1), 1)
    tensors = project(*(torch.as_tensor(array) for array in (probabilities, returns, discounts)), low, low + wide)
    assert np.allclose(tensors.numpy(), found)


def test_a_projection_keeps_the_mean_while_nothing_lands_beyond_the_ends():
    support = np.linspace(-10, 10, 51)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(51), size=4)
    returns, discounts = np.array([0.0, 1.0, -0.5, 0.03]), np.array([1.0, 0.9, 0.95, 0.0])
    moved = project(probabilities, returns, discounts, -10.0, 10.0) @ support
    assert np.allclose(moved, returns + discounts * (probabilities @ support))
    assert np.array_equal(project(probabilities, np.zeros(4), np.ones(4), -10.0, 10.0).round(9), probabilities.round(9))
    far = project(probabilities, np.full(4, 99.0), discounts, -10.0, 10.0)
    assert np.allclose(far[:, -1], 1)


def test_the_logarithm_of_softmax_is_torchs_own_and_bears_large_logits():
    logits = np.random.default_rng(0).normal(size=(3, 2, 4)) * 300
    assert np.allclose(log_softmax(logits), torch.log_softmax(torch.as_tensor(logits), -1).numpy())


def column(*numbers):
    return np.array(numbers, float)[:, None]


def test_discounted_returns_of_sutton_and_barto_exercise_3_8():
    rewards = column(-1, 2, 6, 3, 2)
    continues = column(1, 1, 1, 1, 0)
    assert discounted(rewards, continues, 0.5, np.zeros(1))[:, 0].tolist() == [2, 6, 8, 4, 2]


def test_discounted_returns_of_sutton_and_barto_exercise_3_9():
    # 2, then 7 for ever: G1 = 7 / (1 - 0.9) = 70 and G0 = 2 + 0.9 * 70 = 65
    found = discounted(column(2, 7, 7), np.ones((3, 1)), 0.9, np.array([70.0]))
    assert found[:, 0] == pytest.approx([65, 70, 70])


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (1.0, [[-1.45118, -4.4557, 2.5396, 0.5249, -0.49], [3, 2, 1, 0, -4.9]]),
        (0.7, [[-0.676979, -5.248167, 2.4846, 0.6704, -0.49], None]),
        (0.4, [[0.56731, -6.042, 2.3431, 0.815, -0.49], None]),
    ],
)
def test_gae_gives_the_numbers_published_with_rlax(trace, expected):
    rewards = np.array([[0, 0, 1, 0, -0.5], [0, 0, 0, 0, 1.0]]).T
    values = np.array([[1, 4, -3, -2, -1, -1], [-3, -2, -1, 0, 5, -1.0]]).T
    terminated = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 1, 0]], bool).T
    following = following_values(values[:-1], values[-1], terminated, np.zeros_like(terminated), np.zeros((5, 2)))
    for slot, discount in enumerate((0.99, 0.9)):
        if expected[slot] is not None:
            found = gae(rewards, values[:-1], following, (~terminated).astype(float), discount, trace)
            assert found[:, slot] == pytest.approx(expected[slot], abs=1e-3)


def test_vtrace_gives_the_numbers_published_with_rlax():
    behaviour = np.array([[[8.9, 0.7], [5.0, 1.0], [0.6, 0.1], [-0.9, -0.1]], [[0.3, -5.0], [1.0, -8.0], [0.3, 1.7], [4.7, 3.3]]])  # fmt: skip # noqa: E501
    target = np.array([[[0.4, 0.5], [9.2, 8.8], [0.7, 4.4], [7.9, 1.4]], [[1.0, 0.9], [1.0, -1.0], [-4.3, 8.7], [0.8, 0.3]]])  # fmt: skip # noqa: E501
    actions = np.array([[0, 1, 0, 0], [1, 0, 0, 1]])

    def chosen(logits):
        log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return np.take_along_axis(log_p, actions[..., None], axis=-1)[..., 0].T

    rewards = np.array([[-1.3, -1.3, 2.3, 42.0], [1.3, 5.3, -3.3, -5.0]]).T
    discounts = np.array([[0.0, 0.89, 0.85, 0.99], [0.88, 1.0, 0.83, 0.95]]).T
    values = np.array([[2.1, 1.1, -3.1, 0.0, 8.4], [3.1, 0.1, -1.1, 7.4, -1.2]]).T
    expected = np.array([[-1.6155143, -3.4973226, 1.8670533, 50.316002], [1.4662437, 3.6116405, -8.3327293e-5, -13.54]])
    targets, advantages = vtrace(
        chosen(target) - chosen(behaviour), rewards, values[:-1], values[1:], np.ones((4, 2)), discounts
    )
    assert np.allclose(targets - values[:-1], expected.T, rtol=1e-3)
    assert np.allclose(advantages, expected.T, rtol=1e-3)


def test_a_cut_episode_is_worth_its_bootstrap_and_a_finished_one_nothing_more():
    # one step of reward 1, value 0, discount 0.9; the last observation is worth 10
    rewards, values, finals = column(1), column(0), column(10)
    yes, no = np.array([[True]]), np.array([[False]])
    for terminated, truncated, expected in ((yes, no, 1.0), (no, yes, 10.0), (yes, yes, 1.0), (no, no, 1 + 0.9 * 3)):
        following = following_values(values, np.array([3.0]), terminated, truncated, finals)
        continues = (~(terminated | truncated)).astype(float)
        assert gae(rewards, values, following, continues, 0.9, 0.95)[0, 0] == pytest.approx(expected)


def test_an_endless_task_cut_at_ten_steps_keeps_its_true_value():
    # reward 1 for ever is worth 1 / (1 - 0.9) = 10: with that value, no advantage is left anywhere
    rewards, values = np.ones((20, 1)), np.full((20, 1), 10.0)
    truncated = (np.arange(20) % 10 == 9)[:, None]
    following = following_values(values, np.array([10.0]), np.zeros_like(truncated), truncated, values)
    assert np.allclose(gae(rewards, values, following, (~truncated).astype(float), 0.9, 0.95), 0)
    as_an_end = following_values(values, np.array([10.0]), truncated, np.zeros_like(truncated), values)
    assert gae(rewards, values, as_an_end, (~truncated).astype(float), 0.9, 0.95).min() < -8


def test_explained_variance_is_one_for_perfect_values_and_zero_for_their_mean():
    actual = np.arange(6.0)
    assert explained_variance(actual, actual) == 1
    assert explained_variance(np.full(6, 2.5), actual) == 0
    assert explained_variance(actual, np.ones(6)) == 0
    assert explained_variance(-actual, actual) == pytest.approx(-3)


def test_the_namespace_of_an_array_is_the_library_it_belongs_to():
    assert namespace(np.zeros(1)) is np
    assert "torch" in namespace(torch.zeros(1)).__name__
