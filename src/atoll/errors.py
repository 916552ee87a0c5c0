"""Every error atoll raises, in one tree.

AtollError
├── InvalidInput                 also ValueError: the caller asked for something that cannot be
│   ├── InvalidPath              a path that is empty, too long, or holds a NUL byte
│   └── VariableMissing          also KeyError: a context has no variable of that name
├── Unsupported                  the driver cannot honour this request; nothing was started
├── DriverError
│   ├── UnknownDriver            no driver has that name
│   ├── DriverMissing            the driver's extra is not installed; `hint` says how
│   └── WallUnavailable          this host cannot hold the wall; `hint` names the fix
├── SandboxError
│   ├── SandboxNotFound          no sandbox has that id
│   ├── SandboxGone              it existed and has ended: destroyed, expired or killed
│   ├── CreateFailed             the wall could not be built; nothing is left of it
│   ├── PackagesFailed           packages could not be installed; the message has the installer's reason
│   ├── Busy                     it is doing something that excludes this; retryable
│   ├── SnapshotNotFound         no snapshot has that name
│   ├── CodebaseNotFound         no codebase has that id or name
│   ├── SessionEnded             its shell has exited, was killed, or was closed; open another session
│   └── Unresponsive             its guest did not answer in time; retryable
├── TimedOut                     also TimeoutError: a wait that you bounded; what you waited for goes on; retryable
├── ManyFailed                   some runs of a `run_many` broke; `results` has every result and error
├── CommandFailed                check=True and the exit code was not 0; `completed` has the rest
│   └── CommandTimedOut          also TimeoutError: check=True and its time was over
├── AgentError
│   ├── ModelError               a model refused or did not answer; `status` is what its server said
│   ├── TrajectoryNotFound       no trajectory has that id
│   └── LeaseLost                another process has taken the run over; nothing more is written here
├── ProtocolError                the guest said something that no honest guest says
├── StoreError                   the registry on disk cannot be read or written
└── FileError                    also OSError, with its errno
    ├── FileMissing              also FileNotFoundError
    ├── FileDenied               also PermissionError
    ├── FilePresent              also FileExistsError
    ├── NotDirectory             also NotADirectoryError
    ├── IsDirectory              also IsADirectoryError
    ├── NotEmpty                 a directory that still holds something
    └── DiskFull                 the sandbox's disk limit is reached

A command that fails is data, never an exception, unless `check=True` asked for one.
"""

from __future__ import annotations

import errno as _errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .types import Completed


class AtollError(Exception):
    """The root. `code` is stable across releases, `hint` says what to do, if anything can be done."""

    code = "error"
    retryable = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class InvalidInput(AtollError, ValueError):
    code = "invalid_input"


class InvalidPath(InvalidInput):
    code = "invalid_path"


class VariableMissing(InvalidInput, KeyError):
    code = "variable_missing"


class Unsupported(AtollError):
    code = "unsupported"


class DriverError(AtollError):
    code = "driver_error"


class UnknownDriver(DriverError):
    code = "unknown_driver"


class DriverMissing(DriverError):
    code = "driver_missing"


class WallUnavailable(DriverError):
    code = "wall_unavailable"


class SandboxError(AtollError):
    code = "sandbox_error"


class SandboxNotFound(SandboxError):
    code = "sandbox_not_found"


class SandboxGone(SandboxError):
    code = "sandbox_gone"


class CreateFailed(SandboxError):
    code = "create_failed"


class PackagesFailed(SandboxError):
    code = "packages_failed"


class Busy(SandboxError):
    code = "busy"
    retryable = True


class SnapshotNotFound(SandboxError):
    code = "snapshot_not_found"


class CodebaseNotFound(SandboxError):
    code = "codebase_not_found"


class SessionEnded(SandboxError):
    code = "session_ended"


class Unresponsive(SandboxError):
    code = "unresponsive"
    retryable = True


class CommandFailed(AtollError):
    code = "command_failed"

    def __init__(self, completed: Completed, command: str = "", seconds: float | None = None) -> None:
        self.completed = completed
        if completed.timed_out:
            # Not what it said last, which is rarely what it waited for.
            after = completed.duration if seconds is None else seconds
            reason, more = f"ran out of time after {after:.6g} s", command
        else:
            reason = "was killed for its memory" if completed.out_of_memory else f"exited with {completed.exit_code}"
            more = "".join(completed.stderr.strip().splitlines()[-1:])
        super().__init__(f"The command {reason}{': ' + more if more else '.'}", hint=completed.hint)

    def __str__(self) -> str:
        # The message ends with words of the command, and the hint is none of them.
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    @property
    def exit_code(self) -> int:
        return self.completed.exit_code

    @property
    def stdout(self) -> str:
        return self.completed.stdout

    @property
    def stderr(self) -> str:
        return self.completed.stderr


