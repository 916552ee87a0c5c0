"""The registry: which sandboxes exist, for every process of this user to see.

It says what was last known. Whether a sandbox still runs is for its driver to judge.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import procid
from ..errors import InvalidInput, SandboxNotFound, StoreError
from ..home import state_dir
from ..policy.labels import labels_match
from ..policy.spec import spec_to_json
from ..types import Denial, Handle, Spec, Status
from . import denials
from .database import Database
from .rows import INSERT, MIGRATIONS, SELECT, Row, decode, decode_matching, dump, encode, maker, matching

__all__ = ["Reservation", "Row", "Store", "shared"]

_RESERVATIONS = "SELECT id, labels, maker_pid, maker_started, maker_boot FROM sandboxes WHERE spec IS NULL"
_SET_STATUS = """UPDATE sandboxes SET status = ?, maker_pid = ?, maker_started = ?, maker_boot = ?
    WHERE id = ? AND spec IS NOT NULL"""
_SET_EXPIRES = "UPDATE sandboxes SET expires = ? WHERE id = ? AND spec IS NOT NULL"
_SET_HANDLE = "UPDATE sandboxes SET handle = ? WHERE id = ? AND spec IS NOT NULL"
_SET_SPEC = "UPDATE sandboxes SET spec = ?, handle = ? WHERE id = ? AND spec IS NOT NULL"
_RESERVE = """INSERT INTO sandboxes (id, driver, status, labels, created, maker_pid, maker_started, maker_boot)
    VALUES (?, '', 'creating', ?, ?, ?, ?, ?)"""


class Reservation(NamedTuple):
    """The right to make the sandbox with these labels. Without a token a living process has it: ask again soon."""

    labels: Mapping[str, str]
    token: str | None

    @property
    def mine(self) -> bool:
        return self.token is not None


class Store:
    """The registry in one file. Opened on first use; every method may raise `StoreError`."""

    def __init__(self, path: str) -> None:
        self._db = Database(path, MIGRATIONS)

    def close(self) -> None:
        self._db.close()

    def add(
        self,
        id: str,
        driver: str,
        status: Status,
        labels: Mapping[str, str],
        spec: Spec,
        handle: Handle | None,
        created: float,
        expires: float | None,
    ) -> None:
        """Register a sandbox.

        Raises:
            InvalidInput: one with this id is there already.
        """
        values = encode(id, driver, status, labels, spec, handle, created, expires)
        with self._db.transaction() as db:
            if db.execute("SELECT 1 FROM sandboxes WHERE id = ?", (id,)).fetchone():
                raise InvalidInput(f"A sandbox with the id {id!r} is registered already.")
            db.execute(INSERT, values)

    def get(self, id: str) -> Row:
        """Raises SandboxNotFound."""
        rows = self._db.read(f"{SELECT} AND id = ?", (id,))
        if not rows:
            raise _not_found(id)
        return decode(rows[0])

    def find(self, labels: Mapping[str, str]) -> list[Row]:
        """The sandboxes that carry all of `labels`, newest first."""
        sql, values = matching(labels)
        return decode_matching(self._db.read(sql, values), labels)

    def all(self) -> list[Row]:
        """Every sandbox, newest first."""
        return self.find({})

    def resolve(self, prefix: str) -> Row:
        """The one sandbox whose id is `prefix` or begins with it.

        Raises:
            SandboxNotFound: there is none.
            InvalidInput: there are several, or the prefix is empty.
        """
        if not prefix:
            raise InvalidInput("The id is empty; give an id or the beginning of one.")
        rows = self._db.read(f"{SELECT} AND substr(id, 1, ?) = ? ORDER BY id", (len(prefix), prefix))
        if not rows:
            raise _not_found(prefix)
        if len(rows) > 1 and rows[0][0] != prefix:
            ids = [str(row[0]) for row in rows]
            more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
            raise InvalidInput(
                f"{prefix!r} is the beginning of several ids: {', '.join(ids[:5])}{more}. Give more of it."
            )
        return decode(rows[0])

    def set_status(self, id: str, status: Status) -> None:
        """Raises SandboxNotFound."""
        self._update(_SET_STATUS, (status, *maker(status), id))

    def set_expires(self, id: str, expires: float | None) -> None:
        """Raises SandboxNotFound."""
        self._update(_SET_EXPIRES, (expires, id))

    def set_handle(self, id: str, handle: Handle) -> None:
        """Raises SandboxNotFound."""
        self._update(_SET_HANDLE, (dump(handle._asdict()), id))

    def set_spec(self, id: str, spec: Spec, handle: Handle) -> None:
        """Raises SandboxNotFound."""
        self._update(_SET_SPEC, (dump(spec_to_json(spec)), dump(handle._asdict()), id))

    def remove(self, id: str) -> bool:
        """Forget a sandbox; whether there was anything to forget."""
        return self._db.write("DELETE FROM sandboxes WHERE id = ? AND spec IS NOT NULL", (id,)) > 0

    def reserve(self, labels: Mapping[str, str], live: Callable[[Row], bool]) -> Row | Reservation:
        """The atomic half of get_or_create: of many callers at once, one gets the right to make the sandbox.

        Gives the newest row that carries all of `labels` and that `live` accepts; else a reservation, whose
        `mine` says whether the caller now makes the sandbox (then `fulfil` or `release` it) or should ask
        again. A reservation whose maker has died is taken over. `live` is called outside the transaction.
        """
        verdicts: dict[str, bool] = {}
        sql, values = matching(labels)
        while True:
            with self._db.transaction() as db:
                rows = decode_matching(db.execute(sql, values).fetchall(), labels)
                chosen = next((row for row in rows if verdicts.get(row.id, True)), None)
                if chosen is None:
                    return _reserve_now(db, labels)
            if chosen.id in verdicts:
                return chosen
            verdicts[chosen.id] = live(chosen)

    def fulfil(
        self,
        reservation: Reservation,
        id: str,
        driver: str,
        status: Status,
        labels: Mapping[str, str],
        spec: Spec,
        handle: Handle | None,
        created: float,
        expires: float | None,
    ) -> None:
        """Put the sandbox that was made in the place of its reservation, in one step.

        Raises:
            StoreError: the reservation is no longer held; the sandbox must be torn down.
        """
        values = encode(id, driver, status, labels, spec, handle, created, expires)
        with self._db.transaction() as db:
            if not _drop_reservation(db, reservation):
                raise StoreError(f"The reservation for {dict(reservation.labels)} is no longer held.")
            db.execute(INSERT, values)

    def release(self, reservation: Reservation) -> None:
        """Give up a reservation, so that the next caller may make the sandbox. Doing so twice is harmless."""
        with self._db.transaction() as db:
            _drop_reservation(db, reservation)

    def note_denials(self, id: str, refused: Sequence[Denial]) -> None:
        """Keep what was refused to a sandbox, for as long as it is registered."""
        denials.add(self._db, id, refused)

    def denials(self, id: str, since: float = 0.0) -> tuple[list[Denial], int]:
        """What was refused to it since a moment, oldest first, and how many of all are kept no more.

        Raises:
            SandboxNotFound: it is not registered.
        """
        found = denials.find(self._db, id, since)
        if found is None:
            raise _not_found(id)
        return found

    def _update(self, sql: str, values: tuple[Any, ...]) -> None:
        if not self._db.write(sql, values):
            raise _not_found(values[-1])


def shared() -> Store:
    """This process's store of the state directory.

    Raises:
        StoreError: the state directory is not to be trusted.
    """
    path = os.path.join(state_dir(), "registry.db")
    return _shared.setdefault(path, _shared.get(path) or Store(path))


_shared: dict[str, Store] = {}


def _reserve_now(db: sqlite3.Connection, labels: Mapping[str, str]) -> Reservation:
    """Inside a transaction: wait for a living maker, else take its place. Dead makers' rows go on the way."""
    taken = False
    for token, stored, *made_by in db.execute(_RESERVATIONS).fetchall():
        if not procid.is_alive(procid.ProcessId(*made_by)):
            db.execute("DELETE FROM sandboxes WHERE id = ?", (token,))
        elif labels_match(json.loads(stored), labels):
            taken = True
    if taken:
        return Reservation(labels, None)
    token = f"reserved-{os.urandom(8).hex()}"
    db.execute(_RESERVE, (token, dump(dict(labels)), time.time(), *procid.current()))
    return Reservation(labels, token)


def _drop_reservation(db: sqlite3.Connection, reservation: Reservation) -> bool:
    """Whether it was there to be dropped."""
    return db.execute("DELETE FROM sandboxes WHERE id = ? AND spec IS NULL", (reservation.token,)).rowcount > 0


def _not_found(id: str) -> SandboxNotFound:
    return SandboxNotFound(f"No sandbox has the id {id!r}.", hint="`atoll list` shows those that exist.")
