"""`atoll discard`: throw away what a sandbox has changed of its source."""

from __future__ import annotations

from .parsing import Parser

_DESCRIPTION = """\
Throw away what a sandbox has changed of the directory that it was made from:
its workspace is then what that directory is now. The sandbox stays, and so does
what is outside its workspace. You are shown what goes, and asked; without a
terminal nothing is thrown away unless you say --yes.
"""

_EPILOG = """\
examples:
  atoll discard sb-k3              the beginning of an id is enough
  atoll discard sb-k3 --yes

exit code:
  0; 1 when you said no; 125 when atoll itself fails, or nobody can be asked
"""


def main(words: list[str]) -> int:
    parser = Parser("discard", "[OPTIONS] ID", _DESCRIPTION, _EPILOG)
    parser.add_argument("id", metavar="ID", help="the sandbox, or the beginning of its id")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="end processes that have a file of it open to write to")
    args = parser.parse_intermixed_args(words)
    # Imported here: whoever only reads the help does not wait for it.
    from .places import find
    from .reviews import check_asked, is_wanted

    if not args.yes:
        check_asked(f"discard {args.id}")
    sandbox = find(args.id)
    if not args.yes and not is_wanted(sandbox.diff(), "Throw this away?"):
        return 1
    sandbox.discard(force=args.force)
    return 0