class CommandTimedOut(CommandFailed, TimeoutError):
    code = "command_timed_out"


def command_failed(completed: Completed, command: str = "", seconds: float | None = None) -> CommandFailed:
    """The error for a command that did not succeed. `command` is its line, `seconds` the time that it had."""
    return (CommandTimedOut if completed.timed_out else CommandFailed)(completed, command, seconds)


class TimedOut(AtollError, TimeoutError):
    code = "timed_out"
    retryable = True

    def __str__(self) -> str:
        return self.message


class ManyFailed(AtollError):
    code = "many_failed"

    def __init__(self, results: list[Completed | AtollError]) -> None:
        self.results = results
        broken = [result for result in results if isinstance(result, AtollError)]
        super().__init__(f"{len(broken)} of {len(results)} commands could not be run; the first: {broken[0]}")


class AgentError(AtollError):
    code = "agent_error"


class ModelError(AgentError):
    """`retryable` says whether the same request may pass later, `status` what the server said, if one answered."""

    code = "model_error"

    def __init__(
        self, message: str, *, hint: str | None = None, status: int | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retryable = retryable


class TrajectoryNotFound(AgentError):
    code = "trajectory_not_found"


class LeaseLost(AgentError):
    code = "lease_lost"


class ProtocolError(AtollError):
    code = "protocol_error"


class StoreError(AtollError):
    code = "store_error"


class FileError(AtollError, OSError):
    """A file operation failed. `errno` and `path` say how and on what, `inside` whether the sandbox refused or the
    host, as it may when a file is uploaded or downloaded."""

    code = "file_error"
    inside = False

    def __init__(
        self, message: str, *, errno: int = _errno.EIO, path: str | None = None, hint: str | None = None
    ) -> None:
        AtollError.__init__(self, message, hint=hint)
        self.errno = errno
        self.path = path
        self.filename = path

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. {self.hint}" if self.hint else self.message


class FileMissing(FileError, FileNotFoundError):
    code = "file_missing"


class FileDenied(FileError, PermissionError):
    code = "file_denied"


class FilePresent(FileError, FileExistsError):
    code = "file_present"


class NotDirectory(FileError, NotADirectoryError):
    code = "not_directory"


class IsDirectory(FileError, IsADirectoryError):
    code = "is_directory"


class NotEmpty(FileError):
    code = "not_empty"


class DiskFull(FileError):
    code = "disk_full"


_BY_ERRNO: dict[int, type[FileError]] = {
    _errno.ENOENT: FileMissing,
    _errno.EACCES: FileDenied,
    _errno.EPERM: FileDenied,
    _errno.EROFS: FileDenied,
    _errno.EXDEV: FileDenied,
    _errno.EEXIST: FilePresent,
    _errno.ENOTDIR: NotDirectory,
    _errno.EISDIR: IsDirectory,
    _errno.ENOTEMPTY: NotEmpty,
    _errno.ENOSPC: DiskFull,
    _errno.EDQUOT: DiskFull,
    _errno.EFBIG: DiskFull,
}


def file_error(errno: int, message: str, path: str | None) -> FileError:
    """The error class that fits an errno; unknown ones become a plain FileError."""
    return _BY_ERRNO.get(errno, FileError)(message, errno=errno, path=path)


_WRITABLE = (
    "Files can be written in the workspace, by a path such as 'data.txt', and in /tmp, where no rule forbids it."
)


def from_wire(error: dict[str, Any]) -> AtollError:
    """Turn what the guest said went wrong into an error of a closed table.

    The guest is hostile: it can only choose among the rows below, never name a class.
    """
    message = str(error.get("message", "The guest reported an error without a message."))[:4096]
    # Half a surrogate pair could not be printed.
    message = message.encode("utf-8", "replace").decode("utf-8")
    errno = error.get("errno")
    path = error.get("path")
    if isinstance(errno, int):
        refusal = file_error(errno, message, path if isinstance(path, str) else None)
        refusal.inside = True
        if errno == _errno.EROFS and isinstance(path, str) and path.startswith("/"):
            refusal.hint = _WRITABLE
        return refusal
    kinds: dict[object, type[AtollError]] = {
        "invalid_input": InvalidInput,
        "invalid_path": InvalidPath,
        "unsupported": Unsupported,
        "busy": Busy,
        "session_ended": SessionEnded,
        "variable_missing": VariableMissing,
    }
    code = error.get("code")
    return kinds.get(code if isinstance(code, str) else None, SandboxError)(message)
