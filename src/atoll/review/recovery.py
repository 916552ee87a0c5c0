"""What is done about an apply that was killed: finished, if all of it was ready, or else rolled back."""

from __future__ import annotations

import os

from ..errors import StoreError
from . import beneath
from .base import Record, append_applied
from .commit import Moved, Steps
from .journal import Journal, Ledger, Step
from .looking import open_source
from .points import reached
from .quoting import quoted
from .staging import Staging, clear_staging
from .tree import split, type_of

_MANY = 64


def recover(source: str, state: str) -> None:
    """Finish or roll back an apply to `source` that was killed. Does nothing when none was.

    Raises:
        Busy: one is under way.
        StoreError, FileError, OSError: it cannot be done; the next call tries again.
    """
    ledger = Ledger(source, state)
    if ledger.is_open():
        with ledger:
            recover_locked(source, ledger)


def recover_locked(source: str, ledger: Ledger) -> None:
    """As `recover`, for who has the lock."""
    journal = ledger.read()
    if journal is None:
        return
    root = open_source(source)
    try:
        found = os.fstat(root)
        # Another directory in its place has nothing of ours.
        if (found.st_dev, found.st_ino) == journal.source:
            settle(root, ledger, journal)
        else:
            ledger.remove()
    finally:
        os.close(root)


def settle(root: int, ledger: Ledger, journal: Journal) -> None:
    """Bring an apply to its end from whatever phase it is in.

    Raises:
        StoreError: as `roll_back`.
        OSError: the file system refuses; the journal stays.
    """
    if journal.phase in ("commit", "undo"):
        try:
            carry_out(root, ledger, journal)
        except Moved:
            pass  # what was not finished is rolled back
    else:
        clear(root, ledger, journal)


def carry_out(root: int, ledger: Ledger, journal: Journal) -> None:
    """Do every step that is not done yet, then clear away. What cannot be finished is rolled back.

    Raises:
        Moved: the source is no longer what was looked at. It is as it was before the apply.
        OSError: the file system refuses; the same.
        StoreError: something could not be put back; the message says where it is.
    """
    with Staging(root, journal.staging) as staging, Steps(root, staging.fd) as steps:
        if journal.phase == "undo":
            _roll_back(root, ledger, journal, steps)
            return
        try:
            for step in journal.steps:
                steps.do(step)
        except (Moved, OSError):
            _roll_back(root, ledger, journal, steps)
            raise
    reached("all steps")
    _sync(root, journal.steps)
    if journal.base is not None:
        _remember(journal.base, journal.steps)
    _finish(root, ledger, journal)


def _roll_back(root: int, ledger: Ledger, journal: Journal, steps: Steps) -> None:
    """Undo every step that was done, then clear away, unless that would destroy what has no place any more."""
    ledger.write(journal._replace(phase="undo"))
    reached("undo")
    lost = [step.path for step in reversed(journal.steps) if not steps.undo(step)]
    _sync(root, journal.steps)
    if lost:
        ledger.remove()
        named = ", ".join(map(quoted, lost[:3]))
        raise StoreError(
            f"An apply was interrupted, and the directory of {named} has been moved away since.",
            hint=f"What was there is kept in {journal.staging} in the source.",
        )
    _finish(root, ledger, journal)


def _finish(root: int, ledger: Ledger, journal: Journal) -> None:
    # From here on what is staged says nothing any more.
    ledger.write(journal._replace(phase="done", steps=()))
    reached("done")
    clear(root, ledger, journal)


def clear(root: int, ledger: Ledger, journal: Journal) -> None:
    clear_staging(root, journal.staging)
    reached("cleared")
    ledger.remove()


def _sync(root: int, steps: tuple[Step, ...]) -> None:
    """The directories that were worked in, onto the disk."""
    places = {split(step.path)[0] for step in steps}
    if len(places) > _MANY:
        places = {""}
    for place in places:
        try:
            fd = beneath.open_beneath(root, place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # a directory that was removed, or that nobody may list
        try:
            if len(places) == 1 and len(steps) > _MANY:
                beneath.sync_file_system(fd)
            else:
                os.fsync(fd)
        finally:
            os.close(fd)


def _remember(base: str, steps: tuple[Step, ...]) -> None:
    """From now on the sandbox is compared with what it has put into the source."""
    try:
        append_applied(base, [(step.path, _record(step)) for step in steps])
    except OSError:
        pass  # its record may be gone with the sandbox; without one, the next apply is only more careful


def _record(step: Step) -> Record | None:
    kept = step.old if step.action == "mode" else step.new
    if kept is None:
        return None
    # A rename changes the time that only the kernel sets, so the digest has to tell.
    return Record(type_of(kept.format), step.modes[1], kept.size, kept.mtime_ns, 0, kept.inode, step.digest)
