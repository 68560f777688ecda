"""Privacy against the definition: formulas of the papers written out, and another accountant's numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import ConfigError
from millstream.parameters.accountant import ORDERS, Accountant, divergence
from millstream.parameters.privacy import Privacy, clipped_sum

# --- the accountant --------------------------------------------------------------------------------------------------


def by_binomial_sum(noise: float, rate: float, order: int) -> float:
    """Whole orders: Mironov, Talwar and Zhang (2019), section 3.3."""
    terms = [
        math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        + k * math.log(rate) + (order - k) * math.log1p(-rate) + (k * k - k) / (2 * noise**2)
        for k in range(order + 1)
    ]  # fmt: skip
    top = max(terms)
    return (top + math.log(math.fsum(math.exp(term - top) for term in terms))) / (order - 1)


def by_two_series(noise: float, rate: float, order: float, terms: int = 3000) -> float:
    """Fractional orders: the same paper, two series that meet where both Gaussians weigh the same."""
    middle = 0.5 + noise**2 * math.log(1 / rate - 1)
    total, binomial = 0.0, 1.0
    for i in range(terms):
        j = order - i
        low = math.erfc((i - middle) / (math.sqrt(2) * noise)) / 2
        high = math.erfc((middle - j) / (math.sqrt(2) * noise)) / 2
        if low:
            total += binomial * math.exp(
                i * math.log(rate) + j * math.log1p(-rate) + (i * i - i) / (2 * noise**2) + math.log(low)
            )
        if high:
            total += binomial * math.exp(
                j * math.log(rate) + i * math.log1p(-rate) + (j * j - j) / (2 * noise**2) + math.log(high)
            )
        binomial *= (order - i) / (i + 1)
    return math.log(total) / (order - 1)


@settings(deadline=None)
@given(st.floats(0.3, 30), st.floats(1e-3, 0.999), st.integers(2, 200))
def test_whole_orders_are_the_binomial_sum(noise: float, rate: float, order: int) -> None:
    assert divergence(noise, rate, order) == pytest.approx(by_binomial_sum(noise, rate, order), rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("order", [1.1, 1.5, 2.3, 4.7, 10.9])
@pytest.mark.parametrize(("noise", "rate"), [(1.1, 0.01), (2.0, 0.1), (0.8, 0.001), (3.0, 0.9), (1.0, 0.3)])
def test_fractional_orders_are_the_two_series(noise: float, rate: float, order: float) -> None:
    assert divergence(noise, rate, order) == pytest.approx(by_two_series(noise, rate, order), rel=1e-5, abs=1e-13)


# Integrated by mpmath with 40 digits: (noise, rate, order) -> divergence.
EXACT = {
    (2.0, 0.1, 1.25): 0.0017376548494981815,
    (1.1, 0.01, 1.25): 7.9280055348681651e-5,
    (1.5, 0.5, 1.25): 0.075085957204526325,
    (0.4, 0.02, 1.5): 0.035395399036164136,
    (0.6, 1e-5, 1.25): 9.4206970458124121e-10,
    (0.6, 1e-5, 1.03): 7.7611369544783832e-10,
    (1.0, 0.3, 4.7): 0.91162603471749319,
}


@pytest.mark.parametrize("case", EXACT)
def test_the_divergence_has_its_digits_also_where_it_is_tiny(case: tuple[float, float, float]) -> None:
    assert divergence(*case) == pytest.approx(EXACT[case], rel=1e-9)


@settings(deadline=None)
@given(st.floats(0.2, 100), st.sampled_from(ORDERS))
def test_without_sampling_it_is_the_closed_form_and_almost_without_almost(noise: float, order: float) -> None:
    closed = order / (2 * noise**2)
    assert divergence(noise, 1.0, order) == pytest.approx(closed, rel=1e-14)
    assert divergence(noise, 1 - 1e-12, order) == pytest.approx(closed, rel=1e-6)


@settings(deadline=None)
@given(st.floats(0.05, 50), st.floats(1e-6, 1), st.sampled_from(ORDERS))
def test_sampling_never_costs_and_a_higher_order_never_costs_less(noise: float, rate: float, order: float) -> None:
    found = divergence(noise, rate, order)
    assert 0 <= found <= order / (2 * noise**2) * (1 + 1e-12)
    assert found <= divergence(noise, rate, order * 1.01) * (1 + 1e-9)
    assert found <= divergence(noise, min(rate * 1.5, 1.0), order) * (1 + 1e-9)


# dp-accounting 0.6.0 (RdpAccountant, PoissonSampledDpEvent over GaussianDpEvent) at these orders and delta 1e-5; the
# orders are whole, because its series for fractional ones stop early, on the safe side.
WHOLE = (2, 3, 4, 8, 16, 32, 64, 256)
INDEPENDENT: dict[tuple[float, float, int], float] = {
    (1.0, 1.0, 1): 5.087861628831665,
    (4.0, 1.0, 100): 14.176691480042894,
    (1.1, 0.01, 10000): 5.7550447751023786,
    (0.8, 0.001, 200000): 4.622567767573209,
    (2.0, 0.1, 500): 6.089503111076504,
    (1.5, 0.5, 50): 15.903885401039439,
    (3.0, 0.9, 20): 6.791455613142512,
    (0.6, 1e-05, 1000000): 1.30620468069593,
    (0.4, 0.02, 10): 12.006395894803397,
}


@pytest.mark.parametrize("case", INDEPENDENT)
def test_epsilon_is_that_of_an_independent_accountant(case: tuple[float, float, int]) -> None:
    noise, rate, rounds = case
    accountant = Accountant(WHOLE)
    accountant.step(noise, rate, rounds)
    assert accountant.epsilon(1e-5) == pytest.approx(INDEPENDENT[case], rel=1e-9)
    finer = Accountant()
    finer.step(noise, rate, rounds)
    assert finer.epsilon(1e-5) <= INDEPENDENT[case] * 1.001  # more orders only help, up to the gaps between ours


def normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


@pytest.mark.parametrize("rounds", [1, 10, 500])
@pytest.mark.parametrize("noise", [0.7, 2.0, 15.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_epsilon_holds_and_is_near_the_best_possible_for_plain_gaussians(
    noise: float, rounds: int, delta: float
) -> None:
    """Balle and Wang (2018) give the exact delta of an epsilon; `rounds` Gaussians are one, less noisy by a root."""
    accountant = Accountant()
    accountant.step(noise, count=rounds)
    mu = math.sqrt(rounds) / noise

    def true_delta(epsilon: float) -> float:
        tail = normal(-mu / 2 - epsilon / mu)
        return normal(mu / 2 - epsilon / mu) - (math.exp(epsilon + math.log(tail)) if tail else 0.0)

    epsilon = accountant.epsilon(delta)
    assert true_delta(epsilon) <= delta
    if epsilon > 0.1:
        assert true_delta(epsilon * 0.75) > delta


@pytest.mark.parametrize(("noise", "rate"), [(0.5, 0.01), (1.0, 0.1), (2.0, 0.5)])
def test_epsilon_of_one_sampled_round_holds_by_the_definition(noise: float, rate: float) -> None:
    """The hockey-stick divergence, integrated: what an onlooker who knows everything else can tell."""
    accountant = Accountant()
    accountant.step(noise, rate)
    epsilon = accountant.epsilon(1e-5)
    z = np.linspace(-40, 40, 400_001)
    without = np.exp(-(z**2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))
    with_client = (1 - rate) * without + rate * np.exp(-((z - 1) ** 2) / (2 * noise**2)) / (
        noise * math.sqrt(2 * math.pi)
    )
    step = z[1] - z[0]
    for one, other in ((with_client, without), (without, with_client)):
        assert np.maximum(one - math.exp(epsilon) * other, 0).sum() * step <= 1e-5


def test_rounds_add_up_in_any_order_and_none_is_free() -> None:
    one, other = Accountant(), Accountant()
    assert one.epsilon(1e-5) == 0 and one.steps == 0
    one.step(1.0, 0.1, 3)
    one.step(2.0, 0.5)
    other.step(2.0, 0.5)
    for _ in range(3):
        other.step(1.0, 0.1)
    assert one.steps == other.steps == 4
    assert one.epsilon(1e-5) == pytest.approx(other.epsilon(1e-5), rel=1e-12)
    before = one.epsilon(1e-5)
    one.step(1.0, 0.1)
    assert one.epsilon(1e-5) > before
    assert one.epsilon(1e-8) > one.epsilon(1e-5)


def test_a_history_is_spent_again_elsewhere() -> None:
    one, other = Accountant(), Accountant()
    one.step(1.0, 0.1, 30)
    other.step(1.0, 0.1, 12)
    other.add(one.history())
    whole = Accountant()
    whole.step(1.0, 0.1, 42)
    assert (other.steps, other.epsilon(1e-6)) == (42, whole.epsilon(1e-6))


def test_no_noise_is_no_privacy_and_little_noise_is_answered_quickly() -> None:
    accountant = Accountant()
    accountant.step(0.0)
    assert accountant.epsilon(1e-5) == math.inf
    assert divergence(1e-6, 0.5, 2.0) == pytest.approx(1e12)


@pytest.mark.parametrize("bad", [(-1.0, 0.5, 1), (math.nan, 0.5, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, 0.5, -1)])
def test_rounds_that_make_no_sense_are_not_counted(bad: tuple[float, float, int]) -> None:
    accountant = Accountant()
    with pytest.raises(ConfigError):
        accountant.step(*bad)
    assert accountant.steps == 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_a_delta_that_makes_no_sense_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        Accountant().epsilon(delta)


@pytest.mark.parametrize("orders", [(), (1.0,), (0.5, 2.0), (math.inf,)])
def test_orders_are_above_one(orders: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="orders"):
        Accountant(orders)


# --- clipping and noise ----------------------------------------------------------------------------------------------

vectors = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3)


@given(st.lists(vectors, min_size=1, max_size=6), st.floats(1e-6, 1e6), st.data())
def test_no_client_moves_the_sum_by_more_than_the_clip(rows: list[Any], clip: float, data: st.DataObject) -> None:
    stack = np.array(rows, np.float32)
    samples = data.draw(st.lists(st.floats(1e-3, 1e9), min_size=len(rows), max_size=len(rows)))
    weights = Privacy(clip, 1.0, max_samples=100).weights(samples)
    whole = clipped_sum(stack, weights, clip)
    for index in range(len(rows)):
        others = np.arange(len(rows)) != index
        rest = clipped_sum(stack[others], weights[others], clip)
        assert np.linalg.norm(whole - rest) <= clip * (1 + 1e-9)


def test_a_short_delta_is_not_touched_and_a_long_one_keeps_its_direction() -> None:
    assert clipped_sum(np.array([[0.3, 0.4]], np.float32), [1.0], 1.0) == pytest.approx([0.3, 0.4], rel=1e-7)
    assert clipped_sum(np.array([[30, 40]], np.float32), [1.0], 1.0) == pytest.approx([0.6, 0.8])
    assert clipped_sum(np.zeros((1, 2), np.float32), [1.0], 1.0).tolist() == [0, 0]


def test_weights_never_pass_one() -> None:
    assert Privacy(1.0, 1.0).weights([1, 5, 1e9]).tolist() == [1, 1, 1]
    assert Privacy(1.0, 1.0, max_samples=10).weights([1, 5, 10, 1e9]).tolist() == [0.1, 0.5, 1, 1]


def test_the_noise_has_the_size_that_the_accountant_assumes() -> None:
    privacy = Privacy(clip=3.0, noise_multiplier=0.5, rng=np.random.default_rng(0))
    total = np.full(200_000, 7.0)
    released = privacy.release(total, clients=4).astype(float) * 4 - total
    assert abs(released.mean()) < 4 * 1.5 / math.sqrt(len(total))
    assert released.std() == pytest.approx(1.5, rel=0.01)
    assert np.mean(np.abs(released) > 3.0) == pytest.approx(0.0455, abs=0.003)  # two deviations: a Gaussian's tails
    assert not np.array_equal(privacy.release(total, 4), privacy.release(total, 4))


def test_two_servers_never_draw_the_same_noise_by_default() -> None:
    zero = np.zeros(4)
    assert not np.array_equal(Privacy(1.0, 1.0).release(zero, 1), Privacy(1.0, 1.0).release(zero, 1))


def test_each_client_is_drawn_by_a_chance_of_its_own() -> None:
    privacy = Privacy(1.0, 1.0, sampling_rate=0.3, rng=np.random.default_rng(1))
    clients = [str(index) for index in range(20)]
    draws = [privacy.draw(clients) for _ in range(5000)]
    sizes = np.array([len(draw) for draw in draws])
    assert sizes.mean() == pytest.approx(6.0, abs=0.15)
    assert sizes.var() == pytest.approx(20 * 0.3 * 0.7, rel=0.1)  # a fixed number of clients would have none
    both = np.mean(["3" in draw and "17" in draw for draw in draws])
    assert both == pytest.approx(0.09, abs=0.02)
    assert Privacy(1.0, 1.0).draw(clients) == frozenset(clients)


@pytest.mark.parametrize(
    "bad",
    [
        {"clip": 0.0},
        {"clip": math.nan},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.inf},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.5},
        {"max_samples": 0.0},
        {"delta": 0.0},
        {"delta": 1.0},
    ],
)
def test_a_setting_that_protects_nothing_is_refused_by_its_name(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Privacy(**{"clip": 1.0, "noise_multiplier": 1.0, **bad})
