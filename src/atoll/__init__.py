"""Run code that an AI agent wrote, behind any wall, with one API.

    from atoll import Sandbox, run

    run("echo hi").stdout

    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 41")
        sandbox.run_code("x + 1").text

These are the public names. Each is imported when it is first used, so `import atoll` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true; importing typing for it would cost 5 ms
if TYPE_CHECKING:
    from .client.tools import Tools
    from .errors import (
        AtollError,
        Busy,
        CommandFailed,
        CreateFailed,
        DiskFull,
        DriverError,
        DriverMissing,
        FileDenied,
        FileError,
        FileMissing,
        FilePresent,
        InvalidInput,
        InvalidPath,
        IsDirectory,
        ManyFailed,
        NotDirectory,
        NotEmpty,
        PackagesFailed,
        ProtocolError,
        SandboxError,
        SandboxGone,
        SandboxNotFound,
        SessionEnded,
        StoreError,
        TimedOut,
        UnknownDriver,
        Unresponsive,
        Unsupported,
        WallUnavailable,
    )
    from .sandbox import AsyncSandbox
    from .sync import Sandbox, run, run_code, run_many
    from .types import (
        Capability,
        Checkpoint,
        Chunk,
        CodeError,
        Completed,
        ContextInfo,
        Execution,
        FileEvent,
        FileInfo,
        Handle,
        Info,
        Layer,
        Match,
        Metrics,
        ProcessInfo,
        Resources,
        Result,
        Spec,
        Transfer,
        Variable,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncSandbox",
    "AtollError",
    "Busy",
    "Capability",
    "Checkpoint",
    "Chunk",
    "CodeError",
    "CommandFailed",
    "Completed",
    "ContextInfo",
    "CreateFailed",
    "DiskFull",
    "DriverError",
    "DriverMissing",
    "Execution",
    "FileDenied",
    "FileError",
    "FileEvent",
    "FileInfo",
    "FileMissing",
    "FilePresent",
    "Handle",
    "Info",
    "InvalidInput",
    "InvalidPath",
    "IsDirectory",
    "Layer",
    "ManyFailed",
    "Match",
    "Metrics",
    "NotDirectory",
    "NotEmpty",
    "PackagesFailed",
    "ProcessInfo",
    "ProtocolError",
    "Resources",
    "Result",
    "Sandbox",
    "SandboxError",
    "SandboxGone",
    "SandboxNotFound",
    "SessionEnded",
    "Spec",
    "StoreError",
    "TimedOut",
    "Tools",
    "Transfer",
    "UnknownDriver",
    "Unresponsive",
    "Unsupported",
    "Variable",
    "WallUnavailable",
    "__version__",
    "run",
    "run_code",
    "run_many",
]

_SYNC = {"Sandbox", "run", "run_code", "run_many"}
_TYPES = {
    "Capability", "Checkpoint", "Chunk", "CodeError", "Completed", "ContextInfo", "Execution", "FileEvent",
    "FileInfo", "Handle", "Info", "Layer", "Match", "Metrics", "ProcessInfo", "Resources", "Result", "Spec",
    "Transfer", "Variable",
}  # fmt: skip


def _home_of(name: str) -> str:
    if name == "AsyncSandbox":
        return "sandbox"
    if name in _SYNC:
        return "sync"
    if name == "Tools":
        return "client.tools"
    return "types" if name in _TYPES else "errors"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{_home_of(name)}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
