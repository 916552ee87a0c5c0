"""State that outlasts the sandbox's processes: which contexts were kept, and in which files.

A checkpoint is made of files of one generation, one for each context, and is there from the moment at which the
list that names them is renamed to its place. All of it lies inside the wall and was written there.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .arguments import Arguments
from .contextstart import ContextSettings
from .refusal import BUSY, Refused, from_os_error, invalid

_LIST = "contexts.json"
_MAX_LIST = 1 << 20
_GENERATION = 8
_NOTHING_ODD = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Standing(NamedTuple):
    """How a context stands when a checkpoint begins. `pid` and `mark` are those of its process, or None and 0."""

    settings: ContextSettings
    used: bool
    busy: bool
    pid: Optional[int] = None
    mark: int = 0


class Lasting:
    """The operation `checkpoint`.

    Args:
        directory: where the files are.
        contexts: tells how each context stands now.
        processes: tells what runs that no checkpoint keeps.
    """

    def __init__(
        self,
        directory: str,
        contexts: Callable[[], List[Standing]],
        processes: Callable[[List[Standing]], Dict[str, str]],
    ) -> None:
        self._directory = directory
        self._contexts = contexts
        self._processes = processes
        self._generation = ""
        self._files: Dict[str, str] = {}

    def kept(self) -> List[ContextSettings]:
        """The contexts of the last checkpoint. What cannot be read counts as none: it is the sandbox's own doing."""
        self._files = {}
        try:
            # Whatever lies there now: the guest must not wait for a pipe.
            fd = os.open(os.path.join(self._directory, _LIST), os.O_RDONLY | _NOTHING_ODD)
            with open(fd, "rb") as file:
                return [self._read(entry) for entry in json.loads(file.read(_MAX_LIST) or b"")]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, Refused):
            return []

    def _read(self, entry: Dict[str, Any]) -> ContextSettings:
        arguments = Arguments(entry)
        file = os.path.basename(arguments.text("file"))
        return ContextSettings(
            arguments.text("name"),
            arguments.text("language"),
            arguments.text("cwd"),
            arguments.mapping("env"),
            os.path.join(self._directory, file) if file else "",
        )

    def operate(self, arguments: Arguments) -> Dict[str, Any]:
        """`begin` gives the contexts that have something to keep, and what runs beside them and is lost; `commit` makes
        what they have written count.

        Raises:
            Refused: no room, or another checkpoint began meanwhile.
        """
        act = arguments.text("act")
        try:
            if act == "begin":
                return self._begin()
            if act == "commit":
                return self._commit(arguments)
        except OSError as error:
            raise from_os_error(error, self._directory) from error
        raise invalid("A checkpoint is begun or committed, and not %.50r." % act)

    def _begin(self) -> Dict[str, Any]:
        contexts = self._contexts()
        lost = self._processes(contexts)
        if not any(each.used or each.settings.frozen for each in contexts) and not self._has_list():
            return {"generation": "", "contexts": [], "lost": lost}
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._generation = os.urandom(_GENERATION).hex()
        return {
            "generation": self._generation,
            "contexts": [
                {
                    "name": each.settings.name,
                    "language": each.settings.language,
                    "used": each.used,
                    "busy": each.busy,
                    "file": "%s-%d" % (self._generation, number),
                }
                for number, each in enumerate(contexts)
            ],
            "lost": lost,
        }

    def _commit(self, arguments: Arguments) -> Dict[str, Any]:
        if arguments.text("generation") != self._generation:
            raise Refused(BUSY, "Another checkpoint began meanwhile; this one counts for nothing.")
        written = arguments.mapping("files")
        entries = [self._entry(each, written.get(each.settings.name)) for each in self._contexts()]
        self._write(entries, durable=arguments.flag("durable", default=True))
        self._files = {entry["name"]: entry["file"] for entry in entries}
        self._remove_others({_LIST, *(entry["file"] for entry in entries)})
        return {}

    def _has_list(self) -> bool:
        return os.path.exists(os.path.join(self._directory, _LIST))

    def _entry(self, standing: Standing, written: Optional[str]) -> Dict[str, Any]:
        """One that has written nothing now keeps what it wrote last."""
        settings = standing.settings
        if written is None:
            written = self._files.get(settings.name, settings.frozen) if standing.used else settings.frozen
        file = os.path.basename(written)
        if file and not os.path.isfile(os.path.join(self._directory, file)):
            raise invalid("The context %r has not written its variables." % settings.name)
        return {
            "name": settings.name,
            "language": settings.language,
            "cwd": settings.cwd,
            "env": settings.env,
            "file": file,
        }

    def _write(self, entries: List[Dict[str, Any]], *, durable: bool) -> None:
        new = os.path.join(self._directory, _LIST + ".new")
        try:
            os.unlink(new)
        except FileNotFoundError:
            pass
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOTHING_ODD, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            json.dump(entries, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.rename(new, os.path.join(self._directory, _LIST))
        if not durable:
            return
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _remove_others(self, kept: Any) -> None:
        for name in os.listdir(self._directory):
            if name not in kept:
                try:
                    os.unlink(os.path.join(self._directory, name))
                except OSError:
                    continue  # not a file of ours
