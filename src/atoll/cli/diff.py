"""`atoll diff`: what a sandbox has changed of its source."""

from __future__ import annotations

from .parsing import Parser

_DESCRIPTION = """\
What a sandbox has changed of the directory that it was made from. Nothing of it
is in that directory until `atoll apply`. With PATHS, only what is at or below
them; they are relative to the workspace.
"""

_EPILOG = """\
examples:
  atoll diff sb-k3                 the beginning of an id is enough
  atoll diff sb-k3 src README.md
  atoll diff sb-k3 --stat
  atoll diff sb-k3 --json | jq -r '.[].path'

exit code:
  0; with --exit-code, 1 when something has changed; 125 when atoll itself fails
"""


def main(words: list[str]) -> int:
    parser = Parser("diff", "[OPTIONS] ID [PATH ...]", _DESCRIPTION, _EPILOG)
    parser.add_argument("id", metavar="ID", help="the sandbox, or the beginning of its id")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these, and what is below them")
    parser.add_argument("--stat", action="store_true", help="a line for each path instead of its content")
    parser.add_argument("--json", action="store_true", help="everything, as a JSON list")
    parser.add_argument("--no-color", action="store_true", help="no colours, on a terminal neither")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 when something has changed")
    args = parser.parse_intermixed_args(words)
    # Imported here: whoever only reads the help does not wait for it.
    from .places import find
    from .reviews import as_json, say_diff, say_safe_json, say_stat

    found = find(args.id).diff(args.paths or None)
    if args.json:
        say_safe_json([as_json(change) for change in found])
    elif args.stat:
        say_stat(found, plain=args.no_color)
    else:
        say_diff(found, plain=args.no_color)
    return 1 if found and args.exit_code else 0
