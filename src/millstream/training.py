"""Train, resume and judge: what the command line and Python users call."""

from __future__ import annotations

import json
import re
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream import assembly
from millstream import config as configuration
from millstream.config import Experiment
from millstream.core.errors import ConfigError, Fenced, MillError, RunError
from millstream.core.files import replace_durably, storage_error
from millstream.core.topics import Report
from millstream.learner.checkpoint import Checkpoints
from millstream.running import Callbacks, Outcome, Root, Watch
from millstream.telemetry.views import CONFIG, RESULT, lineage
from millstream.telemetry.words import counted

if TYPE_CHECKING:
    from millstream.streaming import Known

Tell = Callable[[str], object]
"""Hears what goes on after training, for people who wait."""
Begin = Callable[[Path], int]
"""Puts into a new run's folder what it begins with; the number of the checkpoint there, 0 without one."""


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    folder: Path
    result: Mapping[str, Any]
    interrupted: bool = False
    """Whether Ctrl-C cut it short, in training or in what comes after."""

    @property
    def id(self) -> str:
        """Its name."""
        return self.folder.name

    @property
    def train_return(self) -> float | None:
        """The mean of the last 100 training episodes."""
        return self.result["train_return"]

    @property
    def evaluation(self) -> Mapping[str, float] | None:
        """Episodes, mean, IQM and interval of the final evaluation."""
        return self.result["evaluation"]


def train(
    env: str = "CartPole-v1",
    *,
    algo: str = "ppo",
    seed: int = 1,
    config: str | Path | None = None,
    on_update: Callable[[Report], Any] | None = None,
    on_episode: Callable[[Report], Any] | None = None,
    on_evaluation: Callable[[Report], Any] | None = None,
    **settings: Any,
) -> Run:
    """Train an agent and give back its run.

    Settings are those of the experiment, nested ones with `__` for the dot: `total_steps=100_000`,
    `actor__count=2`; any other name is a hyper-parameter: `learning_rate=1e-3`. A callback that answers
    False stops the run.
    """
    overrides = {"env.id": env, "algo": algo, "seed": seed}
    overrides |= {name.replace("__", "."): value for name, value in settings.items()}
    experiment = assembly.experiment(config, overrides)
    return start(experiment, callbacks=Callbacks(on_update, on_episode, on_evaluation))


def start(
    experiment: Experiment,
    *,
    started_at: float | None = None,
    watch: Sequence[Watch] = (),
    callbacks: Callbacks | None = None,
    tell: Tell = lambda text: None,
    begin: Begin = lambda folder: 0,
) -> Run:
    """A new run of an experiment, from its folder to its result."""
    started_at = time.time() if started_at is None else started_at
    assembly.check(experiment)
    folder, begun = new_folder(experiment, started_at), 0
    try:
        begun = begin(folder)
        return _run(experiment, folder, started_at, watch, callbacks, tell)
    except BaseException as error:
        _tidy(folder, error, Path(experiment.folder) / folder.name, begun)
        raise


def resume(
    run: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    started_at: float | None = None,
    watch: Sequence[Watch] = (),
    callbacks: Callbacks | None = None,
    tell: Tell = lambda text: None,
) -> Run:
    """Go on with a run from its newest whole checkpoint."""
    folder = Path(run).resolve()
    stored = read_config(folder)
    experiment = configuration.from_plain(configuration.merge(stored, configuration.nest(overrides or {})))
    assembly.check(experiment)
    saved, before = _newest(folder), _files(folder)
    try:
        started_at = time.time() if started_at is None else started_at
        return _run(experiment, folder, started_at, watch, callbacks, tell)
    except BaseException as error:
        if _newest(folder) == saved or isinstance(error, Fenced):  # nothing came of it: the run is as it was
            for path, body in before.items():
                replace_durably(path, body)
        if isinstance(error, KeyboardInterrupt) or _newest(folder) != saved:
            error.add_note(_kept(folder))
        raise


def record_elsewhere(known: Known) -> Run:
    """Record a run whose workers are on their own, from its beginning to its end."""
    from millstream.streaming import Elsewhere

    folder = known.folder
    folder.mkdir(parents=True, exist_ok=True)
    replace_durably(folder / CONFIG, json.dumps(configuration.to_plain(known.config), indent=1).encode())
    root = Root(
        known.config,
        folder,
        known.created_at,
        elsewhere=lambda intent: Elsewhere(known.config, known.names, folder, known.created_at, intent),
    )
    outcome = root.run()
    result = _result(known.config, folder, outcome)
    if outcome.stopped_by != "interrupted":
        _write(folder, result)
    return Run(folder, result, outcome.stopped_by == "interrupted")


def _run(
    experiment: Experiment,
    folder: Path,
    started_at: float,
    watch: Sequence[Watch],
    callbacks: Callbacks | None,
    tell: Tell,
) -> Run:
    replace_durably(folder / CONFIG, json.dumps(configuration.to_plain(experiment), indent=1).encode())
    (folder / RESULT).unlink(missing_ok=True)
    root = Root(experiment, folder, started_at, watch, callbacks or Callbacks())
    try:
        outcome = root.run()
    except KeyboardInterrupt:  # the second one, while workers were ending
        if _newest(folder):
            _write(folder, _result(experiment, folder, root.outcome()))
        raise
    result, interrupted = _result(experiment, folder, outcome), outcome.stopped_by == "interrupted"
    _write(folder, result)  # at once: whatever becomes of the judging, training is over
    try:
        _look_back(experiment, folder, result, tell)
    except KeyboardInterrupt:
        interrupted = True
    _write(folder, result)
    return Run(folder, result, interrupted)


