"""Sessions: sandboxes that carry a label of ours, so that they outlive the server and are found again."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from ..client import lifecycle
from ..client.links import Links
from ..errors import AtollError, Busy, InvalidInput, SandboxGone
from ..io import drive
from ..policy.text import shown
from ..sync.sandbox import Sandbox
from ..types import Info
from . import trust
from .calls import InterruptibleIO, current
from .locks import exclusive
from .settings import WALLS, Settings

LABEL = "atoll.mcp"
SPACE = "atoll.mcp.space"
DEFAULT = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RENEWAL = 0.05
"""Which part of its lifetime a session may lose before its use renews it: doing so takes longer than a cell."""


class Session:
    """One session as this server knows it.

    Attributes:
        fresh: whether it was made by the call that has it, and nobody was told so yet.
    """

    def __init__(self, name: str, sandbox: Sandbox, *, fresh: bool) -> None:
        self.name = name
        self.sandbox = sandbox
        self.core = sandbox._core  # noqa: SLF001  # the other half of the same class; calls are made on its coroutines
        self.links = self.core._links  # noqa: SLF001  # same
        self.fresh = fresh
        self.used = time.time()
        self.renewed = 0.0


class Sessions:
    """All sessions of one space. Safe for many threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._io = InterruptibleIO()
        self._known: dict[str, Session] = {}

    def labels(self, name: str) -> dict[str, str]:
        return {LABEL: name, SPACE: self._settings.space}

    def open(self, name: str, *, environment: str | None = None, source: str | None = None) -> Session:
        """The session of that name; it is made when there is none.

        Raises:
            InvalidInput: the name, the environment or the source cannot be, or the session has others already.
            AtollError: it cannot be made.
        """
        session = self._known.get(name)
        if session is None:
            session = self._find_or_make(check_name(name), environment, source)
        if environment is not None or source is not None:
            self._check_as_asked(session, environment, source)
        now = time.time()
        session.used = now
        if now - session.renewed > self._settings.lifetime * _RENEWAL:
            call = current()
            if call is not None:
                call.take_time()  # it writes to the disk
            self._renew(session, now)
        return session

    def is_at_hand(self, name: object) -> bool:
        """Whether `open` would find it without looking anywhere; None is the default one."""
        return (DEFAULT if name is None else name) in self._known if isinstance(name, str | None) else False

    def existing(self, name: str) -> Session:
        """The session of that name; only the default one is made. Raises InvalidInput where there is none."""
        if name not in self._known and name != DEFAULT:
            record = drive(lifecycle.find(self._io, self.labels(check_name(name))))
            if record is None:
                raise InvalidInput(f"There is no session {name!r}; list_sessions shows those there are.")
        return self.open(name)

    def infos(self) -> list[Info]:
        """What is known of every living session, newest first."""
        listed = drive(lifecycle.listing(self._io, {SPACE: self._settings.space}))
        return [info for info in listed if info.status not in ("gone", "creating") and LABEL in info.labels]

    def last_used(self, info: Info) -> float:
        """When a session was last used; of one that only other servers used, within a part of its lifetime."""
        known = self._known.get(info.labels[LABEL])
        renewed = (info.expires or 0.0) - self._settings.lifetime
        return max(known.used if known else 0.0, renewed, info.created)

    def links(self, info: Info) -> Links:
        """The way to the guest of a session, to look at it; that counts as no use."""
        known = self._known.get(info.labels[LABEL])
        return known.links if known else Links(drive(lifecycle.connect(self._io, info.id)))

    def fork(self, parent: Session, name: str, past: str | None) -> Session:
        """A new session that goes on where `parent` is, or was in the stored snapshot `past`.

        Raises:
            InvalidInput: there is a session of that name.
        """
        labels = self.labels(name)
        with self._room(labels) as taken:
            if taken:
                raise _taken(name)
            return self._fork(parent, name, past)

    def _fork(self, parent: Session, name: str, past: str | None) -> Session:
        labels = self.labels(name)
        if past is None:
            twin = parent.sandbox.fork(labels=labels, lifetime=self._settings.lifetime)
        else:
            wishes = {
                key: self._settings.wishes[key] for key in ("network", "resources") if key in self._settings.wishes
            }
            wishes |= {"lifetime": self._settings.lifetime, "labels": labels, "snapshot": past}
            twin = Sandbox(drive(lifecycle.create(self._io, parent.core.driver, **wishes)))
        session = Session(name, twin, fresh=True)
        session.renewed = time.time()
        self._known[name] = session
        return session

    def forget(self, name: str) -> None:
        """Look for it anew the next time: it has ended, or somebody stopped it."""
        self._known.pop(name, None)

    def destroy(self, name: str) -> list[Info]:
        """End a session with all that is in it: the sandboxes that it was, of which there should be at most one."""
        known = self._known.pop(check_name(name), None)
        if known is not None:
            known.links.drop()
        gone = []
        while (record := drive(lifecycle.find(self._io, self.labels(name)))) is not None:
            Sandbox(record).destroy()
            gone.append(record.info)
        return gone

    def _find_or_make(self, name: str, environment: str | None, source: str | None) -> Session:
        wishes: dict[str, Any] = {**self._settings.wishes, "lifetime": self._settings.lifetime}
        if source is not None:
            wishes["source"] = self._check_source(source)
            wishes["preset"] = self._settings.preset
        driver = self._settings.driver if environment is None else self._check_environment(environment)
        labels = self.labels(name)
        record = drive(lifecycle.find(self._io, labels))
        fresh = False
        if record is None:
            with self._room(labels) as taken:
                record = drive(lifecycle.get_or_create(self._io, labels, driver, **wishes))
                fresh = not taken
        session = Session(name, Sandbox(record), fresh=fresh)
        self.check_trust(session)
        if fresh:
            session.renewed = record.info.created
        elif record.info.status in ("paused", "stopped"):
            session.sandbox.resume()
        return self._known.setdefault(name, session)

    @contextmanager
    def _room(self, labels: dict[str, str]) -> Iterator[bool]:
        """While one session is made, so that no two find the same last place; whether somebody has made it by now.

        Raises:
            InvalidInput: there are as many sessions as there may be.
        """
        with exclusive(f"mcp-sessions-{sha256(self._settings.space.encode()).hexdigest()[:16]}"):
            taken = drive(lifecycle.find(self._io, labels)) is not None
            if not taken:
                self._check_room()
            yield taken

    def _check_room(self) -> None:
        most = self._settings.max_sessions
        if len(self.infos()) >= most:
            raise InvalidInput(
                f"There are {most} sessions already.",
                hint="Call destroy_session for one that is not needed; the server's owner allows more with "
                "--max-sessions.",
            )

    def _renew(self, session: Session, now: float) -> None:
        try:
            session.sandbox.set_lifetime(self._settings.lifetime)
        except (SandboxGone, Busy):
            return  # the call itself will find out, and tell
        session.renewed = now

    def check_trust(self, session: Session) -> None:
        """A session of an earlier server must not have what this one does not give. Raises InvalidInput."""
        info = session.core.info
        objection = trust.objection(info.driver, info.spec, self._settings)
        if objection is not None:
            raise InvalidInput(
                f"The session {session.name!r} {objection}.",
                hint="Call destroy_session first, or use another session_id.",
            )

    def _check_as_asked(self, session: Session, environment: str | None, source: str | None) -> None:
        spec = session.core.info.spec
        if source is not None and spec.source != self._check_source(source):
            raise self._made_otherwise(session.name, f"the source {spec.source or 'none'}")
        if environment is None:
            return
        self._check_environment(environment)
        if environment not in ("strongest", session.core.driver):
            raise self._made_otherwise(session.name, f"the environment {session.core.driver}")

    def _made_otherwise(self, name: str, what: str) -> InvalidInput:
        return InvalidInput(
            f"The session {name!r} is there already, with {what}.",
            hint="Leave the argument out, use another session_id, or call destroy_session first.",
        )

    def _check_environment(self, environment: str) -> str:
        if environment in WALLS or environment == self._settings.driver:
            return environment
        raise InvalidInput(f"environment is {shown(environment)}; give one of {', '.join(WALLS)}.")

    def _check_source(self, source: str) -> str:
        if not self._settings.sources:
            raise InvalidInput(
                "This server makes no session over a directory of its host.",
                hint="Its owner allows it with `atoll mcp-serve --allow-source DIR`.",
            )
        if "\0" in source:
            raise InvalidInput("source holds a NUL byte, which no path can.")
        asked = os.path.realpath(source)
        if not trust.is_allowed(asked, self._settings.sources):
            raise InvalidInput(
                f"source is {shown(source)}; this server allows {', '.join(self._settings.sources)} and what is below, "
                "but for directories such as .git and .vscode, in which names mean something else."
            )
        if not os.path.isdir(asked):
            raise InvalidInput(f"source is {shown(source)}, which is no directory.")
        return asked


def check_name(name: object) -> str:
    """Raises InvalidInput."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"session_id is {shown(name)}; give 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or "
            "a digit."
        )
    return name


def _taken(name: str) -> InvalidInput:
    return InvalidInput(f"There is a session {name!r} already; give another new_session_id, or none.")


def ended(error: AtollError) -> bool:
    """Whether an error means that the session must be looked for anew."""
    return isinstance(error, SandboxGone | Busy)
