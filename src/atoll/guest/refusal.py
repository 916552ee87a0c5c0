"""Why an operation ends without a result."""

from __future__ import annotations

import errno
import os
from typing import Any, Dict, Optional, Union

INVALID_INPUT = "invalid_input"
INVALID_PATH = "invalid_path"
UNSUPPORTED = "unsupported"
BUSY = "busy"
FILE_ERROR = "file_error"
CANCELLED = "cancelled"
SESSION_ENDED = "session_ended"
VARIABLE_MISSING = "variable_missing"
INTERNAL = "internal"


class Refused(Exception):
    """Ends the operation that it is raised in; the client is told all of it."""

    def __init__(self, code: str, message: str, number: Optional[int] = None, path: Optional[str] = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.number = number
        self.path = path

    def wire(self) -> Dict[str, Any]:
        error: Dict[str, Any] = {"code": self.code, "message": self.message[:4096]}
        if self.number is not None:
            error["errno"] = self.number
        if self.path is not None:
            error["path"] = self.path[:4096]
        return error


def invalid(message: str) -> Refused:
    return Refused(INVALID_INPUT, message)


def no_process_left() -> Refused:
    return Refused(BUSY, "The sandbox cannot start one more process: its process or memory limit is reached.")


def file_refusal(number: int, path: str, reason: Optional[str] = None) -> Refused:
    """The refusal for an errno. A name that is too long is the caller's mistake; a limit passes again."""
    if number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return Refused(BUSY, "The sandbox has run out of descriptors or memory: %s." % os.strerror(number))
    message = "%s: %s" % (reason or os.strerror(number), _short(path))
    if number == errno.ENAMETOOLONG:
        return Refused(INVALID_PATH, message)
    return Refused(FILE_ERROR, message, number, path)


def from_os_error(error: OSError, path: Optional[str]) -> Refused:
    """What the kernel said, told of the path that the client named where the error has none of its own."""
    number = error.errno if error.errno is not None else errno.EIO
    return file_refusal(number, path if path is not None else _named(error.filename))


def _named(filename: Union[str, bytes, int, None]) -> str:
    if isinstance(filename, bytes):
        return filename.decode("utf-8", "surrogateescape")
    return "?" if filename is None else str(filename)


def _short(path: str) -> str:
    return path if len(path) <= 200 else path[:200] + "…"
