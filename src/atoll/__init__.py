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
    from .client.codebases import AsyncCodebases
    from .client.lines import by_bytes, by_line
    from .client.snapshots import AsyncSnapshots
    from .client.tools import Tools
    from .errors import (
        AgentError,
        AtollError,
        Busy,
        CodebaseNotFound,
        CommandFailed,
        CommandTimedOut,
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
        LeaseLost,
        ManyFailed,
        ModelError,
        NotDirectory,
        NotEmpty,
        PackagesFailed,
        ProtocolError,
        SandboxError,
        SandboxGone,
        SandboxNotFound,
        SessionEnded,
        SnapshotNotFound,
        StoreError,
        TimedOut,
        TrajectoryNotFound,
        UnknownDriver,
        Unresponsive,
        Unsupported,
        VariableMissing,
        WallUnavailable,
    )
    from .policy.presets import extend_preset, get_preset, list_presets, register_preset
    from .sandbox import AsyncSandbox
    from .sync import Sandbox, run, run_code, run_many
    from .sync.codebases import Codebases
    from .sync.snapshots import Snapshots
    from .types import (
        Applied,
        Capability,
        Change,
        Checkpoint,
        Chunk,
        Codebase,
        CodeError,
        Completed,
        ContextInfo,
        Denial,
        Execution,
        Explanation,
        FileEvent,
        FileInfo,
        Handle,
        Info,
        Layer,
        Match,
        Metrics,
        Offers,
        PathRule,
        Permissions,
        ProcessInfo,
        Resources,
        Result,
        Snapshot,
        Spec,
        Transfer,
        Upload,
        Variable,
    )

__version__ = "0.1.0"

__all__ = [
    "AgentError",
    "Applied",
    "AsyncCodebases",
    "AsyncSandbox",
    "AsyncSnapshots",
    "AtollError",
    "Busy",
    "Capability",
    "Change",
    "Checkpoint",
    "Chunk",
    "CodeError",
    "Codebase",
    "CodebaseNotFound",
    "Codebases",
    "CommandFailed",
    "CommandTimedOut",
    "Completed",
    "ContextInfo",
    "CreateFailed",
    "Denial",
    "DiskFull",
    "DriverError",
    "DriverMissing",
    "Execution",
    "Explanation",
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
    "LeaseLost",
    "ManyFailed",
    "Match",
    "Metrics",
    "ModelError",
    "NotDirectory",
    "NotEmpty",
    "Offers",
    "PackagesFailed",
    "PathRule",
    "Permissions",
    "ProcessInfo",
    "ProtocolError",
    "Resources",
    "Result",
    "Sandbox",
    "SandboxError",
    "SandboxGone",
    "SandboxNotFound",
    "SessionEnded",
    "Snapshot",
    "SnapshotNotFound",
    "Snapshots",
    "Spec",
    "StoreError",
    "TimedOut",
    "Tools",
    "TrajectoryNotFound",
    "Transfer",
    "UnknownDriver",
    "Unresponsive",
    "Unsupported",
    "Upload",
    "Variable",
    "VariableMissing",
    "WallUnavailable",
    "__version__",
    "by_bytes",
    "by_line",
    "extend_preset",
    "get_preset",
    "list_presets",
    "register_preset",
    "run",
    "run_code",
    "run_many",
]

_AWAITED = {
    "arun": "run",
    "async_run": "run",
    "run_async": "run",
    "arun_code": "run_code",
    "run_code_async": "run_code",
}
_SYNC = {"Sandbox", "run", "run_code", "run_many"}
_ELSEWHERE = {
    "AsyncCodebases": "client.codebases", "AsyncSandbox": "sandbox", "AsyncSnapshots": "client.snapshots",
    "Codebases": "sync.codebases", "Snapshots": "sync.snapshots", "Tools": "client.tools",
    "by_bytes": "client.lines", "by_line": "client.lines",
    "extend_preset": "policy.presets", "get_preset": "policy.presets", "list_presets": "policy.presets",
    "register_preset": "policy.presets",
}  # fmt: skip
_TYPES = {
    "Applied", "Capability", "Change", "Checkpoint", "Chunk", "CodeError", "Codebase", "Completed",
    "ContextInfo", "Denial", "Execution", "Explanation", "FileEvent", "FileInfo", "Handle", "Info", "Layer",
    "Match", "Metrics", "Offers", "PathRule", "Permissions", "ProcessInfo", "Resources", "Result", "Snapshot", "Spec",
    "Transfer", "Upload", "Variable",
}  # fmt: skip


def _home_of(name: str) -> str:
    if name in _SYNC:
        return "sync"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    return "types" if name in _TYPES else "errors"


def __getattr__(name: str) -> object:
    if name == "aio":
        from importlib import import_module

        return import_module(".aio", __name__)
    if name in _AWAITED:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}; use await atoll.aio.{_AWAITED[name]}(…).")
    if name not in __all__:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{_home_of(name)}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
