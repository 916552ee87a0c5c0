"""`atoll providers`: the walls that atoll knows, and which of them work here."""

from __future__ import annotations

from typing import NamedTuple

from .. import registry
from ..errors import AtollError
from ..io import BlockingIO, drive
from .output import colourful, paint, say, say_json, table
from .parsing import Parser

_DESCRIPTION = """\
The walls that atoll can put code behind. `atoll run -p NAME` picks one,
$ATOLL_DRIVER the default.
"""

_EPILOG = """\
ready    it works on this machine
off      it cannot be built here; `atoll doctor -p NAME` says why
missing  what it needs is not installed
"""

_COLOURS = {"ready": "green", "off": "red", "missing": "yellow"}
_HEADER = ["NAME", "STATUS", "WHAT"]


class _Provider(NamedTuple):
    name: str
    default: bool
    status: str
    summary: str
    capabilities: list[str]


def main(words: list[str]) -> int:
    parser = Parser("providers", "[--json]", _DESCRIPTION, _EPILOG)
    parser.add_argument("--json", action="store_true", help="as a JSON list, with what each is capable of")
    args = parser.parse_args(words)
    found = [_look(name) for name in registry.names()]
    if args.json:
        say_json([provider._asdict() for provider in found])
        return 0
    colours = colourful()
    rows = [_HEADER, *([_name(provider), provider.status, provider.summary] for provider in found)]
    head, *lines = table(rows, _COLOURS, colours=colours)
    say(paint(head, "bold", wanted=colours))
    for line in lines:
        say(line)
    return 0


def _name(provider: _Provider) -> str:
    return f"{provider.name} (default)" if provider.default else provider.name


def _look(name: str) -> _Provider:
    default = name == registry.default_name()
    try:
        driver = registry.load(name, BlockingIO())
        layers = drive(driver.health())
    except AtollError as error:
        return _Provider(name, default, "missing", str(error), [])
    ready = all(layer.ready or not layer.required for layer in layers)
    capabilities = sorted(capability.value for capability in driver.capabilities)
    return _Provider(name, default, "ready" if ready else "off", driver.summary, capabilities)
