"""What was refused to the sandboxes, as far as a process outside their walls has seen it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..types import Denial
from .database import Database

MOST = 10_000
"""How many are kept of one sandbox; the newest."""

MOST_TEXT = 4096

# They are numbered from 1 on, so the first that is left tells how many are not. Paths may hold any byte.
MIGRATION = (
    """CREATE TABLE denials (
        sandbox TEXT NOT NULL, number INTEGER NOT NULL, time REAL NOT NULL, path BLOB NOT NULL,
        operation TEXT NOT NULL, source TEXT NOT NULL, process BLOB, PRIMARY KEY (sandbox, number)) WITHOUT ROWID""",
    """CREATE TRIGGER denials_end AFTER DELETE ON sandboxes
        BEGIN DELETE FROM denials WHERE sandbox = OLD.id; END""",
)

_KNOWN = "SELECT 1 FROM sandboxes WHERE id = ? AND spec IS NOT NULL"
_LAST = "SELECT coalesce(max(number), 0) FROM denials WHERE sandbox = ?"
_FIRST = "SELECT coalesce(min(number), 1) FROM denials WHERE sandbox = ?"
_INSERT = """INSERT INTO denials (sandbox, number, time, path, operation, source, process)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_TRIM = "DELETE FROM denials WHERE sandbox = ? AND number <= ?"
_SELECT = """SELECT time, path, operation, source, process FROM denials
    WHERE sandbox = ? AND time >= ? ORDER BY number"""


def add(database: Database, sandbox: str, denials: Sequence[Denial]) -> None:
    """Keep some more. Of a sandbox that is not registered any more nothing is kept."""
    with database.transaction() as db:
        if not db.execute(_KNOWN, (sandbox,)).fetchone():
            return
        last = db.execute(_LAST, (sandbox,)).fetchone()[0]
        rows = [(sandbox, last + place, *_encode(each)) for place, each in enumerate(denials, 1)]
        db.executemany(_INSERT, rows[-MOST:])
        db.execute(_TRIM, (sandbox, last + len(rows) - MOST))


def find(database: Database, sandbox: str, since: float) -> tuple[list[Denial], int] | None:
    """Those since a moment, oldest first, and how many of all are not kept. None for one that is not registered."""
    if not database.read(_KNOWN, (sandbox,)):
        return None
    first = database.read(_FIRST, (sandbox,))[0][0]
    return [_decode(row) for row in database.read(_SELECT, (sandbox, since))], first - 1


def _encode(denial: Denial) -> tuple[Any, ...]:
    process = None if denial.process is None else os.fsencode(denial.process)[:MOST_TEXT]
    return denial.time, os.fsencode(denial.path)[:MOST_TEXT], denial.operation, denial.source, process


def _decode(row: tuple[Any, ...]) -> Denial:
    time, path, operation, source, process = row
    return Denial(time, os.fsdecode(path), operation, source, None if process is None else os.fsdecode(process))
