"""`atoll apply`: apply a sandbox's changes to its source directory."""

from __future__ import annotations

from argparse import Namespace

from .parsing import Parser, UsageError

_DESCRIPTION = """\
Apply a sandbox's changes to its source, the directory that it was made from:
all of them at once, or nothing. The rules decide again about every path; what
they refuse is named and left out. With PATHS, only what is at or below them.
You are shown what it is, and asked; once more about hidden files and
directories of new names, since tools may run what such files say. Without a
terminal nothing is applied unless you say --yes.
"""

_EPILOG = """\
examples:
  atoll apply sb-k3                the beginning of an id is enough
  atoll apply sb-k3 src --yes
  atoll apply sb-k3 --on-conflict keep

when a path has changed in the directory, too:
  ask    apply nothing at all, and name the paths (the default)
  keep   keep what the directory has
  take   take what the sandbox has

exit code:
  0; 1 when something was refused or is in conflict, or when you said no;
  125 when atoll itself fails, or nobody can be asked
"""

_WAYS = ("ask", "keep", "take")
_HOLDING = 60.0


def main(words: list[str]) -> int:
    parser = Parser("apply", "[OPTIONS] ID [PATH ...]", _DESCRIPTION, _EPILOG)
    parser.add_argument("id", metavar="ID", help="the sandbox, or the beginning of its id")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these, and what is below them")
    parser.add_argument("--on-conflict", metavar="WAY", default="ask", help="ask, keep or take; see below")
    parser.add_argument("--new-hidden", action="store_true",
        help="with hidden files and directories of names that the directory does not have yet")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="with --yes: what was done, as a JSON object")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    args = parser.parse_intermixed_args(words)
    if args.on_conflict not in _WAYS:
        raise UsageError(f"--on-conflict is {args.on_conflict!r}; write ask, keep or take.")
    return _apply(args)


def _apply(args: Namespace) -> int:
    # Imported here: whoever only reads the help does not wait for it.
    from .interrupts import Interrupts
    from .places import find
    from .reviews import check_asked, is_hidden_wanted, is_wanted, report, say_safe_json

    if args.json and not args.yes:
        raise UsageError("--json asks nothing, and so it goes with --yes.")
    if not args.yes:
        check_asked(f"apply {args.id}")
    interrupts = Interrupts()
    sandbox = find(args.id)
    reviewed, new_hidden = None, args.new_hidden
    if not args.yes:
        reviewed = sandbox.diff(args.paths or None)
        if not is_wanted(reviewed, "Apply this?"):
            return 1
        new_hidden = new_hidden or is_hidden_wanted(sandbox.info.spec.source, reviewed)
    with interrupts.held(_HOLDING):
        done = sandbox.apply(args.paths or None, on_conflict=args.on_conflict, reviewed=reviewed, new_hidden=new_hidden)
    if args.json:
        say_safe_json(done._asdict())
    else:
        report(done, args.on_conflict)
    return 1 if done.conflicts or done.rejected else 0
