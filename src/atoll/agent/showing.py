"""What came of something in a sandbox, as text for a model. Pure."""

from __future__ import annotations

from ..types import Completed, Execution, FileInfo, Match, Result
from .toolspec import MOST_IMAGES, Outcome

MOST_SHOWN = 12_000
"""Characters of one answer that a model gets to see."""


def clip(text: str, most: int = MOST_SHOWN) -> str:
    """The text, or its beginning and its end with a word on what is between."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def of_cell(execution: Execution, late: float | None = None) -> Outcome:
    """`late` are the seconds after which a cell was stopped that took too long."""
    parts = [execution.stdout]
    if execution.stderr:
        parts.append(f"[stderr]\n{execution.stderr}")
    images: list[tuple[str, str]] = []
    parts += [_shown(result, images) for result in execution.results]
    stopped = late is not None or execution.timed_out
    if stopped:
        after = f" after {late:g} s" if late is not None else ""
        parts.append(f"[stopped: it ran out of time{after}]")
    if execution.error is not None and not stopped:
        parts.append(f"[error]\n{execution.error.traceback.rstrip() or execution.error.value}")
    if execution.truncated:
        parts.append("[some output was dropped, since there was too much of it]")
    if execution.state_lost:
        parts.append("[the variables of earlier cells are lost]")
    failed = stopped or execution.error is not None
    return Outcome(_joined(parts) or "[done; it printed nothing]", failed, tuple(images))


def of_command(done: Completed, seconds: float) -> Outcome:
    parts = [done.stdout]
    if done.stderr:
        parts.append(f"[stderr]\n{done.stderr}")
    if done.truncated:
        parts.append("[some output was dropped, since there was too much of it]")
    if done.timed_out:
        parts.append(f"[stopped: it ran out of time after {seconds:g} s]")
    elif done.exit_code:
        parts.append(f"[exit code {done.exit_code}]")
    return Outcome(_joined(parts) or "[done; it printed nothing]", not done.success)


def of_listing(entries: list[FileInfo], most: int = 500) -> Outcome:
    lines = [f"{entry.path}{_mark(entry)}" for entry in entries[:most]]
    if len(entries) > most:
        lines.append(f"[… {len(entries) - most} more …]")
    return Outcome("\n".join(lines) or "[nothing there]")


def of_search(matches: list[Match], most: int = 200) -> Outcome:
    lines = [f"{match.path}:{match.line}: {match.text}" if match.line else match.path for match in matches[:most]]
    if len(matches) > most:
        lines.append(f"[… {len(matches) - most} more …]")
    return Outcome(clip("\n".join(lines)) or "[no match]")


def _joined(parts: list[str]) -> str:
    return clip("\n".join(part.rstrip("\n") for part in parts if part))


def _mark(entry: FileInfo) -> str:
    return {"directory": "/", "symlink": f" -> {entry.target}"}.get(entry.type, f"  {entry.size} bytes")


def _shown(result: Result, images: list[tuple[str, str]]) -> str:
    for mime in ("image/png", "image/jpeg"):
        data = result.data.get(mime)
        if isinstance(data, str):
            if sum(len(kept) for _, kept in images) + len(data) > MOST_IMAGES:
                return f"[a picture, {mime}, too large to keep]"
            images.append((mime, data))
            return f"[a picture, {mime}; the user can see it]"
    return result.markdown or result.text or f"[a value shown as {', '.join(result.formats)}]"
