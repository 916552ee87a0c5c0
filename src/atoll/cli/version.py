"""`atoll version`."""

from __future__ import annotations

import os
import sys

import atoll

from .output import say, say_json
from .parsing import Parser


def main(words: list[str]) -> int:
    parser = Parser("version", "[--json]", "Which atoll this is, and what it runs on.", "")
    parser.add_argument("--json", action="store_true", help="as a JSON object")
    args = parser.parse_args(words)
    system = os.uname()
    facts = {
        "atoll": atoll.__version__,
        "python": sys.version.split()[0],
        "system": f"{system.sysname} {system.release}",
        "machine": system.machine,
    }
    if args.json:
        say_json(facts)
    else:
        say(f"atoll {atoll.__version__} (Python {facts['python']}, {facts['system']}, {facts['machine']})")
    return 0
