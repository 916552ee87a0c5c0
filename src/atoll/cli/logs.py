"""`atoll logs`: what agents did."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from ..agent import journal
from ..agent.records import Recorded, recorded, spent_by
from ..agent.tree import Line, brief, tree_lines
from ..errors import AtollError
from . import FAILED
from .list import span
from .output import colourful, complain, paint, say, say_json, table, visible
from .parsing import Parser, UsageError
from .values import duration, whole_number

_DESCRIPTION = """\
The runs of agents, newest first; or one of them as a tree, with its steps,
their times, tokens and cost. Everything is in the journal from the moment
that it happens, whichever process it happens in.
"""

_EPILOG = """\
actions:
  list                    the newest runs (default)
  ID, or show ID          one run; the beginning of its id is enough
  export ID               one run for other programs, as --format says
  pictures ID DIR         write the pictures that its steps made into DIR
  delete ID ...           forget runs, with their snapshots and sandboxes
  delete --older 30d      forget those whose last sign of life is so old

examples:
  atoll logs
  atoll logs tr-3f --full
  atoll logs --follow
  atoll logs export tr-3f -o run.json
  atoll logs export tr-3f --format jsonl | jq 'select(.type == "tool")'

exit code:
  0, or 125 when something could not be done; of several the others are done
  all the same
