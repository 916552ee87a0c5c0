"""What `diff`, `apply` and `discard` share: choosing, showing and asking. Hostile code chose what is shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ..review.quoting import quoted
from ..review.text import format_diff, format_stat
from ..review.traps import starts, unseen
from ..types import Applied, Change
from .output import STDOUT, colourful, complain, say, write
from .parsing import UsageError

_MOST_NAMED = 50


def say_diff(changes: Sequence[Change], *, plain: bool) -> None:
    if changes:
        say(format_diff(changes, colourful() and not plain))


def say_stat(changes: Sequence[Change], *, plain: bool) -> None:
    if changes:
        say(format_stat(changes, colourful() and not plain, _width()))


def _width() -> int:
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def say_safe_json(value: object) -> None:
    """JSON of which nothing can command a terminal: it has escapes for all but ASCII."""
    import json

    say(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def as_json(change: Change) -> dict[str, Any]:
    return change._asdict()


def check_asked(what: str) -> None:
    """Raises UsageError where nobody is there who could be asked. `what` is done with --yes alone, such as "apply"."""
    if sys.stdin is None or not (os.isatty(0) and os.isatty(1)):
        raise UsageError(f"Nobody can be asked here, without a terminal; `atoll {what} --yes` does not ask.")


def is_wanted(changes: Sequence[Change], question: str) -> bool:
    """Show what it is about, and ask. Nothing to show is nothing to ask: the answer is yes."""
    if not changes:
        return True
    say_stat(changes, plain=False)
    return says_yes(question)


def says_yes(question: str) -> bool:
    write(STDOUT, f"{question} [y/N] ".encode())
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def is_hidden_wanted(source: str | None, changes: Sequence[Change]) -> bool:
    """Ask about hidden names that the source does not have, if there are any."""
    if source is None:
        return False
    kept = [change for change in changes if change.kind != "deleted" and change.level == "write"]
    found = {unseen(change.path, lambda path: os.path.lexists(os.path.join(source, path))) for change in kept}
    names = sorted(name for name in found if name is not None and not starts(name, directory=False))
    if not names:
        return False
    say("New hidden names, of which tools may run what they say:")
    for name in names[:_MOST_NAMED]:
        say(f"  {quoted(name)}")
    if len(names) > _MOST_NAMED:
        say(f"  and {len(names) - _MOST_NAMED} more")
    return says_yes("Apply them, too?")


def report(done: Applied, on_conflict: str) -> None:
    """The applied paths on stdout; what was not applied, with the reasons, on stderr."""
    for path in done.applied:
        say(quoted(path))
    for path, reason in _some(done.rejected.items()):
        complain(f"{quoted(path)}: {reason}" if path else reason)
    for path, reason in _some(done.conflicts.items()):
        complain(f"{quoted(path)}: {reason}")
    if done.conflicts and not done.applied and on_conflict == "ask":
        complain("Nothing was applied. --on-conflict keep leaves these paths out; --on-conflict take overwrites them.")
    elif not done.applied and not done.rejected and not done.conflicts:
        complain("There is nothing to apply.")


def _some(entries: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = list(entries)
    if len(pairs) > _MOST_NAMED:
        more = len(pairs) - _MOST_NAMED
        return [*pairs[:_MOST_NAMED], ("", f"and {more} more; --json names them all.")]
    return pairs
