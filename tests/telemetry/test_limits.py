import pytest

from millstream.telemetry.limits import limits
from millstream.telemetry.progress import Progress

START = 1000.0


def sentence(reports, actors, learner, one_process=False):
    progress = Progress(started_at=START, one_process=one_process)
    progress.take(reports.actor(seconds=actors))
    progress.take(reports.update(seconds=learner))
    return limits(progress)


def test_before_the_first_rollout_it_says_so():
    assert limits(Progress(started_at=START)) == "Starting: no rollout has arrived yet."


def test_before_the_first_update_it_says_so(reports):
    progress = Progress(started_at=START)
    progress.take(reports.actor())
    assert limits(progress) == "Collecting the first batch: no update has been made yet."


def test_a_busy_learner_with_waiting_actors_limits(reports):
    said = sentence(reports, {"env": 59.0, "wait": 41.0}, {"gradients": 93.0, "apply": 7.0})
    assert said == (
        "The learner limits: it computes gradients 93 % of the time while actors wait 41 %; "
        "try a larger minibatch or more learner threads."
    )


@pytest.mark.parametrize(
    ("stage", "doing", "advice"),
    [("env", "step environments", "more actors"), ("act", "choose actions", "more environments an actor")],
)
def test_busy_actors_with_a_waiting_learner_limit(reports, stage, doing, advice):
    said = sentence(reports, {stage: 9.0, "record": 1.0}, {"gradients": 5.0, "wait": 5.0})
    assert said.startswith(f"The actors limit: they {doing} 90 % of the time while the learner waits 50 %")
    assert advice in said


def test_when_both_wait_for_each_other_handing_over_limits(reports):
    said = sentence(reports, {"env": 4.0, "wait": 6.0}, {"gradients": 5.0, "wait": 5.0})
    assert said.startswith("Handing over limits: actors wait 60 % and the learner 50 %")


def test_when_nothing_waits_only_hardware_helps(reports):
    said = sentence(reports, {"env": 99.0, "wait": 1.0}, {"gradients": 98.0, "wait": 2.0})
    assert said.startswith("Nothing waits: actors are busy 99 % and the learner 98 %")


def test_in_one_process_the_largest_stage_of_both_limits(reports):
    said = sentence(reports, {"env": 3.0}, {"gradients": 7.0}, one_process=True)
    assert said.startswith(
        "The learner limits: it computes gradients 70 % of the time that acting and learning take in this one process;"
    )
    said = sentence(reports, {"env": 7.0}, {"gradients": 3.0}, one_process=True)
    assert said.startswith(
        "The actors limit: they step environments 70 % of the time that acting and learning take in this one process;"
    )


def test_a_stage_nobody_foresaw_is_named(reports):
    said = sentence(reports, {"env": 5.0, "wait": 5.0}, {"dreaming": 9.0, "apply": 1.0})
    assert "dreaming" in said


def test_silence_is_told(reports):
    progress = Progress(started_at=START)
    progress.take(reports.actor(at=START + 1))
    assert limits(progress, now=START + 21).startswith("Nothing has been reported for 20 s")


def test_in_one_process_nobody_is_said_to_wait(reports):
    said = sentence(reports, {"env": 3.0, "wait": 90.0}, {"gradients": 7.0, "wait": 90.0}, one_process=True)
    assert said.startswith("The learner limits: it computes gradients 70 %")


def test_a_pause_is_no_silence(reports):
    progress = Progress(started_at=START)
    progress.take(reports.actor(at=START + 1))
    progress.take(reports.event(paused=True, at=START + 2))
    assert limits(progress, now=START + 60).startswith("Paused: ")
