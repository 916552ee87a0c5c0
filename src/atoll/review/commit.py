"""The steps of an apply, forward and back. Each is one rename; what is staged tells whether it was done.

Everything happens relative to descriptors that were opened through no link and on one mount. What a step takes out of
the source it looks at afterwards: if it is not what was there before, it goes back.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

from . import beneath
from .journal import Identity, Step
from .points import reached
from .tree import split

_CANNOT_EXCHANGE = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
_UNREACHABLE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV))
_SECOND = ".old"
_MOST_OPEN = 200


class Moved(Exception):
    """The source is no longer what was looked at; nothing was done at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Steps:
    """Steps below `root`, a descriptor of the source, with what is staged in a directory of it. Used in a `with` block.

    The directories that were worked in stay open, so that a step can be undone in one that was moved since.
    """

    def __init__(self, root: int, staging: int) -> None:
        self._root = root
        self._staging = staging
        self._open_places: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for fd in self._open_places.values():
            os.close(fd)

    def do(self, step: Step) -> None:
        """Do a step, unless it is done.

        Raises:
            Moved: somebody else changed the place.
            OSError: the file system refuses.
        """
        if self._is_done(step):
            return
        above, name = split(step.path)
        parent = self._open(above)
        if parent is None:
            raise Moved(step.path)
        self._keep_open(above, parent)
        reached(f"{step.action} {step.path}")
        getattr(self, f"_{step.action}")(step, parent, name)
        if not self._is_in_place(above, parent):
            self._back(step, parent, name)
            raise Moved(step.path)

    def undo(self, step: Step) -> bool:
        """Undo a step, as far as it was done and nobody has changed the place since.

        False when the place is gone, with what was taken from there still staged. Raises OSError.
        """
        above, name = split(step.path)
        parent = self._open_places.get(above)
        if parent is None:
            parent = self._open(above)
            if parent is None:
                return not self._has_original(step)
            self._keep_open(above, parent)
        reached(f"undo {step.action} {step.path}")
        self._back(step, parent, name)
        return True

    def _has_original(self, step: Step) -> bool:
        names = (step.staged, step.staged + _SECOND) if step.staged else ()
        return step.old is not None and any(_identity(self._staging, name) == step.old for name in names)

    def _keep_open(self, place: str, fd: int) -> None:
        """The newest descriptor of a place, and not too many of them."""
        stale = self._open_places.pop(place, None)
        if stale is None and len(self._open_places) >= _MOST_OPEN:
            stale = self._open_places.pop(next(iter(self._open_places)))
        if stale is not None:
            os.close(stale)
        self._open_places[place] = fd

    def _open(self, path: str) -> int | None:
        """A directory of the source; None where there is none that can be reached without a link. Raises OSError."""
        try:
            return beneath.open_beneath(self._root, path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, beneath.NO_XDEV)
        except OSError as error:
            if error.errno in _UNREACHABLE:
                return None
            raise

    def _is_in_place(self, above: str, parent: int) -> bool:
        """Whether the directory that was worked in is still where it was."""
        again = self._open(above)
        if again is None:
            return False
        try:
            return os.path.sameopenfile(again, parent)
        finally:
            os.close(again)

    def _is_done(self, step: Step) -> bool:
        staged = _look(self._staging, step.staged) if step.staged else None
        if step.action == "put":
            return staged is None
        if step.action == "drop":
            return staged is not None
        if step.action == "swap":
            return staged is None or Identity.of(staged) == step.old
        return False

    def _put(self, step: Step, parent: int, name: str) -> None:
        try:
            beneath.move(self._staging, step.staged, parent, name)
        except FileExistsError:
            raise Moved(step.path) from None

    def _drop(self, step: Step, parent: int, name: str) -> None:
        if _identity(parent, name) != step.old:
            raise Moved(step.path)
        reached(f"about to drop {step.path}")
        beneath.move(parent, name, self._staging, step.staged)
        if _identity(self._staging, step.staged) != step.old or not self._is_empty(step):
            _move_if_free(self._staging, step.staged, parent, name)
            raise Moved(step.path)

    def _swap(self, step: Step, parent: int, name: str) -> None:
        second = step.staged + _SECOND
        if _look(self._staging, second) is None:
            if _identity(parent, name) != step.old:
                raise Moved(step.path)
            reached(f"about to swap {step.path}")
            try:
                beneath.exchange(self._staging, step.staged, parent, name)
            except OSError as error:
                if error.errno not in _CANNOT_EXCHANGE:
                    raise
            else:
                self._check_swapped(step, parent, name)
                return
            beneath.move(parent, name, self._staging, second)
            reached(f"half of swap {step.path}")
        if _identity(self._staging, second) != step.old:
            _move_if_free(self._staging, second, parent, name)
            raise Moved(step.path)
        self._put(step, parent, name)

    def _check_swapped(self, step: Step, parent: int, name: str) -> None:
        reached(f"swapped {step.path}")
        if _identity(self._staging, step.staged) != step.old:
            beneath.exchange(self._staging, step.staged, parent, name)
            raise Moved(step.path)

    def _mode(self, step: Step, parent: int, name: str) -> None:
        self._change_mode(step, parent, name, step.modes[1])

    def _change_mode(self, step: Step, parent: int, name: str, mode: int) -> None:
        fd = beneath.open_beneath(parent, name, os.O_PATH | os.O_NOFOLLOW, beneath.NO_XDEV)
        try:
            found = os.fstat(fd)
            if Identity.of(found) != step.old or found.st_nlink != 1 or stat.S_IMODE(found.st_mode) not in step.modes:
                raise Moved(step.path)
            os.chmod(f"/proc/self/fd/{fd}", mode)
        finally:
            os.close(fd)

    def _back(self, step: Step, parent: int, name: str) -> None:
        """Undo a step at a place, whatever of it was done."""
        if step.action == "drop":
            _move_if_free(self._staging, step.staged, parent, name)
        elif step.action == "put":
            self._take_back(step, parent, name)
        elif step.action == "swap":
            self._swap_back(step, parent, name)
        else:
            try:
                self._change_mode(step, parent, name, step.modes[0])
            except (Moved, FileNotFoundError):
                pass  # whoever changed it meanwhile has the last word

    def _take_back(self, step: Step, parent: int, name: str) -> bool:
        """Whether what was put there is staged again."""
        if _look(self._staging, step.staged) is not None or _identity(parent, name) != step.new:
            return False
        beneath.move(parent, name, self._staging, step.staged)
        if self._is_empty(step):
            return True
        # Somebody has begun to use the directory.
        _move_if_free(self._staging, step.staged, parent, name)
        return False

    def _swap_back(self, step: Step, parent: int, name: str) -> None:
        second = step.staged + _SECOND
        if _look(self._staging, second) is not None:
            if _identity(parent, name) == step.new:
                self._take_back(step, parent, name)
            _move_if_free(self._staging, second, parent, name)
        elif _identity(self._staging, step.staged) == step.old and _identity(parent, name) == step.new:
            beneath.exchange(self._staging, step.staged, parent, name)

    def _is_empty(self, step: Step) -> bool:
        """Whether a staged directory has nothing in it; true for what is no directory."""
        found = _look(self._staging, step.staged)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return True
        fd = beneath.open_beneath(self._staging, step.staged, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            return not os.listdir(fd)
        finally:
            os.close(fd)


def _look(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _identity(directory: int, name: str) -> Identity | None:
    found = _look(directory, name)
    return None if found is None else Identity.of(found)


def _move_if_free(source: int, name: str, target: int, new_name: str) -> None:
    """Move something back, unless it is not there or somebody has taken its place."""
    try:
        beneath.move(source, name, target, new_name)
    except (FileExistsError, FileNotFoundError):
        pass
