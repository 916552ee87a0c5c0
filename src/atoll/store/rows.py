"""Rows of the registry: from values to columns and back, and the queries that find them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import procid
from ..errors import StoreError
from ..policy.labels import labels_match
from ..policy.spec import spec_from_json, spec_to_json
from ..types import Handle, Spec, Status
from . import denials

# A row whose spec is NULL is a reservation and no sandbox yet.
# A new field of Spec needs a new migration, so that an older atoll refuses the file and does not misread it.
MIGRATIONS = (
    (
        """CREATE TABLE sandboxes (
            id TEXT PRIMARY KEY, driver TEXT NOT NULL, status TEXT NOT NULL, labels TEXT NOT NULL,
            spec TEXT, handle TEXT, created REAL NOT NULL, expires REAL,
            maker_pid INTEGER, maker_started INTEGER, maker_boot TEXT)""",
    ),
    (),  # Spec.packages
    denials.MIGRATION,  # and Spec.permissions, ignore, codebase, snapshot, audit
)

SELECT = """SELECT id, driver, status, labels, spec, handle, created, expires, maker_pid, maker_started, maker_boot
    FROM sandboxes WHERE spec IS NOT NULL"""
INSERT = """INSERT INTO sandboxes
    (id, driver, status, labels, spec, handle, created, expires, maker_pid, maker_started, maker_boot)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class Row(NamedTuple):
    """A sandbox as registered. `maker` is the process that makes it, while its status is "creating"."""

    id: str
    driver: str
    status: Status
    labels: Mapping[str, str]
    spec: Spec
    handle: Handle | None
    created: float
    expires: float | None
    maker: procid.ProcessId | None


def encode(
    id: str,
    driver: str,
    status: Status,
    labels: Mapping[str, str],
    spec: Spec,
    handle: Handle | None,
    created: float,
    expires: float | None,
) -> tuple[Any, ...]:
    """The values for `INSERT`."""
    stored = None if handle is None else dump(handle._asdict())
    spec_text = dump(spec_to_json(spec))
    return (id, driver, status, dump(dict(labels)), spec_text, stored, created, expires, *maker(status))


def decode(row: tuple[Any, ...]) -> Row:
    """The row that `SELECT` gave.

    Raises:
        StoreError: no atoll wrote it so.
    """
    id, driver, status, labels, spec, handle, created, expires, *made_by = row
    try:
        return Row(
            id,
            driver,
            status,
            json.loads(labels),
            spec_from_json(json.loads(spec)),
            None if handle is None else Handle(**json.loads(handle)),
            created,
            expires,
            None if made_by[0] is None else procid.ProcessId(*made_by),
        )
    except (ValueError, TypeError) as error:
        raise StoreError(f"The registry's row of the sandbox {id!r} cannot be read: {error}") from error


def matching(labels: Mapping[str, str]) -> tuple[str, list[str]]:
    """A query for the rows that carry all of `labels`, newest first.

    `dump` writes a pair in one way only, and a key holds no quote, so the pair is found as text.
    """
    pairs = [dump({key: value})[1:-1] for key, value in labels.items()]
    conditions = " AND instr(labels, ?) > 0" * len(pairs)
    return f"{SELECT}{conditions} ORDER BY created DESC, rowid DESC", pairs


def decode_matching(rows: Iterable[tuple[Any, ...]], labels: Mapping[str, str]) -> list[Row]:
    return [row for row in map(decode, rows) if labels_match(row.labels, labels)]


def dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def maker(status: Status) -> tuple[int | None, int | None, str | None]:
    """The columns that say who is at work on a sandbox that is not ready."""
    return procid.current() if status == "creating" else (None, None, None)
