"""One SQLite file, shared by many processes and threads: opened late, migrated once, safe across fork.

SQLite forbids to carry an open connection into a forked child: the child would own none of the locks
that its copy believes in. So every connection is closed before a fork and opened again on next use.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import time
from _thread import allocate_lock
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import StoreError

BUSY_SECONDS = 10.0
_PRIVATE, _OTHERS = 0o600, 0o077

Migrations = Sequence[Sequence[str]]


class Database:
    """Migration n takes the schema from version n to n + 1; the file's `user_version` says where it is."""

    def __init__(self, path: str, migrations: Migrations) -> None:
        self.path = path
        self._migrations = migrations
        self._connection: sqlite3.Connection | None = None

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one query.

        Raises:
            StoreError: the file cannot be used; also from every other method.
        """
        with _gate, self._explained():
            return self._open().execute(sql, values).fetchall()

    def write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """One change, committed; the number of rows that it touched."""
        with _gate, self._explained():
            return self._open().execute(sql, values).rowcount

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Reads and changes that no other process comes between. The block must not wait for anything."""
        with _gate, self._explained():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Give back the descriptors. The next use opens the file again."""
        with _gate:
            self.drop()

    def drop(self) -> None:
        """`close`, for those who hold the gate."""
        connection, self._connection = self._connection, None
        _in_use.discard(self)
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Never use nor close a connection that came along through a fork."""
        if self._connection is not None:
            _abandoned.append(self._connection)
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
            _in_use.add(self)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._keep_private()
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            if self._version(connection) != len(self._migrations):
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _keep_private(self) -> None:
        """It holds the environments of sandboxes. What SQLite puts beside it gets the mode that it has.

        It is never opened here when it is there: to close it would give up the locks that this process has on it.
        """
        with suppress(OSError):  # which SQLite finds, too, and explains
            try:
                if os.stat(self.path).st_mode & _OTHERS:
                    for path in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
                        with suppress(FileNotFoundError):
                            os.chmod(path, _PRIVATE)
            except FileNotFoundError:
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))

    def _version(self, connection: sqlite3.Connection) -> int:
        """The schema's version, after a look that it is not from the future."""
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(self._migrations):
            raise StoreError(
                f"The registry {self.path} was written by a newer atoll "
                f"(schema {version}, this one knows {len(self._migrations)}).",
                hint="Upgrade atoll, or set ATOLL_HOME to another directory.",
            )
        return version

    def _migrate(self, connection: sqlite3.Connection) -> None:
        _set_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statements in self._migrations[self._version(connection) :]:
                for statement in statements:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"The registry {self.path} cannot be used: {error}.", hint=_hint(error)) from error


def _set_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for its busy timeout here when two processes make the same file at once."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _primary_code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _hint(error: sqlite3.Error) -> str | None:
    return {
        sqlite3.SQLITE_BUSY: f"Another process has held it for {BUSY_SECONDS:.0f} seconds; try again.",
        sqlite3.SQLITE_NOTADB: "Move the file away; atoll makes a new one and forgets the sandboxes in it.",
        sqlite3.SQLITE_CORRUPT: "Move the file away; atoll makes a new one and forgets the sandboxes in it.",
        sqlite3.SQLITE_FULL: "Free some disk space.",
        sqlite3.SQLITE_READONLY: "Make the file and its directory writable, or set ATOLL_HOME to another directory.",
        sqlite3.SQLITE_CANTOPEN: "Check that the directory exists and is writable, or set ATOLL_HOME to another one.",
    }.get(_primary_code(error))


# One for all: at a fork it must be known that no thread is anywhere inside SQLite.
_gate = allocate_lock()
_in_use: set[Database] = set()
_abandoned: list[sqlite3.Connection] = []


class _Fork:
    """Closes every connection before a fork and lets everyone in again after it."""

    def __init__(self) -> None:
        self._holds_gate = False

    def before(self) -> None:
        # A thread that dawdles inside SQLite must not stop the fork for ever; the child then abandons its copy.
        self._holds_gate = _gate.acquire(timeout=BUSY_SECONDS)
        if self._holds_gate:
            for database in list(_in_use):
                database.drop()

    def after_in_parent(self) -> None:
        if self._holds_gate:
            _gate.release()

    def after_in_child(self) -> None:
        global _gate  # noqa: PLW0603 - the old one may be held by a thread that this process does not have
        _gate = allocate_lock()
        for database in _in_use:
            database.abandon()
        _in_use.clear()


def _close_all() -> None:
    for database in list(_in_use):
        database.close()


_fork = _Fork()
os.register_at_fork(before=_fork.before, after_in_parent=_fork.after_in_parent, after_in_child=_fork.after_in_child)
atexit.register(_close_all)
