"""The values that cross atoll's public API. All are immutable and compare by value: NamedTuples, since importing
`dataclasses` costs more than creating a sandbox.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from .results import Chunk, CodeError, Completed, Execution, Json, Result, StreamName

__all__ = [
    "Applied",
    "Capability",
    "Change",
    "Checkpoint",
    "Chunk",
    "CodeError",
    "Codebase",
    "Completed",
    "ContextInfo",
    "Denial",
    "Enforcement",
    "Execution",
    "Explanation",
    "FileEvent",
    "FileInfo",
    "Handle",
    "Info",
    "Isolation",
    "Json",
    "Layer",
    "Level",
    "Match",
    "Metrics",
    "Offers",
    "PathRule",
    "Permissions",
    "PermissionsLike",
    "ProcessInfo",
    "Resources",
    "Result",
    "RuleKind",
    "Snapshot",
    "Spec",
    "Status",
    "StreamName",
    "Transfer",
    "Upload",
    "Variable",
]

Status = Literal["creating", "running", "paused", "stopped", "gone"]
Enforcement = Literal["kernel", "polled", "none"]
Isolation = Literal["none", "process", "container", "runtime", "kernel", "machine"]
Level = Literal["none", "view", "read", "write"]
RuleKind = Literal["glob", "directory", "file"]


class Capability(enum.Enum):
    """What a driver may declare. A declared one passes the conformance suite, another raises Unsupported."""

    COMMANDS = "commands"
    CODE = "code"
    PTY = "pty"
    WATCH = "watch"
    ISOLATION = "isolation"
    NETWORK_NONE = "network_none"
    NETWORK_ALL = "network_all"
    NETWORK_HOST = "network_host"
    LIMITS = "limits"
    LIFETIME = "lifetime"
    SOURCE = "source"
    IMAGE = "image"
    PAUSE = "pause"
    STOP = "stop"
    METRICS = "metrics"
    PACKAGES = "packages"
    PERMISSIONS = "permissions"
    LIVE_RULES = "live_rules"
    REVIEW = "review"
    SNAPSHOT = "snapshot"
    FORK = "fork"
    AUDIT = "audit"


class Offers(NamedTuple):
    """What a wall can do in the place where it is asked; everything else is refused before the wall hears of it.

    `names_images` is whether `image=` may be a name that the wall knows, and not only an absolute path. `reasons` says
    of what the wall has in other places why it has not here: a sentence, and what to do.
    """

    capabilities: frozenset[Capability]
    names_images: bool = False
    reasons: Mapping[Capability, tuple[str, str | None]] = {}


class Resources(NamedTuple):
    """Limits on the whole process tree of a sandbox. Sizes are bytes, `cpu` is cores."""

    memory: int = 512 << 20
    cpu: float | None = None
    pids: int = 256
    disk: int | None = None


class PathRule(NamedTuple):
    """What may be done with the paths of a workspace that match `pattern`; see docs/explanation/permissions.md."""

    pattern: str
    level: Level
    kind: RuleKind = "glob"
    priority: int = 0


class Permissions(NamedTuple):
    """Rules in the order in which they were given, and the name of the preset that they are, if they are one."""

    rules: tuple[PathRule, ...]
    name: str | None = None


PermissionsLike = str | Permissions | Iterable[PathRule | tuple[str, Level] | Mapping[str, Json]] | None
"""What `preset=` and `permissions=` take: the name of a preset, a `Permissions`, or rules; None is not given."""


class Explanation(NamedTuple):
    """The level of a path, and the rule that gave it; None where no rule matches, which means "none"."""

    path: str
    level: Level
    rule: PathRule | None
    why: str


class Spec(NamedTuple):
    """Everything that decides what a sandbox is. Pure data, checked by `policy.spec`."""

    image: str | None = None
    source: str | None = None
    network: str = "none"
    resources: Resources = Resources()
    env: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    timeout: float | None = 60.0
    lifetime: float = 3600.0
    workdir: str = "/workspace"
    strict: bool = False
    packages: tuple[str, ...] = ()
    permissions: Permissions | None = None
    ignore: tuple[str, ...] = ()
    codebase: str | None = None
    snapshot: str | None = None
    audit: bool = False


class Handle(NamedTuple):
    """What it takes to find a sandbox again from another process. `data` is the driver's own, JSON."""

    driver: str
    id: str
    data: Mapping[str, Json] = {}


class Variable(NamedTuple):
    """A variable of a context, in short. `size` is in bytes, of the value itself or of an array's content."""

    name: str
    type: str
    size: int
    text: str


class Checkpoint(NamedTuple):
    """What a checkpoint has kept: so many variables, and of those that are lost, as "context/name", the reasons."""

    saved: int = 0
    lost: Mapping[str, str] = {}


class ContextInfo(NamedTuple):
    """A context: a process that keeps its state between cells. `pid` is None while it has no process.

    `cells` counts what has run since its process was made, `busy` says whether something runs in it now.
    """

    name: str
    language: str
    workdir: str
    pid: int | None
    busy: bool
    cells: int


