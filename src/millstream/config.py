"""The experiment: a frozen tree of settings, read once, checked once. It raises, or it is right."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from millstream.core import settings
from millstream.core.errors import ConfigError, MissingPart
from millstream.core.settings import setting

TOPOLOGIES = ("inline", "processes", "kafka")


@dataclass(frozen=True)
class EnvConfig:
    """The world."""

    id: str = "CartPole-v1"
    """A built-in, a Gymnasium id, `ALE/...`, `envpool:...`, or your own as `module:factory`."""
    args: dict[str, Any] = setting({})
    """Arguments for the environment."""
    wrappers: tuple[str, ...] = ()
    """Functions or classes `module:name`, each given one environment, innermost first."""
    vector: str = setting("auto", choices=("auto", "native", "sync", "process"))
    """How several copies run: the environment's own vector, one after another, or a process each."""
    stack: int = setting(0, low=0, high=64)
    """How many frames a policy sees at once; 0 leaves it to the environment."""


@dataclass(frozen=True)
class ActorConfig:
    """Who makes experience."""

    count: int = setting(1, low=0, high=16)
    """Actors; in the `processes` topology each is a process."""
    envs: int = setting(64, low=1, high=65536)
    """Environments in each actor, stepped together."""
    unroll: int = setting(128, low=1, high=65536)
    """Steps in one rollout."""


@dataclass(frozen=True)
class LearnerConfig:
    """Who learns."""

    rollouts: int = setting(0, low=0)
    """Rollouts in one update; 0 means one from each actor."""
    max_policy_lag: int | None = setting(None, low=0)
    """Updates that experience may be behind; older rollouts are stale. None: what the algorithm bears."""
    stale: str = setting("drop", choices=("drop", "correct"))
    """What becomes of stale rollouts, which are counted: dropped, or learnt from corrected by V-trace (PPO, IMPALA)."""
    shards: int = setting(2, low=1, high=64)
    """Parts into which a large minibatch is cut. It fixes the sums, whatever number of threads computes them."""
    threads: int = setting(0, low=0, high=64)
    """Threads that compute the shards; 0 means as many as there are shards and processors that actors leave free."""


@dataclass(frozen=True)
class NetworkConfig:
    """What a policy computes with."""

    kind: str = "auto"
    """`mlp` (NumPy), `torch` (MLP or CNN), `lstm` (torch), or your own as `module:Class`; `auto` picks."""
    hidden: tuple[int, ...] = setting((64, 64), low=1)
    """Widths of the hidden layers."""
    activation: str = setting("tanh", choices=("tanh", "relu"))
    """What follows each hidden layer."""
    shared: bool = False
    """Whether policy and value share their hidden layers."""
    memory: int = setting(64, low=1)
    """Width of the LSTM."""
    device: str = "cpu"
    """Where torch computes."""


@dataclass(frozen=True)
class EvaluationConfig:
    """How a policy is judged, apart from training."""

    every: int = setting(0, low=0)
    """Steps between evaluations while training; 0 only evaluates at the end."""
    episodes: int = setting(100, low=0)
    """Episodes of one evaluation; 0 skips it."""
    stochastic: bool = False
    """Sample actions instead of taking the most probable one."""


@dataclass(frozen=True)
class CheckpointConfig:
    """What survives."""

    steps: int = setting(200_000, low=0)
    """Steps between checkpoints; 0 only saves at the end."""
    seconds: float = setting(30.0, low=0)
    """In topologies with time, save also when this much has passed; 0 never does."""
    keep: int = setting(3, low=1)
    """How many of the newest are kept."""


@dataclass(frozen=True)
class TrackingConfig:
    """Where reports go besides the run's own store."""

    tensorboard: bool = True
    """Write TensorBoard files."""
    wandb: bool = False
    """Log to Weights & Biases (extra `wandb`)."""
    mlflow: bool = False
    """Log to MLflow (extra `mlflow`)."""
    video: bool = False
    """Record the policy playing at the end of the run."""


@dataclass(frozen=True)
class KafkaConfig:
    """The brokers of the `kafka` topology."""

    bootstrap: str = "127.0.0.1:9092"
    """Where they are: host:port, several with commas between them."""
    prefix: str | None = None
    """What topic names begin with. None: nothing for the first run of a broker, the run's name and a dot for others."""
    client: dict[str, Any] = setting({})
    """Settings of the client library, such as `security.protocol`. Secrets are told as `file:PATH` or `env:NAME`."""
    compression: str = setting("lz4", choices=("none", "lz4", "zstd", "snappy", "gzip"))
    """How messages are packed."""
    replication: int = setting(1, low=1, high=16)
    """Copies of each topic that is made."""


