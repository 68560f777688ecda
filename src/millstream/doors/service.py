"""`mill service`: the services, and one of them as this process. Its settings are its options."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import Any

from millstream import service
from millstream.core.settings import Setting, describe
from millstream.doors import saying

LISTENING = "where it listens"


def configure(parser: ArgumentParser, name: str) -> None:
    """`mill service` lists, `mill service NAME` serves."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=listing)
    names = parser.add_subparsers(dest="service", metavar="NAME", title="services")
    for each, (kind, _) in service.SERVICES.items():
        about = (kind.__doc__ or "").strip()
        child = names.add_parser(each, help=about, description=about, allow_abbrev=False)
        _add_options(child, kind)
        child.set_defaults(run=serve)


def listing(options: Namespace) -> int:
    """Which services there are."""
    found = [
        {"name": name, "port": kind().port, "about": (kind.__doc__ or "").strip()}
        for name, (kind, _) in service.SERVICES.items()
    ]
    if not saying.said("services", found, options.json, "there are no services"):
        saying.table(("service", "port", "what it is"), [tuple(each.values()) for each in found], right=("port",))
    return 0


def serve(options: Namespace) -> int:
    """Be a service until told to end."""
    kind, _ = service.SERVICES[options.service]
    given = {each.name: getattr(options, each.name) for each in describe(kind) if hasattr(options, each.name)}
    config = service.configured(options.service, given)

    def ready(address: str) -> None:
        if options.json:
            saying.say_json({"service": options.service, "address": address})
        else:
            guarded = f", callers need the token of {config.token_file}" if config.token_file else ""
            print(f"{options.service} ready at {address}{guarded}", flush=True)

    service.run(options.service, config, ready)
    return 0


def _add_options(parser: ArgumentParser, kind: type[service.ServiceConfig]) -> None:
    shared = {each.name for each in describe(service.ServiceConfig)}
    own, listening = parser.add_argument_group("what it does"), parser.add_argument_group(LISTENING)
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON object once it answers")
    for each in describe(kind):
        group: Any = listening if each.name in shared else own
        flag = "--" + each.name.replace("_", "-")
        metavar = "FILE" if each.name in ("checkpoint", "token_file", "tls_certificate", "tls_key") else "VALUE"
        group.add_argument(flag, dest=each.name, default=SUPPRESS, metavar=metavar, help=_help(each))


def _help(each: Setting) -> str:
    default = "" if each.default is None else f" ({each.default})"
    return (each.meaning + default).replace("%", "%%")
