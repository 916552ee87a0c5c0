"""Whether a change may go into the source: what the rules refuse, and what the source itself stands against."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from ..types import Change
from .base import Record
from .comparing import Difference
from .content import link_content, read_content
from .links import objection
from .looking import Look
from .quoting import quoted
from .selection import parents
from .traps import completes, springs, starts, unseen
from .tree import is_too_deep, type_of

_SPECIAL = "It is a pipe, a socket or a device, which is never applied."
_PROTECTED = "The source has a pipe, a socket or a device there, which is never touched."
_UNREADABLE = "Its content cannot be read, or is one large hole."
_BITS = "Set-user-id, set-group-id and sticky bits are never applied."
_TRAP = "git would run commands from it on this machine, so it is never applied; look at it, and bring it over by hand."
_STARTS = (
    "Editors, assistants, shells or Python would run commands from it on this machine by themselves, so it is never "
    "applied; look at it, and bring it over by hand."
)
_NEW_HIDDEN = (
    "The source has no {} yet, and tools may run commands from hidden files; look at it, and say new_hidden=True "
    "(`atoll apply --new-hidden`) to take it over."
)
_STATE = "The state directory of atoll lies there, which no sandbox changes."
# Time stamps of files lag behind the clock by a tick.
_TICK = 20_000_000


def refusal(
    look: Look, difference: Difference, reviewed: Mapping[str, Change] | None, *, new_hidden: bool
) -> str | None:
    """Why the rules refuse a change, whatever the source has; None if they do not."""
    change = difference.change
    directory = change.type == "directory"
    if is_too_deep(change.path):
        return "It is nested too deeply."
    if look.judge.is_reserved(change.path):
        return "Its name is one that atoll keeps for itself."
    if look.judge.is_ignored(change.path, directory):
        return "It is ignored."
    if change.level != "write":
        return f"The rules give it the level {change.level!r}; only what has 'write' is applied."
    return (
        _misplaced(look, change)
        or _unfit(look, difference)
        or _unreviewed(change, reviewed)
        or (None if new_hidden else _hidden(look, change))
    )


def _misplaced(look: Look, change: Change) -> str | None:
    if look.source.is_elsewhere(change.path):
        return "Another file system is mounted there in the source, which the sandbox never saw."
    return _STATE if look.is_state(change.path) else None


def _hidden(look: Look, change: Change) -> str | None:
    if change.kind == "deleted":
        return None
    name = unseen(change.path, lambda path: look.source.stat(path) is not None)
    return None if name is None else _NEW_HIDDEN.format(quoted(name))


def _unfit(look: Look, difference: Difference) -> str | None:
    change = difference.change
    if difference.old is not None and type_of(difference.old.st_mode) == "other":
        return _PROTECTED
    if change.kind == "deleted":
        return None
    return _unfit_to_come(look, difference)


def _unfit_to_come(look: Look, difference: Difference) -> str | None:
    change = difference.change
    trap = _trap(look, change)
    if trap is not None:
        return trap
    if change.type == "other" and difference.new is not None:
        return _SPECIAL
    if change.type != "directory" and change.digest is None:
        return _UNREADABLE
    if change.kind == "mode" and not ((change.old_mode or 0) ^ (change.new_mode or 0)) & 0o777:
        return _BITS
    return _link_refusal(look, change) if change.type == "symlink" else None


def _trap(look: Look, change: Change) -> str | None:
    directory = change.type == "directory"
    if springs(change.path, directory=directory, link=change.type == "symlink"):
        return _TRAP
    if completes(change.path, look.may_be_there):
        return _TRAP
    return _STARTS if starts(change.path, directory=directory) else None


def _link_refusal(look: Look, change: Change) -> str | None:
    try:
        target = look.merged.link_target(change.path)
    except OSError:
        return _UNREADABLE
    if link_content(target).digest != change.digest:
        return "It changes while it is applied."
    return objection(look.source, change.path, target)


def _unreviewed(change: Change, reviewed: Mapping[str, Change] | None) -> str | None:
    if reviewed is None:
        return None
    seen = reviewed.get(change.path)
    if seen is None:
        return "It was not reviewed."
    if (seen.kind, seen.type, seen.digest, seen.new_mode) != (change.kind, change.type, change.digest, change.new_mode):
        return "It has changed since it was reviewed."
    return None


def conflict(look: Look, difference: Difference) -> str | None:
    """How the source has moved on at a path since the sandbox started; None if it has not, for certain."""
    path, old = difference.change.path, difference.old
    if look.base.knows(path):
        return _against_record(look, path, look.base.record(path), old)
    if old is None or stat.S_ISDIR(old.st_mode) or _is_older(look, path, old):
        return None
    return "Nothing is known of what the source had there when the sandbox started."


def _against_record(look: Look, path: str, record: Record | None, old: os.stat_result | None) -> str | None:
    if record is None:
        if old is not None:
            return "It has appeared in the source since the sandbox started."
        return _lost_directory(look, path)
    if old is None:
        return "It has been removed from the source since the sandbox started."
    if record.is_same(old) or _has_same_content(look, path, record, old):
        return None
    return "It has changed in the source since the sandbox started."


def _lost_directory(look: Look, path: str) -> str | None:
    for above in parents(path):
        known = look.base.record(above)
        if known is None or known.type != "directory":
            continue
        found = look.source.stat(above)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return "Its directory has been removed from the source since the sandbox started."
    return None


def _has_same_content(look: Look, path: str, record: Record, old: os.stat_result) -> bool:
    if record.digest is None or record.type != type_of(old.st_mode):
        return False
    try:
        if record.type == "symlink":
            return link_content(look.source.link_target(path)).digest == record.digest
        if record.mode != stat.S_IMODE(old.st_mode) or record.size != old.st_size or record.type != "file":
            return False
        fd = look.source.open_file(path)
    except OSError:
        return False
    try:
        content = read_content(fd)
        return content.steady and content.digest == record.digest
    except OSError:
        return False
    finally:
        os.close(fd)


def _is_older(look: Look, path: str, old: os.stat_result) -> bool:
    """Whether neither it nor a directory above it, which may have been renamed, has changed since the start.

    With more than one layer the sandbox may have begun with a snapshot, which saw the source earlier.
    """
    if look.stage.started is None or len(look.stage.uppers) != 1:
        return False
    latest = look.stage.started - _TICK
    above = [look.source.stat(place) for place in ("", *parents(path))]
    return old.st_ctime_ns < latest and all(found is not None and found.st_ctime_ns < latest for found in above)