@dataclass(frozen=True)
class LogConfig:
    """What is kept of the experience on Kafka."""

    keep: str = setting("all", choices=("all", "hours", "bytes"))
    """Everything, the last `log.hours`, or the last `log.bytes`."""
    hours: float = setting(24.0, above=0)
    """With `keep = hours`: how long."""
    bytes: int = setting(10_000_000_000, low=1 << 20)
    """With `keep = bytes`: how much, of all actors together."""


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run."""

    env: EnvConfig = field(default_factory=EnvConfig)
    algo: str = "ppo"
    """A registered algorithm, or your own as `module:Class`."""
    hyper: dict[str, Any] = setting({})
    """Hyper-parameters; `mill algos NAME` lists them."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    topology: str = setting("processes", choices=TOPOLOGIES)
    """`processes` overlaps acting and learning; `inline` repeats bit for bit; `kafka` keeps experience in a log."""
    total_steps: int = setting(1_000_000, low=1)
    """Environment steps to train on."""
    target: float | None = None
    """Stop once the mean of the last 100 training episodes reaches this."""
    seed: int = setting(1, low=0)
    """Seeds everything that draws."""
    actor: ActorConfig = field(default_factory=ActorConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    log: LogConfig = field(default_factory=LogConfig)
    folder: str = "runs"
    """Where runs are kept."""
    warm_start: str | None = None
    """A run whose weights to start from."""
    data: str | None = None
    """A Minari dataset, by its name or folder, to learn from in the place of environments."""


Preset = Callable[[str, str], Mapping[str, Any]]


def load(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    preset: Preset = lambda env, algo: {},
) -> Experiment:
    """Defaults, then the preset of environment and algorithm, the file, MILL_* variables, and last the overrides.

    Overrides are dotted: `actor.count`. A bare name that is no setting of the experiment is a hyper-parameter.
    """
    given = merge(read_file(file) if file else {}, nest(_from_environ(environ or {})), nest(overrides or {}))
    env = given.get("env", {})
    id = env.get("id", EnvConfig.id) if isinstance(env, Mapping) else None
    algo = given.get("algo", Experiment.algo)
    tuned = preset(id, algo) if isinstance(id, str) and isinstance(algo, str) else {}
    return from_plain(merge(tuned, given))


def from_plain(values: Mapping[str, Any]) -> Experiment:
    """The experiment of a run's `config.json`."""
    return settings.parse(Experiment, values)


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """What `config.json` holds."""
    return settings.plain(experiment)


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over one another, the later on top. Arguments and hyper-parameters merge like the rest."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            table = isinstance(value, Mapping)  # copied even where it is alone: a layer stays its owner's
            merged[key] = merge(below if isinstance(below, Mapping) else {}, value) if table else value
    return merged


def nest(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """{"actor.count": 2, "clip": 0.1} -> {"actor": {"count": 2}, "hyper": {"clip": 0.1}}."""
    known = {each.name for each in fields(Experiment)}
    nested: dict[str, Any] = {}
    for key, value in dotted.items():
        head, *rest = key.split(".")
        path = [head, *rest] if rest or head in known else ["hyper", head]
        table = nested
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{key} is set twice, as a table and as a value")
        table.update(merge(table, {path[-1]: value}))
    return nested


def read_file(path: str | Path) -> dict[str, Any]:
    """An experiment file: TOML, JSON or YAML by its ending."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the experiment file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the experiment file {path} is not text: {error}") from error
    try:
        found = _reader(path)(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid {path.suffix[1:]}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} should hold a table of settings, got {type(found).__name__}")
    return found


def _reader(path: Path) -> Callable[[str], Any]:
    if path.suffix == ".toml":
        return tomllib.loads
    if path.suffix == ".json":
        return json.loads
    if path.suffix in (".yaml", ".yml"):
        return _read_yaml
    raise ConfigError(f"{path} should end in .toml, .json or .yaml")


def _read_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingPart.of("PyYAML", "yaml") from None
    try:
        found = yaml.safe_load(text)
        return {} if found is None else found  # nothing but comments
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from error


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    """MILL_SEED=3, MILL_ACTOR__COUNT=2: only names of this experiment's settings count."""
    known = {each.name for each in fields(Experiment)}
    found = {}
    for name, text in environ.items():
        path = name.removeprefix("MILL_").lower().split("__")
        if name.startswith("MILL_") and path[0] in known:
            found[".".join(path)] = settings.read_text(text)
    return found