class FileInfo(NamedTuple):
    """One entry of a directory. `path` is absolute inside the sandbox."""

    path: str
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: int
    modified: float
    target: str | None = None


class FileEvent(NamedTuple):
    """A change under a watched path. "overflow" means that events were lost."""

    type: Literal["created", "modified", "removed", "moved", "overflow"]
    path: str


class Transfer(NamedTuple):
    """What an upload or a download moved.

    `skipped` names what was left out, relative to the tree; `special` counts pipes, sockets and devices,
    which are always left out, and which a download cannot name.
    """

    files: int
    directories: int
    symlinks: int
    size: int
    skipped: tuple[str, ...] = ()
    special: int = 0


class Match(NamedTuple):
    """A hit of `files.search`. `line` is 0 and `text` empty when only names were asked for."""

    path: str
    line: int = 0
    text: str = ""


class ProcessInfo(NamedTuple):
    """A process inside the sandbox, with its pid as seen there."""

    pid: int
    parent: int
    command: str
    state: str
    memory: int
    cpu_seconds: float
    started_by_api: bool


class Change(NamedTuple):
    """One path that differs from the source. `path` is relative to the workspace.

    `digest` is the SHA-256 of the new content of a file, or of the target of a symlink. `diff` is a unified diff,
    None for what is no text or too large. `mode` is for a file whose permission bits alone changed. `level` is the
    level that the rules give the path; only "write" can be applied.
    """

    path: str
    kind: Literal["added", "modified", "deleted", "mode"]
    type: Literal["file", "directory", "symlink", "other"]
    old_mode: int | None
    new_mode: int | None
    size: int
    digest: str | None
    diff: str | None
    level: Level = "write"
    added_lines: int = 0
    removed_lines: int = 0


class Applied(NamedTuple):
    """What an `apply` did: the paths that it changed, those that the source has changed meanwhile, by reason, and
    those that the rules or the file system refuse, by reason. Nothing that is not in `applied` was touched."""

    applied: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = {}
    rejected: Mapping[str, str] = {}


class Snapshot(NamedTuple):
    """The files of a sandbox, and the variables of its Python contexts, at one moment. `size` is in bytes on disk.
    `lost` are the variables that could not be kept, as "context/name", with the reasons.
    """

    name: str
    sandbox: str
    driver: str
    created: float
    size: int
    layers: tuple[str, ...]
    lost: Mapping[str, str] = {}


class Denial(NamedTuple):
    """An access that was refused. `source` says who noticed: the file API, the review gate, or the kernel."""

    time: float
    path: str
    operation: str
    source: Literal["files", "gate", "kernel"]
    process: str | None = None


class Codebase(NamedTuple):
    """A stored source tree. `version` counts its uploads."""

    id: str
    name: str
    owner: str
    version: int
    files: int
    size: int
    created: float
    updated: float


class Upload(NamedTuple):
    """What an upload did to a codebase. The counts are of paths, directories too.

    `version` is the one before where nothing changed. `bytes_stored` is what was not there in any codebase;
    `skipped` names pipes, sockets and devices, which are left out. `size` is what the given files hold, in bytes, and
    `digest` the SHA-256 of the one that `write` was given.
    """

    version: int
    added: int
    changed: int
    removed: int
    unchanged: int
    bytes_stored: int
    skipped: tuple[str, ...] = ()
    size: int = 0
    digest: str | None = None


class Metrics(NamedTuple):
    """What the whole sandbox uses now. `None` where the host cannot tell."""

    memory: int | None
    cpu_seconds: float | None
    processes: int | None
    disk: int | None
    uptime: float


class Info(NamedTuple):
    """A sandbox as the registry knows it. `limits` says who enforces each limit, `walls` which layers stand.

    Beside what `Resources` bounds, `limits` may name `sockets`: the memory of connections, which no kernel counts in
    full and `strict` therefore does not ask for.

    `view` is how path permissions are enforced, if there are any: a recipe of docs/explanation/permissions.md.
    `audit` names the sources whose denials `audit()` hears of. `lost` says, where `fork` has
    returned it, what a twin does not have of its parent, with the reasons; `passed_over`, where `create` has, which of
    the walls that came before this one were not taken, and why.
    """

    id: str
    driver: str
    status: Status
    labels: Mapping[str, str]
    created: float
    expires: float | None
    spec: Spec
    limits: Mapping[str, Enforcement]
    walls: tuple[str, ...]
    reason: str | None = None
    view: str | None = None
    audit: tuple[str, ...] = ()
    lost: Mapping[str, str] = {}
    passed_over: Mapping[str, str] = {}


class Layer(NamedTuple):
    """One layer of a wall, as `doctor` and `providers` show it."""

    name: str
    ready: bool
    detail: str
    fix: str | None = None
    required: bool = True