"""

_COLOURS = {
    "completed": "green", "limited": "yellow", "failed": "red", "cancelled": "yellow", "interrupted": "yellow",
    "running": "cyan", "waiting": "cyan",
}  # fmt: skip
_TONES = {"bad": "red", "faint": "faint", "head": "bold"}
_HEADER = ["ID", "STATE", "AGE", "STEPS", "TOKENS", "COST", "MODEL", "TASK"]
_NEWEST = "20"


def main(words: list[str]) -> int:
    parser = Parser("logs", "[list] | ID | ACTION [OPTIONS] ...", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add("action", nargs="?", default="list", metavar="ACTION", help="what to do, or the id of a run; see below")
    add("words", nargs="*", metavar="WORD", help="ids of runs, or beginnings of ids; a directory")
    add("-n", "--limit", metavar="COUNT", default=_NEWEST, help=f"list: so many (default: {_NEWEST}); 0 for all")
    add("--full", action="store_true", help="show: all that was said, and not only first lines")
    add("-f", "--follow", action="store_true", help="show: go on until the run ends; without an ID, the newest one")
    add("--json", action="store_true", help="list, show: everything, as JSON; with --follow, one object a line")
    add("--format", metavar="FORMAT", default="atif", help="export: atif (default), jsonl, or otel (OTLP in JSON)")
    add("--content", action="store_true", help="export --format otel: also what was said")
    add("-o", "--output", metavar="FILE", help="export: write there; pictures of atif go into FILE.pictures")
    add("--older", metavar="TIME", help="delete: those without a sign of life for so long, such as 30d")
    args = parser.parse_intermixed_args(words)
    action = _ACTIONS.get(args.action)
    if action is None:
        if args.action.startswith("sb-"):
            raise UsageError(
                "Sandboxes have no log: `atoll run` and `atoll exec` show what a command says while it runs, and "
                f"`atoll audit {args.action}` what was refused. The ids here are those of agents' runs."
            )
        args.words = [args.action, *args.words]
        action = _show
    if args.action == "list" and args.follow:
        action = _show
    return action(args)


def _list(args: Namespace) -> int:
    _expect(args, 0, 0, "atoll logs list")
    kept = journal.shared()
    count = whole_number(args.limit, "--limit")
    found = [recorded(kept, run.id) for run in kept.runs(limit=count or None)]
    if args.json:
        say_json([_summary(tree) for tree in found])
        return 0
    colours = colourful()
    head, *lines = table([_HEADER, *map(_row, found)], _COLOURS, colours=colours)
    say(paint(head, "bold", wanted=colours))
    for line in lines:
        say(line)
    return 0


def _show(args: Namespace) -> int:
    _expect(args, 0 if args.follow else 1, 1, "atoll logs ID")
    id = _newest() if not args.words else journal.shared().resolve(args.words[0]).id
    if args.follow:
        from .logfollow import follow

        return follow(id, as_json=args.json)
    tree = recorded(journal.shared(), id)
    if args.json:
        say_json(_everything(tree))
        return 0
    for line in tree_lines(tree, full=args.full):
        say_line(line)
    return 0


def say_line(line: Line) -> None:
    """A line of what models and sandboxes said, without what would steer a terminal."""
    tone = _TONES.get(line.tone)
    text = visible(line.text)
    say(text if tone is None else paint(text, tone, wanted=colourful()))


def _newest() -> str:
    newest = journal.shared().runs(limit=1)
    if not newest:
        raise UsageError("There are no runs yet; `atoll agent` and `atoll ask` make some.")
    return newest[0].id


def _export(args: Namespace) -> int:
    from .logexport import export

    _expect(args, 1, 1, "atoll logs export ID [--format FORMAT] [-o FILE]")
    export(recorded(journal.shared(), _resolved(args)), args.format, args.output, content=args.content)
    return 0


def _pictures(args: Namespace) -> int:
    from .logexport import write_pictures

    _expect(args, 2, 2, "atoll logs pictures ID DIR")
    written = write_pictures(recorded(journal.shared(), _resolved(args)), args.words[1])
    for path in written:
        say(path)
    if not written:
        complain("No step of this run has made a picture.")
    return 0


def _delete(args: Namespace) -> int:
    if (args.older is None) == (not args.words):
        raise UsageError("Write it as `atoll logs delete ID ...`, or `atoll logs delete --older 30d`.")
    if args.older is None:
        given = list(args.words)
    else:
        before = time.time() - duration(args.older, "--older")
        given = [run.id for run in journal.shared().runs() if run.updated < before and not journal.is_held(run)]
    gone = [_delete_one(each) for each in given]
    return 0 if all(gone) else FAILED


def _delete_one(prefix: str) -> bool:
    from ..agent.forgetting import forget

    kept = journal.shared()
    try:
        id = kept.resolve(prefix).id
        forget(kept, id)
    except AtollError as error:
        complain(str(error))
        return False
    say(id)
    return True


_ACTIONS: dict[str, Callable[[Namespace], int]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "pictures": _pictures,
    "delete": _delete,
}


def _resolved(args: Namespace) -> str:
    return journal.shared().resolve(args.words[0]).id


def _expect(args: Namespace, least: int, most: int, usage: str) -> None:
    if not least <= len(args.words) <= most:
        raise UsageError(f"Write it as `{usage}`.")


def _row(tree: Recorded) -> list[str]:
    spent = spent_by(tree)
    return [
        tree.run.id,
        tree.state,
        span(time.time() - tree.run.created),
        str(len(tree.steps)),
        str(spent.tokens),
        "?" if spent.cost is None else f"${spent.cost:.4f}",
        visible(tree.model),
        visible(brief(tree.task, 60)),
    ]


def _summary(tree: Recorded) -> dict[str, Any]:
    from ..agent.jsonl import end_line

    run = tree.run
    forked = None if run.origin is None else {"run": run.origin, "step": run.origin_number}
    return {
        "id": run.id,
        **end_line(tree),
        "type": run.kind,
        "created": run.created,
        "updated": run.updated,
        "model": tree.model,
        "task": tree.task,
        "steps": len(tree.steps),
        "sandbox": run.sandbox,
        "forked_from": forked,
    }


def _everything(tree: Recorded) -> dict[str, Any]:
    from ..agent.jsonl import step_line
    from ..agent.records import whole

    parts = [_everything(part) for part in tree.parts]
    value: dict[str, Any] = whole({**_summary(tree), "steps": [step_line(step) for step in tree.steps], "parts": parts})
    return value
