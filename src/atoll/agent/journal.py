"""The journal of agents: what every run was asked, and each of its steps, before it happens and after.

A run goes on after a crash by going through its journal again: what has an outcome there is not done twice. Who may
write is decided by a fence: a number that grows whenever a process takes a run over. A process that comes back late
finds the fence higher than its own, and writes nothing more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import procid
from ..errors import Busy, InvalidInput, LeaseLost, TrajectoryNotFound
from ..home import state_dir
from ..store.database import Database
from .rows import MIGRATIONS, RUN, STEP, Run, Step, run_of, step_of

LEASE = 60.0
"""Seconds that a run is its process's own without a word. After that another may take it over."""

FINAL = frozenset(("completed", "limited", "failed", "cancelled"))

_INSERT_RUN = """INSERT INTO runs
    (id, kind, parent, parent_key, origin, origin_number, created, updated, state, settings)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?)"""
_BEGIN = """INSERT INTO steps (run, number, key, parent, kind, name, request, began)
    SELECT ?, (SELECT coalesce(max(number), 0) + 1 FROM steps WHERE run = ?), ?, ?, ?, ?, ?, ?
    WHERE EXISTS (SELECT 1 FROM runs WHERE id = ? AND fence = ?)
    ON CONFLICT (run, key) DO UPDATE SET tries = tries + 1
    RETURNING number"""
_END = """INSERT INTO outcomes (run, key, outcome, snapshot, ended)
    SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM runs WHERE id = ? AND fence = ?)"""
_UNDO = """DELETE FROM steps WHERE run = ? AND key = ?
    AND NOT EXISTS (SELECT 1 FROM outcomes WHERE run = ? AND key = ?)
    AND EXISTS (SELECT 1 FROM runs WHERE id = ? AND fence = ?)"""
_TAKE = """UPDATE runs SET fence = fence + 1, owner_pid = ?, owner_started = ?, owner_boot = ?, lease = ?,
    state = 'running', updated = ? WHERE id = ?"""
_RENEW = "UPDATE runs SET lease = ? WHERE id = ? AND fence = ?"
_RENEW_ALL = """UPDATE runs SET lease = ?
    WHERE owner_pid = ? AND owner_started = ? AND owner_boot = ? AND state = 'running'"""
_SANDBOX = "UPDATE runs SET sandbox = ? WHERE id = ? AND fence = ?"
_FINISH = """UPDATE runs SET state = CASE WHEN cancel THEN 'cancelled' ELSE ? END,
    result = ?, owner_pid = NULL, owner_started = NULL, owner_boot = NULL,
    lease = 0, updated = ? WHERE id = ? AND fence = ?"""
_RELEASE = "UPDATE runs SET owner_pid = NULL, lease = 0, result = ?, updated = ? WHERE id = ? AND fence = ?"
_COPY_STEPS = """INSERT INTO steps (run, number, key, parent, kind, name, request, began, tries)
    SELECT ?, number, key, parent, kind, name, request, began, tries FROM steps WHERE run = ? AND number <= ?"""
_COPY_OUTCOMES = """INSERT INTO outcomes (run, key, outcome, snapshot, ended)
    SELECT ?, o.key, o.outcome, o.snapshot, o.ended FROM outcomes o JOIN steps s ON s.run = o.run AND s.key = o.key
    WHERE o.run = ? AND s.number <= ?"""


_CANCELLED = "UPDATE runs SET state = 'cancelled', fence = fence + 1, result = ?, updated = ? WHERE id = ?"
_NOTHING = {"response": "", "error": "It was cancelled."}


class Hold(NamedTuple):
    """The right to write to a run. `clean` says that whoever had it before has surely ended."""

    run: str
    fence: int
    clean: bool


