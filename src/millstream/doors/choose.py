"""`mill envs`, `algos` and `presets`: what there is to choose from."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from typing import Any

from millstream.core.errors import ConfigError
from millstream.doors import saying
from millstream.telemetry.words import brief, counted

NOT_MEASURED = "not measured"


def configure(parser: ArgumentParser, name: str) -> None:
    """The options of these commands."""
    commands: dict[str, Callable[[Namespace], int]] = {"envs": envs, "algos": algos, "presets": presets}
    if name == "envs":
        parser.add_argument("words", nargs="*", metavar="FILTER", help="part of a name; or: check ENV")
    if name == "algos":
        parser.add_argument("name", nargs="?", metavar="NAME", help="an algorithm, to see its hyper-parameters")
    if name == "presets":
        parser.add_argument("env", nargs="?", default="", metavar="ENV", help="part of an environment's name, for more")
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
    """List the tuned pairs with what they reach, or show those of some environments whole."""
    from millstream import catalogue

    found = catalogue.presets(options.env)
    nothing = f"There is no preset for an environment named like {options.env!r}; `mill presets` lists them."
    if saying.said("presets", found, options.json, nothing if options.env else "There are no presets."):
        return 0
    if options.env:
        for one in found:
            _show_preset(one, apart=one is not found[0])
        return 0
    columns = ("environment", "algorithm", "return (95 % interval)", "steps", "seconds", "published, after steps")
    saying.table(columns, [_preset_row(one) for one in found], right=("steps", "seconds"), fold=columns[-1])
    others = sorted({each["env"] for one in found for each in one["published"][:1] if each["env"] != one["env"]})
    if others:
        saying.heading(f"* published for {' and '.join(others)}", "dim")
    saying.heading("`mill train ENV --algo NAME` uses them without being asked; `mill presets ENV` shows more.", "dim")
    return 0


def _preset_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    got, others = one["measured"], one["published"]
    figures = (interval(got["return"]), brief(got["steps"]), figure(got["seconds"])) if got else (NOT_MEASURED, "", "")
    beside = "-"
    if others:
        star = "*" if others[0]["env"] != one["env"] else ""
        beside = f"{figure(others[0]['value'])}{star}, {brief(others[0]['steps'])} ({others[0]['source']})"
    return (one["env"], one["algo"], *figures, beside)


def _show_preset(one: Mapping[str, Any], apart: bool) -> None:
    """Settings as `--set` takes them, figures, and the command that repeats them; `apart` from what came before."""
    saying.heading(("\n" if apart else "") + f"{one['env']}, {one['algo']}")
    rows = [("settings", ", ".join(_flat(one["settings"]))), ("chosen on", f"seeds {one['chosen_on']}")]
    rows += _measured_rows(one["measured"]) if one["measured"] else [("return", NOT_MEASURED)]
    rows += [("published" if not at else "", _published(each, one)) for at, each in enumerate(one["published"])]
    rows += [] if one["published"] else [("published", "-")]
    saying.pairs(rows)
    saying.lines([("repeat".ljust(max(len(label) for label, _ in rows)), one["command"])])


def _measured_rows(got: Mapping[str, Any]) -> list[tuple[str, str]]:
    seeds = f"over {counted(len(got['seeds']), 'seed')}, {counted(got['episodes'], 'episode')} each"
    rows = [
        ("return", f"{interval(got['return'])}: mean and 95 % interval {seeds}"),
        (
            "training",
            f"{got['steps']:,.0f} steps, {figure(got['seconds'])} s on {counted(got['cores'], 'core')}: medians",
        ),
    ]
    if got["target"]:
        reached = f"{got['target']['reached']} of {counted(len(got['seeds']), 'seed')}"
        after = f" after {got['target']['steps']:,.0f} steps (median)" if got["target"]["reached"] else ""
        rows.append(("target", f"{got['target']['value']:g} reached by {reached}{after}"))
    return rows + [
        (f"{each['name']} player", f"{interval(each['return'])}, {figure(each['food'])} food an episode")
        for each in got["players"]
    ]


def _published(each: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    spread = "" if each["spread"] is None else f" ± {figure(each['spread'])}"
    other = "" if each["env"] == one["env"] else f" for {each['env']}"
    return f"{figure(each['value'])}{spread} after {brief(each['steps'])} steps{other} ({each['source']})"


def interval(found: Mapping[str, float]) -> str:
    """A mean with its bounds."""
    return f"{figure(found['mean'])} ({figure(found['low'])} to {figure(found['high'])})"


def figure(value: float) -> str:
    """A return, with two places below a hundred, where they tell."""
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.1f}"


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
        else ",".join(map(str, value))
        if isinstance(value, list | tuple)
        else f"{value}"
    )
