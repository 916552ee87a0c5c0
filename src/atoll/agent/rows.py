"""Rows of the journal, from columns to values."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..procid import ProcessId

MIGRATIONS = (
    (
        """CREATE TABLE runs (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, parent TEXT, parent_key TEXT, origin TEXT, origin_number INTEGER,
            created REAL NOT NULL, updated REAL NOT NULL, state TEXT NOT NULL, settings TEXT NOT NULL, sandbox TEXT,
            result TEXT, fence INTEGER NOT NULL DEFAULT 0, owner_pid INTEGER, owner_started INTEGER, owner_boot TEXT,
            lease REAL NOT NULL DEFAULT 0, cancel INTEGER NOT NULL DEFAULT 0)""",
        "CREATE INDEX runs_parent ON runs (parent)",
        """CREATE TABLE steps (
            run TEXT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, parent TEXT, kind TEXT NOT NULL,
            name TEXT NOT NULL, request TEXT NOT NULL, began REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 1,
            PRIMARY KEY (run, key)) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX steps_number ON steps (run, number)",
        """CREATE TABLE outcomes (
            run TEXT NOT NULL, key TEXT NOT NULL, outcome TEXT NOT NULL, snapshot TEXT, ended REAL NOT NULL,
            PRIMARY KEY (run, key)) WITHOUT ROWID""",
        "CREATE TABLE contexts (run TEXT PRIMARY KEY, data TEXT NOT NULL)",
    ),
)

RUN = """SELECT id, kind, parent, parent_key, origin, origin_number, created, updated, state, settings, sandbox, result,
    fence, owner_pid, owner_started, owner_boot, lease, cancel FROM runs"""
STEP = """SELECT s.run, s.key, s.number, s.parent, s.kind, s.name, s.request, s.began, s.tries, o.outcome, o.snapshot,
    o.ended FROM steps s LEFT JOIN outcomes o ON o.run = s.run AND o.key = s.key"""


class Run(NamedTuple):
    """A run as it is written. `parent` is the run, and `parent_key` its step, that this one is a part of; `origin` the
    run that it was forked from, at the step `origin_number`. `journal.state_of` tells what has become of it.
    """

    id: str
    kind: str
    parent: str | None
    parent_key: str | None
    origin: str | None
    origin_number: int | None
    created: float
    updated: float
    state: str
    settings: dict[str, Any]
    sandbox: str | None
    result: dict[str, Any] | None
    fence: int
    owner: ProcessId | None
    lease: float
    cancel: bool


class Step(NamedTuple):
    """A step as it is written. Without an `outcome` it is under way, or in doubt. `parent` is the key of the step that
    it happened in; `snapshot` what the sandbox was like after it; `tries` how often it was begun.

    Kinds: "model" (a call of the model), "tool" (one of the model's calls), "query" (a call of a model by code in a
    cell), "run" (a run of its own, by code in a cell), "check" (a validation).
    """

    run: str
    key: str
    number: int
    parent: str | None
    kind: str
    name: str
    request: dict[str, Any]
    began: float
    tries: int
    outcome: dict[str, Any] | None
    snapshot: str | None
    ended: float | None


def run_of(row: Any) -> Run:
    *facts, sandbox, result, fence, pid, started, boot, lease, cancel = row
    id, kind, parent, parent_key, origin, origin_number, created, updated, state, settings = facts
    owner = None if pid is None else ProcessId(pid, started, boot)
    return Run(
        id, kind, parent, parent_key, origin, origin_number, created, updated, state, json.loads(settings), sandbox,
        None if result is None else json.loads(result), fence, owner, lease, bool(cancel),
    )  # fmt: skip


def step_of(row: Any) -> Step:
    run, key, number, parent, kind, name, request, began, tries, outcome, snapshot, ended = row
    after = None if outcome is None else json.loads(outcome)
    return Step(run, key, number, parent, kind, name, json.loads(request), began, tries, after, snapshot, ended)