class Journal:
    """All runs of this user, in one file. Every method may raise `StoreError`."""

    def __init__(self, path: str) -> None:
        self._db = Database(path, MIGRATIONS)

    def close(self) -> None:
        self._db.close()

    def create(
        self,
        kind: str,
        settings: Mapping[str, Any],
        *,
        context: Any = None,
        parent: tuple[str, str] | None = None,
        id: str | None = None,
    ) -> str:
        """A run that waits for a process; its id. `parent` is the run and the step that it is a part of.

        One whose id is there already is left as it is: a step that is done again finds the run that it began.
        """
        now = time.time()
        chosen = id or f"tr-{os.urandom(8).hex()}"
        above, key = parent or (None, None)
        with self._db.transaction() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (chosen,)).fetchone() is None:
                db.execute(_INSERT_RUN, (chosen, kind, above, key, None, None, now, now, dump(settings)))
                if context is not None:
                    db.execute("INSERT INTO contexts (run, data) VALUES (?, ?)", (chosen, dump(context)))
        return chosen

    def claim(self, id: str, *, force: bool = False, changes: Mapping[str, Any] | None = None) -> Hold:
        """Take a run over, to go on with it.

        Args:
            changes: take the place of its settings of the same names. One that ended at a limit goes on with others.
            force: also from a process that lives, for parts of a run that the caller has taken over already.

        Raises:
            TrajectoryNotFound: there is none.
            InvalidInput: it has ended.
            Busy: another process works on it.
        """
        me = procid.current()
        with self._db.transaction() as db:
            run = _one(id, db.execute(f"{RUN} WHERE id = ?", (id,)).fetchall())
            if run.state in FINAL and not (run.state == "limited" and (changes or {}).get("limits")):
                more = "Go on with larger limits, or begin" if run.state == "limited" else "Begin"
                raise InvalidInput(
                    f"The run {id} has ended: it is {run.state}.",
                    hint=f"{more} another line after one of its steps: fork, or `atoll resume {id} --at N`.",
                )
            if run.parent is not None and not force:
                raise InvalidInput(f"{id} is a part of the run {run.parent}.", hint="Go on with that one.")
            alive = run.owner is not None and procid.is_alive(run.owner)
            if alive and run.lease > uptime() and not force:
                raise Busy(f"The process {run.owner.pid if run.owner else 0} works on the run {id}.")
            if run.cancel:  # and its process ended before it could
                db.execute(_CANCELLED, (dump(_NOTHING), time.time(), id))
            else:
                db.execute(_TAKE, (me.pid, me.started, me.boot, uptime() + LEASE, time.time(), id))
                if changes:
                    db.execute("UPDATE runs SET settings = ? WHERE id = ?", (dump({**run.settings, **changes}), id))
        if run.cancel:
            raise InvalidInput(f"The run {id} has ended: it is cancelled.")
        return Hold(id, run.fence + 1, clean=not alive)

    def renew(self, hold: Hold) -> None:
        """Keep a run for another while, with its parts and whatever else this process has.

        Raises:
            LeaseLost: it belongs to another process now.
        """
        self._fenced(hold, _RENEW, (uptime() + LEASE, hold.run, hold.fence))
        me = procid.current()
        self._db.write(_RENEW_ALL, (uptime() + LEASE, me.pid, me.started, me.boot))

    def is_cancelled(self, hold: Hold) -> bool:
        """Whether somebody wants it cancelled. Raises LeaseLost."""
        rows = self._db.read("SELECT cancel FROM runs WHERE id = ? AND fence = ?", (hold.run, hold.fence))
        if not rows:
            raise _lost(hold)
        return bool(rows[0][0])

    def begin(
        self, hold: Hold, key: str, kind: str, name: str, request: Mapping[str, Any], parent: str | None = None
    ) -> int:
        """Write that a step is about to happen; its number. One that was begun before keeps its number.

        Raises:
            LeaseLost: the run belongs to another process now, so the step must not happen.
        """
        values = (hold.run, hold.run, key, parent, kind, name, dump(request), time.time(), hold.run, hold.fence)
        with self._db.transaction() as db:
            rows = db.execute(_BEGIN, values).fetchall()
        if not rows:
            raise _lost(hold)
        return int(rows[0][0])

    def end(self, hold: Hold, key: str, outcome: Mapping[str, Any], snapshot: str | None = None) -> None:
        """Write what came of a step. Raises LeaseLost."""
        self._fenced(hold, _END, (hold.run, key, dump(outcome), snapshot, time.time(), hold.run, hold.fence))

    def undo(self, hold: Hold, key: str) -> None:
        """Forget a step that was begun, and then did not happen."""
        self._db.write(_UNDO, (hold.run, key, hold.run, key, hold.run, hold.fence))

    def set_sandbox(self, hold: Hold, sandbox: str | None) -> None:
        """Raises LeaseLost."""
        self._fenced(hold, _SANDBOX, (sandbox, hold.run, hold.fence))

    def set_settings(self, hold: Hold, settings: Mapping[str, Any]) -> None:
        """Raises LeaseLost."""
        self._fenced(
            hold, "UPDATE runs SET settings = ? WHERE id = ? AND fence = ?", (dump(settings), hold.run, hold.fence)
        )

    def finish(self, hold: Hold, state: str, result: Mapping[str, Any]) -> None:
        """Raises LeaseLost."""
        self._fenced(hold, _FINISH, (state, dump(result), time.time(), hold.run, hold.fence))

    def release(self, hold: Hold, result: Mapping[str, Any]) -> None:
        """Let a run go that is not at its end, so that any process may go on with it at once; `result` says why."""
        self._db.write(_RELEASE, (dump(result), time.time(), hold.run, hold.fence))

    def complain(self, id: str, error: str) -> None:
        """Write down why nobody works on a run, where nothing is written yet."""
        sql = "UPDATE runs SET result = ? WHERE id = ? AND result IS NULL AND owner_pid IS NULL"
        self._db.write(sql, (dump({"response": "", "error": error}), id))

    def request_cancel(self, id: str) -> bool:
        """Have a run cancelled: by its process, within moments, or here and now where it has none.

        Gives whether it was still to be cancelled. Raises TrajectoryNotFound, and InvalidInput for a part of a run that
        a process works on: a helper is cancelled with the run that it helps.
        """
        with self._db.transaction() as db:
            run = _one(id, db.execute(f"{RUN} WHERE id = ?", (id,)).fetchall())
            if run.parent is not None and is_held(run):
                raise InvalidInput(f"{id} is a part of the run {run.parent}.", hint="Cancel that one.")
            if run.state in FINAL:
                return False
            if is_held(run):
                db.execute("UPDATE runs SET cancel = 1 WHERE id = ?", (id,))
            else:
                known = {**_NOTHING, **(run.result or {}), "error": _NOTHING["error"]}
                db.execute(_CANCELLED, (dump(known), time.time(), id))
        return True

    def fork(self, id: str, at: int, changes: Mapping[str, Any]) -> str:
        """A run of its own that begins with the first steps of another, up to the number `at`; its id.

        `changes` take the place of settings of the same names. What was under way then is in doubt in the new run.

        Raises:
            TrajectoryNotFound: there is none.
            InvalidInput: it has no such step, or that step has no outcome yet.
        """
        new, now = f"tr-{os.urandom(8).hex()}", time.time()
        with self._db.transaction() as db:
            run = _one(id, db.execute(f"{RUN} WHERE id = ?", (id,)).fetchall())
            steps = [step_of(row) for row in db.execute(f"{STEP} WHERE s.run = ? ORDER BY s.number", (id,)).fetchall()]
            _check_point(id, steps, at)
            db.execute(_INSERT_RUN, (new, run.kind, None, None, id, at, now, now, dump({**run.settings, **changes})))
            db.execute("INSERT INTO contexts (run, data) SELECT ?, data FROM contexts WHERE run = ?", (new, id))
            db.execute(_COPY_STEPS, (new, id, at))
            db.execute(_COPY_OUTCOMES, (new, id, at))
        return new

    def run(self, id: str) -> Run:
        """Raises TrajectoryNotFound."""
        return _one(id, self._db.read(f"{RUN} WHERE id = ?", (id,)))

    def runs(self, *, limit: int | None = None) -> list[Run]:
        """Newest first, without those that are parts of others."""
        order = f"ORDER BY created DESC, rowid DESC LIMIT {-1 if limit is None else int(limit)}"
        return [run_of(row) for row in self._db.read(f"{RUN} WHERE parent IS NULL {order}")]

    def parts(self, id: str) -> list[Run]:
        """The runs that a run has begun itself, oldest first."""
        return [run_of(row) for row in self._db.read(f"{RUN} WHERE parent = ? ORDER BY created, rowid", (id,))]

    def context(self, id: str) -> Any:
        rows = self._db.read("SELECT data FROM contexts WHERE run = ?", (id,))
        return json.loads(rows[0][0]) if rows else None

    def steps(self, id: str, *, after: int = 0) -> list[Step]:
        """In the order in which they were begun, with the numbers above `after`."""
        return [
            step_of(row)
            for row in self._db.read(f"{STEP} WHERE s.run = ? AND s.number > ? ORDER BY s.number", (id, after))
        ]

    def resolve(self, prefix: str) -> Run:
        """The run whose id begins so, with or without "tr-"; newest runs come first in what is told of several.

        Raises:
            TrajectoryNotFound, InvalidInput: there is none, or there are several.
        """
        start = prefix if prefix.startswith("tr-") else f"tr-{prefix}"
        found = self._db.read(f"{RUN} WHERE substr(id, 1, ?) = ? ORDER BY created DESC LIMIT 6", (len(start), start))
        if len(found) > 1:
            ids = ", ".join(run_of(row).id for row in found[:5])
            raise InvalidInput(f"Several trajectories begin with {prefix!r}: {ids}.", hint="Give more of the id.")
        return _one(prefix, found)

    def snapshots(self, id: str) -> set[str]:
        """The snapshots of a run's steps that no other run has in its own."""
        own = {
            row[0]
            for row in self._db.read("SELECT snapshot FROM outcomes WHERE run = ? AND snapshot IS NOT NULL", (id,))
        }
        others = self._db.read("SELECT DISTINCT snapshot FROM outcomes WHERE run != ? AND snapshot IS NOT NULL", (id,))
        return own - {row[0] for row in others}

    def delete(self, id: str) -> None:
        """Forget a run with its steps, and nothing of its parts.

        Raises:
            TrajectoryNotFound: there is none.
            Busy: a process works on it.
        """
        with self._db.transaction() as db:
            run = _one(id, db.execute(f"{RUN} WHERE id = ?", (id,)).fetchall())
            if is_held(run):
                raise Busy(f"A process works on the run {id}; cancel it first.")
            for table, column in (("outcomes", "run"), ("steps", "run"), ("contexts", "run"), ("runs", "id")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ?", (id,))  # noqa: S608  # names from the line above

    def _fenced(self, hold: Hold, sql: str, values: Iterable[Any]) -> None:
        if not self._db.write(sql, tuple(values)):
            raise _lost(hold)


def is_held(run: Run) -> bool:
    """Whether a process works on it, as far as can be known."""
    return run.owner is not None and run.lease > uptime() and procid.is_alive(run.owner)


def state_of(run: Run) -> str:
    """ "waiting", "running", "interrupted", or how it ended."""
    if run.state == "running" and not is_held(run):
        return "interrupted"
    return run.state


def uptime() -> float:
    """Seconds since the machine was started, asleep or not: a clock that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def dump(value: Any) -> str:
    """JSON that SQLite takes: half a surrogate pair, which a model or a guest may send, stays an escape."""
    return json.dumps(value, separators=(",", ":"))


def _one(id: str, rows: list[Any]) -> Run:
    if not rows:
        raise TrajectoryNotFound(f"There is no trajectory {id!r}.", hint="`atoll logs` lists them.")
    return run_of(rows[0])


def _lost(hold: Hold) -> LeaseLost:
    return LeaseLost(f"Another process has taken over the run {hold.run}, or it was deleted.")


def _check_point(id: str, steps: list[Step], at: object) -> None:
    ended = [step.number for step in steps if step.outcome is not None]
    if not isinstance(at, int) or isinstance(at, bool) or (at != 0 and at not in ended):
        known = f"0 to {max(ended)}" if ended else "only 0, the beginning"
        raise InvalidInput(f"at is {at!r}, and {id} has no step of that number that has ended; there are {known}.")


_shared: dict[str, Journal] = {}


def shared() -> Journal:
    """The journal in the state directory, one for the whole process."""
    path = os.path.join(state_dir(), "agent.db")
    if path not in _shared:
        _shared[path] = Journal(path)
    return _shared[path]
