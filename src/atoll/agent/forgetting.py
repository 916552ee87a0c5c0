"""Forgetting runs, with all that they left: snapshots, sandboxes, and the runs that were parts of them."""

from __future__ import annotations

from ..client.choosing import names_in
from ..errors import AtollError, Busy, DriverError, SandboxGone, SandboxNotFound, SnapshotNotFound, Unsupported
from ..sync.sandbox import Sandbox
from ..sync.snapshots import Snapshots
from .ground import LABEL
from .journal import Journal, is_held
from .records import Recorded, everyone, recorded


def forget(journal: Journal, id: str) -> None:
    """Delete a run and its parts from the journal, their sandboxes, and those snapshots that no other run needs.

    A sandbox that was lent to the run is not its own, and stays.

    Raises:
        TrajectoryNotFound: there is none.
        Busy: a process works on it.
    """
    tree = recorded(journal, id)
    for each in everyone(tree):
        if is_held(each.run):
            raise Busy(f"A process works on the run {each.run.id}; cancel it first.")
    # The parts first: should this be broken off, they can still be found by the run that they are parts of.
    for each in reversed(list(everyone(tree))):
        _destroy_sandboxes(each.run.id)
        needless = _needless_snapshots(journal, each)
        journal.delete(each.run.id)
        _delete_snapshots(each, needless)


def cancel(journal: Journal, id: str) -> bool:
    """End a run, whichever process works on it; whether it had not ended before.

    Where no process works on it, its sandboxes are ended here, and those of its helpers.

    Raises:
        TrajectoryNotFound: there is none.
        InvalidInput: it is a helper's, of a run that a process works on.
    """
    wanted = journal.request_cancel(id)
    tree = recorded(journal, id)
    if wanted and tree.run.state == "cancelled" and not tree.run.settings.get("keep"):
        for each in everyone(tree):
            _destroy_sandboxes(each.run.id)
    return wanted


def _destroy_sandboxes(run: str) -> None:
    for info in Sandbox.list({LABEL: run}):
        if info.status != "gone":
            try:
                Sandbox.connect(info.id).destroy()
            except (SandboxGone, SandboxNotFound):
                continue


def _needless_snapshots(journal: Journal, tree: Recorded) -> set[str]:
    """Those of its steps that no second line has, and those that a crash kept from being noted down."""
    noted = {step.snapshot for step in tree.steps if step.snapshot is not None}
    alone = journal.snapshots(tree.run.id)
    found = set()
    for _, name in _kept(tree):
        if name in alone or (name.startswith(f"{tree.run.id}.") and name not in noted):
            found.add(name)
    return found


def _delete_snapshots(tree: Recorded, names: set[str]) -> None:
    if not names:
        return
    for kept, name in _kept(tree):
        if name in names:
            try:
                kept.delete(name)
            except SnapshotNotFound:
                continue


def _kept(tree: Recorded) -> list[tuple[Snapshots, str]]:
    """The snapshots of every wall that the run may have worked behind."""
    found = []
    try:
        drivers = names_in(tree.run.settings.get("sandbox", {}).get("driver"))
    except AtollError:
        return []
    for driver in drivers:
        kept = Snapshots(driver)
        try:
            found += [(kept, each.name) for each in kept.list()]
        except (Unsupported, DriverError):
            continue
    return found
