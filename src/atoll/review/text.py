"""Changes as text for people, in git's form. Names and contents come from hostile code: what could command a terminal,
or make a line look like another one, is shown as an escape instead of being sent."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Change
from .quoting import quoted
from .traps import springs, starts

_COLOURS = {"head": "1", "hunk": "36", "+": "32", "-": "31", "note": "33"}
_BITS = {"file": 0o100000, "directory": 0o040000, "other": 0}
_NARROWEST = 10


def format_diff(changes: Sequence[Change], color: bool = False) -> str:
    """Unified diffs of all changes, one after the other; "" for none."""
    lines: list[str] = []
    for change in changes:
        lines.extend(_described(change, color))
    return "\n".join(lines)


def _described(change: Change, color: bool) -> list[str]:
    old, new = quoted(f"a/{change.path}"), quoted(f"b/{change.path}")
    if change.type == "directory":
        # git knows no directories, and would make a file.
        return [_paint(f"# {quoted(change.path)}: {_note(change)}, {change.kind}", "head", color)]
    note = _note(change)
    # Before the head: git would take it for the end of one.
    lines = [_paint(f"# {quoted(change.path)}: {note}", "note", color)] if note else []
    lines.append(_paint(f"diff --git {old} {new}", "head", color))
    lines.extend(_paint(line, "head", color) for line in _head(change))
    if change.diff:
        lines.extend(_body(change.diff, color))
    elif change.diff is None and change.type in ("file", "symlink") and change.kind != "mode":
        lines.append(f"Binary files {_side(old, change.old_mode)} and {_side(new, change.new_mode)} differ")
    return lines


def _side(name: str, mode: int | None) -> str:
    return "/dev/null" if mode is None else name


def _head(change: Change) -> list[str]:
    old, new = _mode(change, change.old_mode), _mode(change, change.new_mode)
    if change.kind == "added":
        return [f"new file mode {new}"]
    if change.kind == "deleted":
        return [f"deleted file mode {old}"]
    return [f"old mode {old}", f"new mode {new}"] if old != new else []


def _mode(change: Change, bits: int | None) -> str:
    if bits is not None and change.type == "symlink":
        return "120000"
    return "none" if bits is None else f"{_BITS[change.type] | bits:06o}"


def _note(change: Change) -> str:
    """What a reader must know, and no diff says."""
    notes = []
    if change.type != "file":
        notes.append({"directory": "a directory", "symlink": "a symbolic link"}.get(change.type, "no regular file"))
    if change.new_mode is not None and change.new_mode & 0o7000:
        notes.append("its set-user-id, set-group-id or sticky bit is not applied")
    if change.level != "write":
        notes.append(f"not applied: its level is {change.level!r}")
    elif _is_never_applied(change):
        notes.append(
            "never applied" if change.type == "other" else "never applied: tools run commands from such a file"
        )
    return "; ".join(notes)


def _is_never_applied(change: Change) -> bool:
    """Whether its name or kind alone says so. What else `apply` refuses depends on what the source has by then."""
    if change.kind == "deleted":
        return False
    directory, link = change.type == "directory", change.type == "symlink"
    return (
        change.type == "other"
        or springs(change.path, directory=directory, link=link)
        or starts(change.path, directory=directory)
    )


def _body(diff: str, color: bool) -> list[str]:
    lines = diff.split("\n")
    if not lines[-1]:
        lines.pop()
    shown = []
    for number, line in enumerate(lines):
        kind = "head" if number < 2 else "hunk" if line.startswith("@@") else line[:1]
        shown.append(_paint(visible(line), kind, color))
    return shown


def format_stat(changes: Sequence[Change], color: bool = False, width: int = 80) -> str:
    """A line for each change, with a bar for what was added and removed, and a sum; "" for no changes."""
    if not changes:
        return ""
    names = [quoted(change.path) for change in changes]
    longest = max(map(len, names))
    name_width = max(min(longest, width // 2), _NARROWEST)
    counts = [change.added_lines + change.removed_lines for change in changes]
    number_width = len(str(max(counts)))
    bar_width = max(width - name_width - number_width - 6, _NARROWEST)
    scale = min(1.0, bar_width / max(1, *counts))
    lines = [
        f" {_fitted(name, name_width)} | {_measure(change, number_width, scale, color)}".rstrip()
        for name, change in zip(names, changes, strict=True)
    ]
    return "\n".join([*lines, _sum(changes)])


def _fitted(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else "..." + name[3 - width :]


def _measure(change: Change, width: int, scale: float, color: bool) -> str:
    note = _remark(change)
    if change.diff is None and not change.added_lines + change.removed_lines:
        return note or f"Bin {change.size} bytes"
    bars = [
        _paint(sign * (max(1, round(count * scale)) if count else 0), sign, color)
        for sign, count in (("+", change.added_lines), ("-", change.removed_lines))
    ]
    total = str(change.added_lines + change.removed_lines).rjust(width)
    return f"{total} {''.join(bars)}{' ' if note else ''}{note}"


def _remark(change: Change) -> str:
    remarks = []
    if change.type == "directory":
        remarks.append(f"directory {change.kind}")
    elif change.type != "file":
        remarks.append(f"{'link' if change.type == 'symlink' else 'special file'} {change.kind}")
    elif change.kind == "mode" or (change.kind == "modified" and change.old_mode != change.new_mode):
        remarks.append(f"mode {change.old_mode or 0:o} -> {change.new_mode or 0:o}")
    if change.level != "write":
        remarks.append(f"not applied: level {change.level!r}")
    elif _is_never_applied(change):
        remarks.append("never applied")
    return f"({', '.join(remarks)})" if remarks else ""


def _sum(changes: Sequence[Change]) -> str:
    added = sum(change.added_lines for change in changes)
    removed = sum(change.removed_lines for change in changes)
    parts = [_counted(len(changes), "path") + " changed"]
    if added:
        parts.append(_counted(added, "insertion") + "(+)")
    if removed:
        parts.append(_counted(removed, "deletion") + "(-)")
    return " " + ", ".join(parts)


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def visible(line: str) -> str:
    """A line of which every sign that a terminal would not simply show is an escape. Tabs stay."""
    if line.isprintable():
        return line
    return "".join(sign if sign.isprintable() or sign == "\t" else ascii(sign)[1:-1] for sign in line)


def _paint(text: str, kind: str, color: bool) -> str:
    return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m" if color and text and kind in _COLOURS else text