def _write(folder: Path, result: Mapping[str, Any]) -> None:
    replace_durably(folder / RESULT, json.dumps(result, indent=1).encode())


def _tidy(folder: Path, error: BaseException, name: Path, begun: int) -> None:
    """A run that trained nothing and has no traceback to show leaves nothing behind; of any other it is said where."""
    if isinstance(error, Exception) and not isinstance(error, MillError | OSError):
        with suppress(OSError):
            (folder / "logs").mkdir(exist_ok=True)
            (folder / "logs" / "root.log").write_text("".join(traceback.format_exception(error)))
    if _newest(folder) > begun:
        error.add_note(_kept(name))
    elif any(b"Traceback" in log.read_bytes() for log in (folder / "logs").glob("*.log")):
        error.add_note(f"the traceback is in {name / 'logs'}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _kept(name: Path) -> str:
    return f"what was trained is kept: mill resume {name}"


def _newest(folder: Path) -> int:
    """The number of the newest checkpoint, which is that of its update; 0 before anything was learnt."""
    return max((saved.number for saved in Checkpoints(folder / "checkpoints").saved()), default=0)


def _files(folder: Path) -> dict[Path, bytes]:
    """What a resumed run writes anew at once."""
    return {path: path.read_bytes() for path in (folder / CONFIG, folder / RESULT) if path.exists()}


def _look_back(experiment: Experiment, folder: Path, result: dict[str, Any], tell: Tell) -> None:
    """Complete the result piece by piece: Ctrl-C keeps what is there by then."""
    if result["stopped_by"] != "interrupted":
        _judge(experiment, folder, tell, result)
    tell("drawing the plot")
    result["plot"] = str(draw(experiment, folder))


def _result(experiment: Experiment, folder: Path, outcome: Outcome) -> dict[str, Any]:
    """The one object that says how it went, before anything is judged."""
    progress = outcome.progress
    return {
        "run": folder.name,
        "lineage": lineage(folder),
        "env": experiment.env.id,
        "algo": experiment.algo,
        "topology": experiment.topology,
        "seed": experiment.seed,
        "steps": progress.trained,
        "seconds": progress.seconds,
        "steps_per_second": progress.overall_steps_per_second,
        "train_return": progress.train_return,
        "target_reached": progress.target_reached,
        "stopped_by": outcome.stopped_by,
        "reason": outcome.reason,
        "policy_lag": progress.policy_lag,
        "policy_lag_max": progress.policy_lag_max,
        "corrected": progress.corrected,
        "ledger": progress.ledger,
        "evaluation": None,
        "plot": None,
        "video": None,
        "folder": str(folder),
    }


def _judge(experiment: Experiment, folder: Path, tell: Tell, judged: dict[str, Any]) -> None:
    """Evaluate the policy that training ended with, and record it playing when that was asked for."""
    if experiment.evaluation.episodes:
        tell(f"evaluating {counted(experiment.evaluation.episodes, 'episode')}")
        judged["evaluation"] = evaluate(folder, episodes=experiment.evaluation.episodes, name="latest")
    if experiment.tracking.video:
        tell("recording a video")
        judged["video"] = str(record(folder))


def evaluate(
    run: str | Path,
    *,
    episodes: int = 100,
    seed: int = 10_000,
    stochastic: bool | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Mean, IQM and 95 % interval over episodes of their own; greedy unless `stochastic`."""
    experiment = configuration.from_plain(read_config(Path(run)))
    if episodes < 1:
        raise ConfigError(f"an evaluation needs at least one episode, got {episodes}")
    wanted = experiment.evaluation.stochastic if stochastic is None else stochastic
    evaluation = assembly.evaluation(experiment, Path(run), episodes, seed, wanted, name)
    try:
        while not evaluation.done:
            evaluation.step()
    finally:
        evaluation.env.close()
    return asdict(evaluation.summary())


def record(run: str | Path, out: str | Path | None = None, *, seed: int = 10_000, name: str | None = None) -> Path:
    """A video of one episode."""
    return assembly.record(configuration.from_plain(read_config(Path(run))), Path(run), out, seed, name)


def draw(experiment: Experiment, folder: Path) -> Path:
    """The plot of a run."""
    from millstream.telemetry.plots import plot_run
    from millstream.telemetry.store import STORE

    title = f"{experiment.algo} on {experiment.env.id}, seed {experiment.seed}"
    return plot_run(folder / STORE, folder / "plots" / "run.png", title, experiment.target)


def new_folder(experiment: Experiment, now: float) -> Path:
    """`runs/CartPole-v1__ppo__1__20260131-120000`, with a number behind it when that is taken."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{experiment.env.id}__{experiment.algo}__{experiment.seed}")
    stem = f"{name}__{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"
    for attempt in range(1000):
        folder = Path(experiment.folder) / (stem if not attempt else f"{stem}-{attempt}")
        try:
            folder.mkdir(parents=True)
            return folder.resolve()
        except FileExistsError:
            continue
        except OSError as error:
            raise storage_error(error, folder) from error
    raise RunError(f"there are a thousand runs named {stem}")


def read_config(folder: Path) -> dict[str, Any]:
    """The settings that a run was started with."""
    try:
        return dict(json.loads((folder / CONFIG).read_bytes()))
    except FileNotFoundError:
        raise RunError(f"{folder} is not the folder of a run: it has no {CONFIG}; mill runs lists them") from None
    except ValueError as error:
        raise RunError(f"{folder / CONFIG} is damaged: {error}") from error
