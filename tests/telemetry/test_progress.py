import json

import pytest

from millstream.telemetry.progress import Progress

START = 1000.0


@pytest.fixture
def progress():
    return Progress(started_at=START, total_steps=10_000, target=100.0)


def test_nothing_is_claimed_before_anything_happened(progress):
    assert progress.train_return is None
    assert progress.steps_per_second() is None
    assert progress.seconds_left() is None
    assert progress.policy_lag is None
    assert progress.trend is None
    assert progress.shares == {"actors": {}, "learner": {}}
    assert progress.fraction == 0.0


def test_the_return_is_the_mean_of_the_last_hundred_episodes(progress, reports):
    progress.take(reports.actor([1000.0] * 50))
    assert (progress.train_return, progress.settled) == (1000.0, False)
    progress.take(reports.actor([1.0] * 60 + [2.0] * 40))
    assert progress.train_return == pytest.approx(1.4)
    assert (progress.settled, progress.episodes, progress.best_episode) == (True, 150, 1000.0)


def test_the_best_mean_stays_when_the_policy_gets_worse(progress, reports):
    progress.take(reports.actor([90.0] * 100))
    progress.take(reports.actor([10.0] * 100))
    assert (progress.best, progress.train_return) == (90.0, 10.0)


def test_the_target_is_not_reached_by_a_few_lucky_episodes(progress, reports):
    progress.take(reports.actor([500.0] * 99, at=START + 5))
    assert progress.target_reached is None
    progress.take(reports.update(steps=90))
    progress.take(reports.actor([500.0], at=START + 7))
    assert progress.target_reached == {"steps": 90, "seconds": 7.0}


def test_the_first_moment_at_the_target_is_kept(progress, reports):
    for second in (1, 2, 3):
        progress.take(reports.update(steps=100 * second, at=START + second))
        progress.take(reports.actor([100.0] * 100, at=START + second))
    assert progress.target_reached == {"steps": 100, "seconds": 1.0}


def test_the_target_is_never_reached_after_more_steps_than_were_trained(progress, reports):
    progress.take(reports.actor([100.0] * 100, steps=5000))
    assert progress.target_reached["steps"] == progress.trained == 0
    progress = Progress(started_at=START, target=100.0)
    progress.take(reports.update(steps=700))
    progress.take(reports.actor([100.0] * 100, steps=5000))
    progress.take(reports.update(steps=500, epoch=1))  # the learner died, and came back from an older checkpoint
    assert progress.target_reached["steps"] <= progress.trained == 500


def test_a_target_below_nothing_is_a_target(reports):
    progress = Progress(started_at=START, target=-250.0)
    progress.take(reports.actor([-251.0] * 100))
    assert progress.target_reached is None
    progress.take(reports.update(steps=100))
    progress.take(reports.actor([-240.0] * 100))
    assert progress.target_reached["steps"] == 100


def test_wall_time_moves_no_decision(reports):
    def decided(speed):
        progress = Progress(started_at=START, target=60.0)
        for number in range(20):
            progress.take(reports.actor([5.0 * number] * 10, at=START + number * speed))
            progress.take(reports.update(steps=100 * number, at=START + number * speed))
        return progress.target_reached["steps"], progress.train_return, progress.best, progress.trend

    assert decided(0.001) == decided(100.0)


@pytest.mark.parametrize(
    ("older", "newer", "trend"),
    [
        ([10.0, 12.0], [30.0, 32.0], "rising"),
        ([30.0, 32.0], [10.0, 12.0], "falling"),
        ([10.0, 30.0], [10.0, 31.0], "flat"),
    ],
)
def test_a_trend_is_only_what_chance_does_not_explain(progress, reports, older, newer, trend):
    progress.take(reports.actor(older * 50))
    progress.take(reports.actor(newer * 50))
    assert progress.trend == trend


def test_speed_is_that_of_the_last_seconds_and_overall_counts_the_start_up(progress, reports):
    steps = 0
    for second in range(1, 31):
        steps += 100 if second <= 15 else 1000
        progress.take(reports.update(at=START + second, steps=steps))
    assert progress.steps_per_second() == pytest.approx(1000)
    assert progress.overall_steps_per_second == pytest.approx((15 * 100 + 15 * 1000) / 30)


