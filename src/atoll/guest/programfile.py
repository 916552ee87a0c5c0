"""Languages without a conversation: each cell is a whole program, in a process and a directory of its own."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from .contextlink import Listener
from .contextstart import ContextSettings
from .descriptors import close_all
from .machine import Machine
from .programlink import ProgramLink
from .reaper import exit_code
from .refusal import from_os_error, invalid, no_process_left
from .toolchains import Language


class FileLink(ProgramLink):
    """Starts nothing when it is made. It never dies: there is no state to lose."""

    def __init__(self, machine: Machine, listener: Listener, settings: ContextSettings, language: Language) -> None:
        super().__init__(machine, listener, settings)
        self._language = language
        self._directory: Optional[str] = None

    def _run(self, request: Dict[str, Any]) -> None:
        for source in self._sources:
            source.close()  # what an earlier cell has left running is heard no more
        self._sources.clear()
        made: List[int] = []
        self.mark = self._machine.marks.issue()
        path = self._written(request["code"])
        try:
            stdout, stderr = self._outputs(made)
            words = ["/bin/sh", "-c", self._language.cell, "sh", path]
            theirs = [(self._machine.devnull, 0), (stdout, 1), (stderr, 2)]
            self.pid = self._start(words, theirs, request.get("env") or {}, request.get("cwd"))
        except OSError as error:
            self._remove()
            raise no_process_left() from error
        except BaseException:
            self._remove()
            raise
        finally:
            close_all(made)
        self._machine.reaper.watch(self.pid, self._exited)

    def _written(self, code: str) -> str:
        """The file that holds the program, in a new directory. Raises Refused."""
        env = {**self._machine.config.environment(), **self._settings.env}
        temporary = env.get("TMPDIR") or "/tmp"  # noqa: S108  # the sandbox's own
        self._directory = os.path.join(temporary, "cell-%s" % os.urandom(8).hex())
        path = os.path.join(self._directory, "main%s" % self._language.suffixes[0])
        try:
            os.mkdir(self._directory, 0o700)
            with open(path, "wb") as file:
                file.write(code.encode("utf-8", "surrogateescape"))
        except OSError as error:
            self._remove()
            raise from_os_error(error, path) from error
        except UnicodeEncodeError:
            self._remove()
            raise invalid("The code holds a surrogate that stands for no byte.") from None
        return path

    def _exited(self, status: int) -> None:
        self.pid = 0
        uncompiled = self._directory is not None and os.path.exists(os.path.join(self._directory, "uncompiled"))
        self._remove()
        if self._closed:
            return
        if uncompiled:
            self._end_with(exit_code(status), "it does not compile", "CompileError")
        else:
            self._end_with(exit_code(status))

    def _remove(self) -> None:
        directory, self._directory = self._directory, None
        if directory is None:
            return
        for path, directories, names in os.walk(directory, topdown=False):
            for name in names:
                _quietly(os.unlink, os.path.join(path, name))
            for name in directories:
                _quietly(os.rmdir, os.path.join(path, name))
        _quietly(os.rmdir, directory)


def _quietly(remove: Any, path: str) -> None:
    try:
        remove(path)
    except OSError:
        pass  # the program has changed its own directory, and may keep what it made of it
