"""The command line `mill`: which commands there are, and what becomes of their errors.

Nothing heavy is imported before it is known what was asked for: a start of `mill` should cost next to nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from millstream.core.errors import ConfigError, UnknownName

STEERING = "Steer a run that is under way"
GROUPS = {
    "Train": ("train", "resume", "fork", "eval", "replay"),
    "Look": ("runs", "show", "ledger", "plot", "record", "export", "export-data"),
    STEERING: ("status",),
    "Serve": ("role", "kafka", "service"),
    "Choose": ("envs", "algos", "presets", "doctor"),
}


@dataclass(frozen=True)
class Command:
    """One word after `mill`: `module` has `configure(parser, name)`, which sets `run` among its defaults."""

    module: str
    about: str
    example: str


COMMANDS = {
    "train": Command("train", "train an agent", "mill train CartPole-v1 --algo ppo --seed 1"),
    "resume": Command("resume", "go on with a run: one that ended, or one that is paused", "mill resume latest"),
    "fork": Command(
        "fork",
        "go on from a checkpoint of a run with other settings, as a new run",
        "mill fork latest --at 40 --set learning_rate=1e-4",
    ),
    "eval": Command("judging", "evaluate a run's policy over episodes of its own", "mill eval latest --episodes 200"),
    "runs": Command("look", "list the runs", "mill runs"),
    "show": Command("look", "show one run: settings, numbers, events", "mill show latest"),
    "ledger": Command("ledger", "where every environment step of a run went", "mill ledger latest"),
    "plot": Command("look", "draw a run, or several against each other", "mill plot latest"),
    "record": Command("judging", "write a video of a run's policy playing", "mill record latest --out film.gif"),
    "export": Command("judging", "write a policy for use elsewhere", "mill export latest --format onnx"),
    "export-data": Command(
        "judging", "write episodes of a run to a Minari dataset", "mill export-data latest --out ./expert"
    ),
    "status": Command("steer", "ask a run how it is doing", "mill status latest"),
    "replay": Command("replay", "train a run on Kafka again from its log, and compare", "mill replay latest"),
    "role": Command("role", "be one role of a run on Kafka", "mill role actor --run CartPole-v1__ppo__1"),
    "kafka": Command("kafka", "make the topics of a run", "mill kafka init"),
    "service": Command("service", "list the services, or be one", "mill service parameters --port 50055"),
    "envs": Command("choose", "list environments, or check one of your own", "mill envs check my_module:make_env"),
    "algos": Command("choose", "list algorithms, or the hyper-parameters of one", "mill algos ppo"),
    "presets": Command("choose", "list settings that are known to work", "mill presets"),
    "doctor": Command("doctor", "is this machine fit, and what is missing", "mill doctor"),
}


def steering() -> dict[str, Command]:
    """The commands of the registry that a run itself answers; `resume` is more than that, and has its own place."""
    from millstream.control.commands import REGISTRY

    found = {}
    for name, kind in REGISTRY.items():
        if name not in COMMANDS:
            about = (kind.__doc__ or "").strip().rstrip(".")
            found[name] = Command("steer", about[:1].lower() + about[1:], _example(name, kind))
    return found


def _example(name: str, kind: Any) -> str:
    """The shortest thing that can be typed: what has no default is spelt out."""
    needed = [each for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING]
    return " ".join([f"mill {name} latest", *(str(each.metadata["example"]) for each in needed)])


class Parser(argparse.ArgumentParser):
    """Says what is wrong by raising, so that every error takes the same way out."""

    explained = True
    """Whether options need their texts, which take a while to find."""

    def error(self, message: str) -> NoReturn:
        """One sentence, and where help is."""
        raise ConfigError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for findings, 2 for an error (75 if it may pass), 130 when interrupted."""
    _quiet_arithmetic()
    here = os.path.realpath(".")
    if here not in sys.path:
        sys.path.append(here)  # where people keep what they name as module:Class
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark, not a traceback
    from millstream.doors.failing import guarded

    as_json = next((word for word in ("--json", "--json-lines") if word in words), "")
    return guarded(lambda: _dispatch(words), as_json.removeprefix("--"))


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        from millstream.doors.overview import overview

        steer = steering()
        print(overview({**COMMANDS, **steer}, {**GROUPS, STEERING: (*GROUPS[STEERING], *steer)}))
        return 0
    if words[0] in ("-V", "--version", "version"):
        from millstream import __version__

        print(f"mill {__version__}")
        return 0
    parser = parser_for(words[0], explained=bool({"-h", "--help"} & set(words)))
    options, unknown = parser.parse_known_args(words[1:])
    if unknown:
        raise _unknown_option(parser, unknown)
    code: int = options.run(options)
    return code


def parser_for(name: str, explained: bool = True) -> Parser:
    """The parser of one command; only its own module is imported."""
    command = COMMANDS.get(name) or steering().get(name)
    if command is None:
        raise UnknownName.of("command", name, [*COMMANDS, *steering()])
    parser = Parser(
        prog=f"mill {name}",
        description=command.about.capitalize() + ".",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
    )
    parser.explained = explained
    module: Any = import_module(f"millstream.doors.{command.module}")
    module.configure(parser, name)
    return parser


def _unknown_option(parser: Parser, unknown: Sequence[str]) -> UnknownName:
    first = unknown[0]
    if not first.startswith("-"):
        return UnknownName(f"{parser.prog} does not know what to do with {first!r}; see {parser.prog} --help")
    known = [option for option in _options(parser) if option.startswith("--")]
    return UnknownName.of("option", first.split("=")[0], known, f"see {parser.prog} --help")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _options(each)


def _quiet_arithmetic() -> None:
    """One thread for BLAS, before NumPy is imported: small matrices are slower with more, and repeat less exactly."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


if __name__ == "__main__":
    raise SystemExit(main())
