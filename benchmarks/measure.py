"""Timing, and the table that everything ends in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

# The virtual environment's Python: a system-wide one may load much more at its start, and would flatter us.
BARE = [sys.executable, "-c", "pass"]
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *BARE]


class Figure(NamedTuple):
    """A line of the table: what was seen, against what, and what was promised of the ratio (or the value)."""

    what: str
    seen: float
    unit: str
    peer: str
    peer_seen: float | None
    limit: float | None

    @property
    def ratio(self) -> float | None:
        return self.seen / self.peer_seen if self.peer_seen else None

    @property
    def judged(self) -> float:
        return self.ratio if self.ratio is not None else self.seen

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return "shown"
        return "met" if self.judged <= self.limit else "MISSED"


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def run_quietly(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())


def clean_environment() -> dict[str, str]:
    """As an installed program has it: compiled modules may be written and read."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def interleaved(rounds: int, pause: float, *actions: Callable[[], float]) -> list[list[float]]:
    """Measure several things in turn, so that noise of the machine meets all alike."""
    seen: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for values, action in zip(seen, actions, strict=True):
            values.append(action())
            time.sleep(pause)
    return seen


def table(figures: list[Figure]) -> str:
    rows = [("what", "seen", "peer or floor", "peer's", "ratio", "at most", "")]
    rows += [
        (
            f.what,
            f"{f.seen:.2f} {f.unit}",
            f.peer,
            "" if f.peer_seen is None else f"{f.peer_seen:.2f} {f.unit}",
            "" if f.ratio is None else f"{f.ratio:.2f} x",
            "" if f.limit is None else f"{f.limit:g}{' x' if f.ratio is not None else ' ' + f.unit}",
            f.verdict,
        )
        for f in figures
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
