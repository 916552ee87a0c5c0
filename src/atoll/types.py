"""The values that cross atoll's public API. All are immutable and compare by value: NamedTuples, since importing
`dataclasses` costs more than creating a sandbox.
"""

from __future__ import annotations

import binascii
import enum
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from .hints import CHUNK, COMPLETED, EXECUTION, elsewhere

StreamName = Literal["stdout", "stderr"]
Status = Literal["creating", "running", "paused", "stopped", "gone"]
Enforcement = Literal["kernel", "polled", "none"]
Isolation = Literal["none", "process", "container", "runtime", "kernel", "machine"]
Level = Literal["none", "view", "read", "write"]
RuleKind = Literal["glob", "directory", "file"]
Json = Any


_LONG = 200


def _cut(text: object) -> str:
    """The repr of a text, or of its beginning."""
    if not isinstance(text, str) or len(text) <= _LONG:
        return repr(text)
    return f"{text[:_LONG]!r}… ({len(text)} characters)"


def _told(value: Any, short: Mapping[str, str]) -> str:
    """The repr of a tuple with names, in which some fields are told in short."""
    fields = (f"{name}={short[name] if name in short else repr(each)}" for name, each in value._asdict().items())
    return f"{type(value).__name__}({', '.join(fields)})"


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
    REVIEW = "review"
    SNAPSHOT = "snapshot"
    FORK = "fork"


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


@elsewhere(COMPLETED)
class Completed(NamedTuple):
    """How a command ended. `exit_code` is 128 + n when signal n ended it, 124 after a timeout.

    `success` is what the command says of itself, within its time; whether output was dropped, `truncated` tells apart.
    `out_of_memory` says that the kernel killed it, or what a shell waited for, since the sandbox's memory was full.
    What is not UTF-8 is U+FFFD in the texts, and `raw` is both streams then.
    """

    exit_code: int
    stdout: str
    stderr: str
    duration: float
    timed_out: bool = False
    truncated: bool = False
    out_of_memory: bool = False
    raw: tuple[bytes, bytes] | None = None

    @property
    def success(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    @property
    def stdout_bytes(self) -> bytes:
        return self.stdout.encode() if self.raw is None else self.raw[0]

    @property
    def stderr_bytes(self) -> bytes:
        return self.stderr.encode() if self.raw is None else self.raw[1]

    def __repr__(self) -> str:
        """With the beginning of what is long."""
        return _told(self, {"stdout": _cut(self.stdout), "stderr": _cut(self.stderr)})


@elsewhere(CHUNK)
class Chunk(NamedTuple):
    """A piece of live output: text, never half a UTF-8 character, which it prints as, and `data`, its bytes."""

    stream: StreamName
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode()

    def __str__(self) -> str:
        return self.text


class CodeError(NamedTuple):
    name: str
    value: str
    traceback: str


class Result(NamedTuple):
    """One displayed value of a cell, as a MIME bundle: text, base64, or JSON, whatever the MIME type needs.

    The properties are None for a form that the value does not have. What is in them comes from the sandbox: HTML
    and JavaScript may do anything in the page that you put them into.
    """

    data: Mapping[str, Json]
    is_main: bool = True

    @property
    def formats(self) -> tuple[str, ...]:
        """The MIME types."""
        return tuple(self.data)

    @property
    def text(self) -> str | None:
        return self.data.get("text/plain")

    @property
    def html(self) -> str | None:
        return self.data.get("text/html")

    @property
    def markdown(self) -> str | None:
        return self.data.get("text/markdown")

    @property
    def latex(self) -> str | None:
        return self.data.get("text/latex")

    @property
    def svg(self) -> str | None:
        return self.data.get("image/svg+xml")

    @property
    def javascript(self) -> str | None:
        return self.data.get("application/javascript")

    @property
    def png(self) -> bytes | None:
        return self._decoded("image/png")

    @property
    def jpeg(self) -> bytes | None:
        return self._decoded("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        return self._decoded("application/pdf")

    @property
    def json(self) -> Json:
        return self.data.get("application/json")

    @property
    def chart(self) -> dict[str, Json] | None:
        """The numbers in a matplotlib figure, with the members that E2B's charts have: `type`, `title`, `elements`…"""
        return self.data.get("application/vnd.atoll.chart+json")

    @property
    def plotly(self) -> dict[str, Json] | None:
        """A plotly figure, as `plotly.graph_objects.Figure` takes it."""
        return self.data.get("application/vnd.plotly.v1+json")

    @property
    def vega(self) -> dict[str, Json] | None:
        """The Vega or Vega-Lite specification of an altair chart."""
        return next((data for mime, data in self.data.items() if mime.startswith("application/vnd.vega")), None)

    def _decoded(self, mime: str) -> bytes | None:
        """Raises ValueError for data that no sandbox has sent: what one sends is checked when it arrives."""
        data = self.data.get(mime)
        if data is None:
            return None
        try:
            return binascii.a2b_base64("".join(data.split()), strict_mode=True)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"The {mime} of this result is not base64 text: {error}.") from None

    def __repr__(self) -> str:
        """With its text, and of other forms the names alone."""
        forms = [f"{mime!r}: {_cut(data) if mime == 'text/plain' else '…'}" for mime, data in self.data.items()]
        return _told(self, {"data": f"{{{', '.join(forms)}}}"})

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Json]:
        """For your own notebook: what can do no harm there. HTML comes in a frame that runs no scripts."""
        shown = {mime: data for mime, data in self.data.items() if mime in _HARMLESS}
        if self.html is not None:
            shown["text/html"] = self._repr_html_()
        return shown

    def _repr_html_(self) -> str | None:
        if self.html is None:
            return None
        page = (_FRAME_POLICY + self.html).replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe sandbox srcdoc="{page}" style="width: 100%; height: 20em; border: 0"></iframe>'


# A page of a notebook may do whatever its user may, so nothing that could run there comes from a sandbox.
_HARMLESS = frozenset(("text/plain", "image/png", "image/jpeg", "application/json"))
_FRAME_POLICY = (
    '<meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)


@elsewhere(EXECUTION)
class Execution(NamedTuple):
    """How a cell ended. `state_lost` says whether variables of earlier cells are gone.

    `exit_code` is there for languages whose cells are programs or shell commands.
    """

    results: tuple[Result, ...]
    stdout: str
    stderr: str
    error: CodeError | None
    count: int  # type: ignore[assignment]  # the cell's number hides tuple.count, which nobody calls here
    duration: float
    timed_out: bool = False
    truncated: bool = False
    state_lost: bool = False
    exit_code: int | None = None

    @property
    def text(self) -> str | None:
        return next((r.text for r in self.results if r.is_main), None)

    @property
    def success(self) -> bool:
        """Whether it ran to its end without an error, in time, and all that it said and showed is here."""
        return self.error is None and not self.timed_out and not self.truncated

    def __repr__(self) -> str:
        """With the beginning of what is long."""
        error = None if self.error is None else f"CodeError({self.error.name}: {_cut(self.error.value)})"
        return _told(self, {"stdout": _cut(self.stdout), "stderr": _cut(self.stderr), "error": str(error)})

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Json]:
        """For your own notebook: its value, or what it showed last, and as text all that it said, too."""
        said = [self.stdout, self.stderr, *(each.text or "" for each in self.results if each.is_main)]
        if self.error is not None:
            said.append(self.error.traceback)
        chosen = [each for each in self.results if each.is_main] or [*self.results]
        shown = chosen[-1]._repr_mimebundle_() if chosen else {}
        return {**shown, "text/plain": "".join(each if each.endswith("\n") else f"{each}\n" for each in said if each)}


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
