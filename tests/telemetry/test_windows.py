from millstream.telemetry.windows import Curve, Rate, RecentSums


def test_a_curve_keeps_its_shape_and_its_size_however_long_it_gets():
    curve = Curve(points=8)
    for value in range(1000):
        curve.add(float(value))
    values = curve.values()
    assert len(values) <= 8
    assert values == sorted(values)
    assert values[0] < 150
    assert values[-1] > 850


def test_a_curve_of_constant_values_is_constant():
    curve = Curve(points=4)
    for _ in range(37):
        curve.add(3.0)
    assert set(curve.values()) == {3.0}


def test_a_rate_needs_two_moments():
    rate = Rate()
    assert rate.per_second() is None
    rate.add(1.0, 10)
    assert rate.per_second() is None
    rate.add(3.0, 30)
    assert rate.per_second() == 10


def test_a_rate_stays_small_when_reports_are_many():
    rate = Rate(seconds=10, grain=0.25)
    for tick in range(100_000):
        rate.add(tick / 1000, tick)
    assert len(rate._marks) < 50
    assert 990 < rate.per_second() < 1010


def test_sums_cover_the_window_only():
    sums = RecentSums(seconds=3)
    for second in range(10):
        sums.add(float(second), {"a": 1.0})
    assert sums.totals() == {"a": 3.0}
