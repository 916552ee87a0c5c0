"""`atoll providers`: the walls that atoll knows, and which of them work here."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from .. import registry
from ..client.choosing import STRONGEST, names_in
from ..errors import AtollError
from ..io import BlockingIO, drive
from ..types import Layer
from .doctor import look
from .output import colourful, paint, say, say_json, table
from .parsing import Parser

_DESCRIPTION = """\
The walls that atoll can put code behind. `atoll run -p NAME` picks one,
`-p strongest` the strongest that is ready, `-p gvisor,jail` the first of these
that is. $ATOLL_DRIVER is the default, $ATOLL_STRONGEST what `strongest` tries.
"""

_EPILOG = """\
ready    it works on this machine
off      it cannot be built here; `atoll doctor -p NAME` shows every layer
missing  what it needs is not installed

isolation, the weakest first:
  none       nothing stands between the code and this machine
  process    a process of its own with limits; no boundary for hostile code
  container  this machine's kernel, behind namespaces and filters
  runtime    the few calls of a language runtime, such as WebAssembly's
  kernel     a kernel of its own, in user space
  machine    a machine of its own
"""

_COLOURS = {"ready": "green", "off": "red", "missing": "yellow"}
_HEADER = ["NAME", "STATUS", "ISOLATION", "WHAT"]
_INDENT, _WIDTH = 4, 100


# Layers without which a wall cannot do one thing that it could elsewhere.
_NEEDING = {"network=all": "network_all"}


class _Provider(NamedTuple):
    name: str
    default: bool
    status: str
    isolation: str
    summary: str
    capabilities: list[str]
    reason: str | None = None
    fix: str | None = None


def main(words: list[str]) -> int:
    parser = Parser("providers", "[--json]", _DESCRIPTION, _EPILOG)
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    args = parser.parse_args(words)
    found = [_look(name) for name in registry.names()]
    if args.json:
        say_json([provider._asdict() for provider in found])
        return 0
    colours = colourful()
    rows = [_HEADER, *([_name(one), one.status, one.isolation, one.summary] for one in found)]
    head, *lines = table(rows, _COLOURS, colours=colours)
    say(paint(head, "bold", wanted=colours))
    for line, provider in zip(lines, found, strict=True):
        say(line)
        for detail in _details(provider):
            say(paint(detail, "faint", wanted=colours))
    say(f"\n{STRONGEST} tries {', '.join(names_in(STRONGEST))}")
    return 0


def _name(provider: _Provider) -> str:
    return f"{provider.name} (default)" if provider.default else provider.name


def _details(provider: _Provider) -> list[str]:
    lines = []
    if provider.reason:
        lines += _indented(f"{provider.reason}", "! ")
    if provider.fix:
        lines += _indented(provider.fix, "→ ")
    if provider.capabilities:
        lines += _indented(" ".join(provider.capabilities), "+ ")
    return lines


def _indented(text: str, mark: str) -> list[str]:
    indent = " " * _INDENT
    return textwrap.wrap(text, _WIDTH, initial_indent=indent + mark, subsequent_indent=indent + "  ")


def _look(name: str) -> _Provider:
    default = name == registry.default_name()
    try:
        driver = registry.load(name, BlockingIO())
        layers = look(name, driver)
    except AtollError as error:
        return _Provider(name, default, "missing", "", "", [], error.message, error.hint)
    lacking: list[Layer] = [layer for layer in layers if layer.required and not layer.ready]
    closed = {_NEEDING[layer.name] for layer in layers if not layer.ready and layer.name in _NEEDING}
    capabilities = sorted({capability.value for capability in drive(driver.offers()).capabilities} - closed)
    known = _Provider(name, default, "ready", driver.isolation, driver.summary, capabilities)
    if not lacking:
        return known
    reasons = "; ".join(f"{layer.name}: {layer.detail}" for layer in lacking)
    return known._replace(status="off", reason=reasons, fix=lacking[0].fix)