def test_steps_that_were_made_and_not_trained_are_no_speed(progress, reports):
    for second in (1, 2, 3):
        progress.take(reports.actor(at=START + second, steps=9000))
        progress.take(reports.update(at=START + second, steps=100 * second, stale=8900 * second))
    assert progress.steps_per_second() == pytest.approx(100)
    assert progress.overall_steps_per_second == pytest.approx(progress.trained / progress.seconds)
    assert progress.seconds_left() == pytest.approx(97)
    assert progress.ledger["made"] == 27_000


def test_a_learner_that_came_back_from_a_checkpoint_is_not_slow(progress, reports):
    for second, steps in ((1, 1000), (2, 2000), (3, 1000), (4, 2000)):
        progress.take(reports.update(at=START + second, steps=steps))
    assert progress.steps_per_second() == pytest.approx(2000 / 3)


def test_a_run_that_stands_still_slows_down(progress, reports):
    for second in (1, 2, 3):
        progress.take(reports.update(at=START + second, steps=100 * second))
    assert progress.steps_per_second(now=START + 3) == pytest.approx(100)
    assert progress.steps_per_second(now=START + 41) == pytest.approx(5)


def test_clocks_that_disagree_do_not_break_the_speed(progress, reports):
    for number, at in enumerate((START + 1, START + 2, START + 1.9, START + 3), 1):
        progress.take(reports.update(at=at, steps=100 * number))
    assert progress.steps_per_second() == pytest.approx(150)


def test_time_left_comes_from_what_is_not_yet_trained(progress, reports):
    progress.take(reports.update(steps=1000, at=START + 1))
    progress.take(reports.update(steps=2000, at=START + 2))
    assert progress.fraction == 0.2
    assert progress.seconds_left() == pytest.approx(8.0)


def test_lag_is_a_mean_over_recent_batches(progress, reports):
    progress.take(reports.update(at=START, lag=50.0))
    progress.take(reports.update(at=START + 20, lag=0.0))
    progress.take(reports.update(at=START + 21, lag=1.0))
    assert progress.policy_lag == 0.5


def test_the_longest_lag_is_that_of_recent_batches(progress, reports):
    assert progress.policy_lag_max is None
    for at, most in ((START, 9), (START + 20, 3), (START + 20.5, 1), (START + 21, 2)):
        progress.take(reports.update(at=at, lag_max=most))
    assert progress.policy_lag_max == progress.view()["policy_lag_max"] == 3


def test_corrected_steps_are_among_the_trained_and_survive_a_resume(progress, reports):
    progress.take(reports.update(steps=700, corrected=300))
    assert progress.view()["corrected"] == 300 and "corrected" not in progress.ledger
    kept = progress.snapshot()
    again, older = Progress(started_at=START), Progress(started_at=START)
    again.restore(kept)
    older.restore({name: value for name, value in kept.items() if name != "corrected"})
    assert (again.corrected, older.corrected) == (300, 0)


def test_shares_forget_what_is_long_ago(progress, reports):
    progress.take(reports.actor(at=START, seconds={"env": 100.0, "wait": 0.0}))
    progress.take(reports.actor(at=START + 30, seconds={"env": 1.0, "wait": 3.0}))
    assert progress.shares["actors"] == {"env": 0.25, "wait": 0.75}


def test_in_one_process_the_roles_share_one_total(reports):
    progress = Progress(started_at=START, one_process=True)
    progress.take(reports.actor(seconds={"env": 1.0}))
    progress.take(reports.update(seconds={"gradients": 3.0}))
    assert progress.shares == {"actors": {"env": 0.25}, "learner": {"gradients": 0.75}}


def test_in_one_process_nobody_waits_and_the_shares_make_a_whole(reports):
    progress = Progress(started_at=START, one_process=True)
    progress.take(reports.actor(seconds={"env": 1.0, "wait": 50.0}))
    progress.take(reports.update(seconds={"gradients": 3.0, "wait": 20.0}))
    assert progress.shares == {"actors": {"env": 0.25}, "learner": {"gradients": 0.75}}


