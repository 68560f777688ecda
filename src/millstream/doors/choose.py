"""`mill envs`, `algos` and `presets`: what there is to choose from."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from millstream.core.errors import ConfigError
from millstream.doors import saying


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of these commands."""
    commands: dict[str, Callable[[Namespace], int]] = {"envs": envs, "algos": algos, "presets": presets}
    if name == "envs":
        parser.add_argument("words", nargs="*", metavar="FILTER", help="part of a name; or: check ENV")
    if name == "algos":
        parser.add_argument("name", nargs="?", metavar="NAME", help="an algorithm, to see its hyper-parameters")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=commands[name])


def envs(options: Namespace) -> int:
    """List environments, or check one."""
    from millstream import catalogue

    if options.words[:1] == ["check"]:
        return _check(options)
    if len(options.words) > 1:
        raise ConfigError(f"one filter at a time, got {' '.join(options.words)!r}; see mill envs --help")
    found = catalogue.environments(*options.words)
    named = f"named like {options.words[0]!r}" if options.words else "known"
    if saying.said("environments", found, options.json, f"No environment is {named}; your own is module:factory."):
        return 0
    rows = [(env["id"], env["about"], f"millstream[{env['extra']}]" if env["extra"] else "") for env in found]
    saying.table(("environment", "what it is", "needs"), rows, fold="what it is")
    return 0


def _check(options: Namespace) -> int:
    from millstream import catalogue

    if len(options.words) != 2:
        raise ConfigError("mill envs check takes one environment, such as CartPole-v1 or my_module:make_env")
    env = options.words[1]
    wrong, notes = catalogue.examine(env)
    if options.json:
        saying.say_json({"env": env, "findings": wrong, "notes": notes})
    else:
        for finding in wrong:
            print(f"  ✘ {finding}")
        for note in notes:
            print(f"  · {note}")
        print(f"{env} is fit to be trained on" if not wrong else f"{env} has {len(wrong)} fault{'s'[: len(wrong) > 1]}")
    return 1 if wrong else 0


def algos(options: Namespace) -> int:
    """List algorithms, or the hyper-parameters of one."""
    from millstream import catalogue

    if options.name is None:
        found = catalogue.algorithms()
        if options.json:
            saying.say_json({"algorithms": found})
        else:
            saying.table(
                ("algorithm", "what it is"), [(each["name"], each["about"]) for each in found], fold="what it is"
            )
        return 0
    one = catalogue.algorithm(options.name)
    if options.json:
        saying.say_json(one)
        return 0
    saying.heading(f"{one['name']}: {one['about']}")
    rows = [
        (each["name"], _value(each["default"]), each["meaning"], _short(each["bounds"]), each["applies"])
        for each in one["hyper"]
    ]
    saying.table(("name", "default", "meaning", "bounds", "applies"), rows, fold="meaning")
    saying.heading("Set them with --set NAME=VALUE. `restart`: only a new run takes another value.", "dim")
    return 0


def presets(options: Namespace) -> int:
    """List the tuned pairs."""
    from millstream import catalogue

    found = catalogue.presets()
    if saying.said("presets", found, options.json, "There are no presets."):
        return 0
    rows = [(each["env"], each["algo"], ", ".join(_flat(each["settings"]))) for each in found]
    saying.table(("environment", "algorithm", "settings"), rows, fold="settings")
    saying.heading("`mill train ENV --algo NAME` uses them without being asked.", "dim")
    return 0


def _flat(settings: Any, path: str = "") -> list[str]:
    """`actor.envs=64`, as `--set` takes it; hyper-parameters go by their bare names."""
    found: list[str] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            found += _flat(value, "" if key == "hyper" else f"{path}{key}.")
        else:
            found.append(f"{path}{key}={_value(value)}")
    return found


def _short(bounds: str) -> str:
    """`at least 0 and at most 1` in signs, which leave room for the meaning."""
    for words, sign in (("at least", "≥"), ("at most", "≤"), ("above", ">"), (" and", ",")):
        bounds = bounds.replace(words, sign)
    return bounds


def _value(value: Any) -> str:
    return (
        "none"
        if value is None
        else f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else f"{value}"
    )
