"""The workspace of a sandbox behind gVisor over its source, where root makes it.

It is mounted on the host, as any wall of root's has it (see `engine.steward.covering`), and only where the steward and
what it has started see it. gVisor's gofer holds its root open, so it stays as it is for as long as the sandbox runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..engine import kernel, places
from ..engine.places import Rules
from ..engine.removal import remove_tree
from ..engine.steward.covering import covered, layers, stage, uppers_in
from ..engine.steward.originals import RECORDS, Recorder
from ..engine.steward.wall import FILES, StartFailed

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
VIEW = "view"
"""The directory in a box that is the workspace, for its steward."""


IDLE = "idle"
"""The order that is refused where something runs which a new start would end."""
_SETTLED, _AFRESH = "settled", "afresh"


class Source:
    """Of one sandbox, whose files are in place and whose steward is among mounts of its own.

    Attributes:
        recipe: how the rules are enforced, if there are any.
    """

    def __init__(self, box: str, job: Mapping[str, Any]) -> None:
        self._box = box
        self._job = job
        self._files = f"{box}/{FILES}"
        self._rules = Rules.of(dict(job))
        self._recorder = Recorder(box, job["source"])
        self._since = 0.0
        self.recipe: str | None = None

    def open(self) -> None:
        """Have the workspace in place.

        Raises:
            StartFailed: the rules cannot be enforced here.
            OSError: the host refuses a mount.
        """
        self._since = time.time()
        self._take_records()
        os.makedirs(f"{self._box}/{VIEW}", mode=0o700, exist_ok=True)
        with self._aside():
            uppers = layers("t", self._job["uid"], self._rules)
            # Of the time before, or of the sandbox that these files were copied from.
            remove_tree(f"{os.getcwd()}/t/scratch-{uppers[0]}")
            rules, uid, home = self._rules, self._job["uid"], self._job["home"]
            tree, self.recipe = covered(self._job["source"], uppers, rules, uid=uid, home=home, pinned=True)
        try:
            places.attach({f"{self._box}/{VIEW}": tree})
        finally:
            os.close(tree)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Among mounts that nobody else sees, in a directory where the files are `t`."""
        with places.aside():
            try:
                stage(f"{self._box}/stage")
                os.mkdir("t")
                kernel.mount(self._files, "t", None, kernel.MS_BIND)
                yield
            finally:
                os.chdir("/")

    def record(self) -> None:
        """Have written down, in the background, how the source was, unless it was."""
        self._recorder.record(self._since, self._rules)

    def staged(self, *, patient: bool) -> tuple[dict[str, Any], Sequence[int]]:
        """The answer to `STAGE`. Raises OSError."""
        if patient and self._recorder.is_busy():
            return {}, ()
        found = [os.open(f"{self._box}/{VIEW}", _FOLDER)]
        found += [os.open(f"{self._files}/{name}", _FOLDER) for name in uppers_in(self._files)]
        return {"source": self._job["source"], "base": self._recorder.base}, found

    def settle(self) -> None:
        """Have what is known of the source among the files, which are about to be copied: it goes with them.

        Raises:
            OSError: the disk is full.
        """
        self._remove_records(self._files)
        self._copy_records(self._box, self._files)
        known = os.urandom(8).hex()
        # By this it is known whether files are those that are here now, or come from elsewhere.
        for place in (self._files, self._box):
            _write(f"{place}/{_SETTLED}", known)

    def _take_records(self) -> None:
        """What is known of the source goes with the layer over it: that of these files, where they are another's."""
        of_files = _read(f"{self._files}/{_SETTLED}")
        if of_files == _AFRESH:
            self._remove_records(self._box)
        elif of_files and of_files != _read(f"{self._box}/{_SETTLED}"):
            self._remove_records(self._box)
            self._copy_records(self._files, self._box)
        if of_files:
            _write(f"{self._box}/{_SETTLED}", of_files)

    def _remove_records(self, place: str) -> None:
        for name in RECORDS:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{place}/{name}")

    def _copy_records(self, place: str, other: str) -> None:
        # Where the last of them, which is the first to be looked for, is there, all are.
        for name in reversed(RECORDS):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{place}/{name}", f"{other}/{name}")

    def end(self) -> None:
        """Stop writing down."""
        self._recorder.end()

    def close(self) -> None:
        """Let go of the workspace: everybody in it is dead. Harmless where it was not opened."""
        with contextlib.suppress(OSError):
            kernel.umount(f"{self._box}/{VIEW}", kernel.MNT_DETACH)


def begin_afresh(files: str) -> None:
    """Have a sandbox that begins with these files, in which is no layer, know its source as it is then."""
    _write(f"{files}/{_SETTLED}", _AFRESH)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _read(path: str) -> str:
    """Nothing, where there is no such file."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def check_idle(processes: Sequence[int] | None, *, force: bool) -> None:
    """Raises StartFailed where something runs that would end with a new start, and was not to."""
    running = None if processes is None else len([pid for pid in processes if pid != 1])
    if force or running == 0:
        return
    what = "It cannot be told what runs in it" if running is None else f"{running} processes run in it"
    raise StartFailed(
        f"{what}, and gVisor holds its files for them: to discard changes, the sandbox is started anew without them.",
        "busy",
        "End the processes and the contexts of Python, or give force=True to have that done.",
    )
