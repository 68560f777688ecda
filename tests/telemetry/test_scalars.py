import pytest

from millstream.telemetry.progress import Progress
from millstream.telemetry.scalars import annotate, scalars, step_of, with_twins


@pytest.fixture
def noted(reports):
    progress, out = Progress(started_at=1000.0), {}
    for report in (reports.actor([2.0, 4.0]), reports.actor([9.0], at=1002.0), reports.update(at=1002.0)):
        progress.take(report)
        out[report["kind"]] = annotate(report, progress)
    return out


def test_the_names_are_those_that_dashboards_know(noted):
    names = {*with_twins(scalars(noted["actor"])), *with_twins(scalars(noted["update"]))}
    assert names >= {
        "charts/episodic_return", "charts/episodic_length", "charts/SPS", "charts/learning_rate",
        "losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/old_approx_kl", "losses/approx_kl",
        "losses/clipfrac", "losses/explained_variance",
        "rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps",
        "train/value_loss", "train/policy_gradient_loss", "train/entropy_loss", "train/approx_kl",
        "train/clip_fraction", "train/explained_variance", "train/learning_rate",
        "mill/policy_lag", "mill/policy_lag_max", "mill/corrected", "mill/stale",
        "mill/queue", "mill/share_actors_env", "mill/share_learner_gradients",
    }  # fmt: skip


def test_numbers_stand_under_their_names(noted):
    actor, update = scalars(noted["actor"]), with_twins(scalars(noted["update"]))
    assert (actor["charts/episodic_return"], actor["rollout/ep_rew_mean"]) == (9.0, 5.0)
    assert (update["charts/SPS"], update["time/fps"]) == (50.0, 50.0)
    assert update["train/entropy_loss"] == -update["losses/entropy"] == -0.6
    assert update["hyper/entropy"] == 0.01


def test_actors_stand_at_the_steps_made_and_updates_at_the_steps_trained(noted):
    assert step_of(noted["actor"]) == 200
    assert step_of(noted["update"]) == 100


def test_a_rollout_in_which_no_episode_ended_says_nothing_about_returns(reports):
    assert scalars(reports.actor()) == {}


def test_a_loss_of_a_users_own_agent_is_kept_under_its_name(reports):
    assert scalars(reports.update(curiosity=2.0))["losses/curiosity"] == 2.0


def test_events_have_no_numbers(reports):
    assert scalars(reports.event()) == {}
