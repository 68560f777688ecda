"""The options of `train` and `resume`, and the settings that they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from millstream.core.errors import ConfigError
from millstream.core.settings import read_text


@dataclass(frozen=True)
class Flag:
    """An option that stands for a setting. What was not given changes nothing, so that presets and files hold."""

    setting: str
    names: tuple[str, ...]
    metavar: str = ""
    """Empty: a switch, which sets `value`."""
    value: Any = True
    about: str = ""
    """Empty: the text beside the setting in config.py."""


WHAT = (
    Flag("algo", ("--algo",), "NAME"),
    Flag("seed", ("--seed",), "N"),
    Flag("network.kind", ("--network",), "KIND"),
    Flag("network.device", ("--device",), "NAME"),
    Flag("data", ("--data",), "DATASET"),
)
HOW_LONG = (
    Flag("total_steps", ("--total-steps", "--total-timesteps"), "N"),
    Flag("target", ("--target",), "RETURN", about="Stop once the mean of the last 100 training episodes reaches this; "
         "`none` trains all steps."),
)  # fmt: skip
HOW = (
    Flag("topology", ("--topology",), "NAME"),
    Flag("actor.count", ("--actors",), "N"),
    Flag("actor.envs", ("--envs-per-actor", "--num-envs"), "N"),
    Flag("actor.unroll", ("--unroll",), "N"),
)
JUDGING = (
    Flag("evaluation.every", ("--eval-every",), "STEPS"),
    Flag("evaluation.episodes", ("--eval-episodes",), "N"),
    Flag("evaluation.stochastic", ("--stochastic",)),
    Flag("tracking.video", ("--capture-video",)),
)
KEEPING = (
    Flag("checkpoint.steps", ("--checkpoint-every",), "STEPS"),
    Flag("tracking.wandb", ("--track", "--wandb")),
    Flag("tracking.mlflow", ("--mlflow",)),
    Flag("tracking.tensorboard", ("--no-tensorboard",), value=False, about="Write no TensorBoard files."),
)
FOLDER = (Flag("folder", ("--folder",), "PATH"),)


def add_flags(parser: argparse.ArgumentParser, title: str, flags: Sequence[Flag]) -> argparse._ArgumentGroup:
    """A group of options, each with the text of its setting."""
    group = parser.add_argument_group(title)
    meanings = _meanings() if getattr(parser, "explained", True) else {}
    for flag in flags:
        text = flag.about or meanings.get(flag.setting, "")
        action: dict[str, Any] = (
            {"metavar": flag.metavar} if flag.metavar else {"action": "store_const", "const": flag.value}
        )
        group.add_argument(*flag.names, dest=flag.setting, default=argparse.SUPPRESS, help=_escaped(text), **action)
    return group


def add_setting(group: argparse._ArgumentGroup) -> None:
    """`--set`, which reaches every setting."""
    group.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE",
        help="any other setting, such as actor.unroll=64, or a hyper-parameter, such as learning_rate=1e-3; "
        "may be repeated; `mill algos NAME` lists hyper-parameters",
    )  # fmt: skip


def add_output(parser: argparse.ArgumentParser) -> None:
    """How a run is shown while it happens, and at its end."""
    group = parser.add_argument_group("output")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="print exactly one JSON object, at the end")
    kind.add_argument(
        "--json-lines", action="store_true", help="print a JSON object a line while running, the result last"
    )
    kind.add_argument("--quiet", action="store_true", help="print nothing but errors")


def given(options: argparse.Namespace, flags: Sequence[Flag]) -> dict[str, Any]:
    """Settings by their dotted names, only those that were given; `--set` has the last word."""
    values = vars(options)
    found = {flag.setting: values[flag.setting] for flag in flags if flag.setting in values}
    if str(found.get("target", "")).lower() == "none":
        found["target"] = None
    return found | read_pairs(options.settings, "--set")


def read_pairs(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """`key=value` of a repeated option."""
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} takes key=value, got {pair!r}")
        found[key.strip()] = read_text(text)
    return found


@cache
def _meanings() -> Mapping[str, str]:
    """The text beside each setting, read from the source."""
    from millstream.config import Experiment
    from millstream.core.settings import describe

    return {each.name: each.meaning + _default(each.default) for each in describe(Experiment)}


def _default(value: Any) -> str:
    return f" ({value})" if isinstance(value, int | float | str) and not isinstance(value, bool) else ""


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