def test_a_pause_is_nobodys_wait(progress, reports):
    progress.take(reports.actor(at=START + 1, seconds={"env": 1.0, "wait": 0.0}))
    progress.take(reports.event(paused=True, at=START + 1))
    progress.take(reports.event(paused=False, at=START + 9))
    progress.take(reports.actor(at=START + 10, seconds={"env": 1.0, "wait": 9.0}))
    progress.take(reports.update(at=START + 10, seconds={"gradients": 1.0, "wait": 9.0}))
    progress.take(reports.actor(at=START + 10.5, seconds={"env": 1.0, "wait": 1.0}))
    assert progress.shares["actors"] == {"env": 0.6, "wait": 0.4}
    assert progress.shares["learner"] == {"gradients": 0.5, "wait": 0.5}


def test_while_paused_there_is_no_speed_and_no_time_left(progress, reports):
    for second in (1, 2, 3):
        progress.take(reports.update(at=START + second, steps=1000 * second))
    progress.take(reports.event(paused=True, at=START + 3))
    view = progress.view(START + 5)
    assert (view["paused"], view["steps_per_second"], view["seconds_left"]) == (True, None, None)
    progress.take(reports.event(paused=False, at=START + 100))
    for second in (101, 102):
        progress.take(reports.update(at=START + second, steps=1000 * (second - 97)))
    assert progress.steps_per_second() == pytest.approx(1000)
    assert progress.view()["paused"] is False


def test_the_ledger_hides_nothing_that_is_below_nothing(progress, reports):
    progress.take(reports.update(steps=500))
    assert progress.ledger["in_flight"] == -500


def test_what_a_dead_learner_had_dropped_is_rolled_back_too(progress, reports):
    progress.take(reports.actor(steps=1000))
    progress.take(reports.update(steps=500, stale=300))
    progress.take(reports.update(steps=500, stale=100, epoch=1))
    ledger = progress.ledger
    assert (ledger["rolled_back"], ledger["stale"], ledger["in_flight"]) == (200, 100, 200)


def test_a_resumed_ledger_begins_with_nothing_in_flight(progress, reports):
    progress.continue_from(700, 50)
    progress.take(reports.actor(steps=100))
    progress.take(reports.update(steps=800, stale=50))
    assert progress.ledger["in_flight"] == 0 == progress.ledger["made"] - 850


def test_the_ledger_adds_up_after_a_learner_came_back_from_an_older_checkpoint(progress, reports):
    for _ in range(10):
        progress.take(reports.actor(steps=100))
    progress.take(reports.update(steps=700, stale=100))
    progress.take(reports.update(steps=500, stale=100, epoch=1))
    progress.take(reports.event(lost=50))
    ledger = progress.ledger
    assert ledger == {"made": 1000, "trained": 500, "stale": 100, "rolled_back": 200, "lost": 50, "in_flight": 150}
    assert ledger["made"] == sum(count for name, count in ledger.items() if name != "made")


def test_a_resumed_run_decides_as_the_one_that_was_not_interrupted(reports):
    series = [reports.actor([float(value)] * 7, at=START + value) for value in range(60)]
    whole, first, second = (Progress(started_at=START, target=45.0) for _ in range(3))
    for report in series:
        whole.take(report)
    for report in series[:23]:
        first.take(report)
    second.restore(json.loads(json.dumps(first.snapshot())))
    for report in series[23:]:
        second.take(report)
    assert second.target_reached == whole.target_reached is not None
    assert second.snapshot() == whole.snapshot()


def test_a_resumed_run_does_not_count_earlier_steps_into_its_speed(reports):
    first, second = Progress(started_at=0.0), Progress(started_at=START)
    first.take(reports.update(steps=1_000_000, at=10.0))
    second.continue_from(1_000_100)  # the report of the update that was saved had not arrived
    second.restore(first.snapshot())
    second.take(reports.update(steps=1_000_200, at=START + 1))
    assert second.overall_steps_per_second == pytest.approx(100)


def test_an_unknown_kind_of_report_is_passed_over(progress):
    progress.take({"kind": "weather", "at": START + 1})
    assert progress.last_at is None


def test_the_view_is_plain_json(progress, reports):
    for report in (reports.actor([1.0]), reports.update(), reports.evaluation()):
        progress.take(report)
    view = json.loads(json.dumps(progress.view(now=START + 2)))
    assert view["train_return"] == 1.0
    assert view["evaluation"]["mean"] == 50.0
    assert "returns" not in view["evaluation"]
