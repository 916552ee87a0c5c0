"""The contract between atoll and a wall. A new wall implements this and nothing else.

Adding one is: a module with a `Driver`, a line in `registry`, an extra in pyproject.toml if it needs
one, and a five-line class that runs `atoll.testing.DriverConformance` on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from .errors import Unsupported
from .io import IO, Stream
from .types import Capability, Denial, Handle, Info, Isolation, Json, Layer, Metrics, Offers, Permissions, Spec, Status

AUDIT = ("files", "gate")
"""The sources of denials that need no driver."""

ISOLATION: tuple[Isolation, ...] = ("none", "process", "container", "runtime", "kernel", "machine")
"""How strong a wall is, the weakest first: nothing at all; a process of its own with limits, which is no boundary; the
host's kernel behind namespaces and filters; the few calls of a language runtime; a kernel of its own in user space; a
machine of its own."""

Register = Callable[[Handle], None]
Manifest = Mapping[str, Json]


class Staged(NamedTuple):
    """What a review looks at: descriptors, the caller's to close, whose content is hostile.

    Args:
        merged: of the workspace as the sandbox sees it.
        uppers: of the overlay directories with its changes, newest first.
        source: the directory that these are changes of.
        base: the file in which is written how that was at first; it may not be there.
    """

    merged: int
    uppers: tuple[int, ...]
    source: str
    base: str


class GuestStream(Protocol):
    """A byte stream to a guest. `recv` gives b"" at the end; `close` never blocks and never raises.

    Both `send` and `recv` raise TimeoutError or another OSError, and nothing else. `stale` says of an idle stream that
    it has ended or holds bytes nobody asked for.
    """

    async def send(self, data: bytes) -> None: ...
    async def recv(self, timeout: float | None = None) -> bytes: ...
    def stale(self) -> bool: ...
    def close(self) -> None: ...


class Driver(ABC):
    """One wall. Instances are cheap, hold no sandbox, and may be used by many threads or tasks.

    What `offers` does not name is never asked of it: the fields of a spec and the calls are refused before.

    Every method may raise `SandboxGone` for a handle whose sandbox has ended.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    isolation: ClassVar[Isolation] = "none"
    capabilities: ClassVar[frozenset[Capability]]
    names_images: ClassVar[bool] = False
    """Whether `Spec.image` may be a name that the wall knows, and not only an absolute path."""
    python: ClassVar[str | None] = None
    """Where the Python that packages are for is in its sandboxes; None for the place of the one that runs this."""
    careful: bool = False
    """Whether the strongest wall was asked for: it is not to be made of what is less tried, for a quicker start."""

    def __init__(self, io: IO) -> None:
        self.io = io

    async def offers(self) -> Offers:
        """What it can do here and now, at most `capabilities`; asked often, so it answers at once or remembers."""
        return Offers(self.capabilities, self.names_images)

    @abstractmethod
    async def create(self, spec: Spec, register: Register, resume: Handle | None = None) -> Handle:
        """Build a sandbox and give it to the caller.

        `register` is called once, when the sandbox is ready and before it is kept: if it raises, or if
        this process dies before it returns, the sandbox is torn down. `resume` is the handle of a
        stopped sandbox whose files are to be used again.

        Raises:
            Unsupported: the spec asks for what this wall cannot honour; nothing was started.
            WallUnavailable: the host lacks what the wall is made of.
            CreateFailed: it could not be built; nothing is left of it.
        """

    @abstractmethod
    async def open_guest(self, handle: Handle) -> GuestStream:
        """A fresh byte stream to the guest, which speaks docs/reference/protocol.md."""

    @abstractmethod
    async def status(self, handle: Handle) -> Status:
        """Whether it runs, judged by the sandbox itself and not by a record. Never raises SandboxGone."""

    @abstractmethod
    async def destroy(self, handle: Handle) -> None:
        """End it and remove everything of it. Destroying one that is gone sweeps up and succeeds."""

    @abstractmethod
    async def health(self) -> list[Layer]:
        """Each layer of the wall on this host. Starts nothing, changes nothing."""

    async def first_use(self, spec: Spec) -> str | None:
        """What takes long before the first sandbox of this kind here, as a sentence; None where nothing does. It only
        looks."""
        return None

    async def ending(self, handle: Handle) -> str | None:
        """Why a sandbox has ended by itself, as the second half of a sentence; None where nobody can tell."""
        return None

    async def workshop(self, spec: Spec, shown: Sequence[str]) -> Handle:
        """A sandbox to build packages in, which nobody else sees and which ends with this process at the latest.

        `shown` are files and directories of the host that it sees read-only as `/shown/0`, `/shown/1`, … A driver
        whose `create` honours `Spec.packages` with atoll's own environments has one: `create` raises
        `packages.cache.NotBuilt`, one is built here, and `create` is called again.
        """
        raise Unsupported(f"The {self.name} driver cannot install packages.", hint="Leave packages= out.")

    async def describe(self, handle: Handle, info: Info) -> Info:
        """Fill in what only the driver knows: the limits' enforcement, the walls that stand, what `audit` hears of."""
        return info._replace(audit=AUDIT)

    async def denials(self, handle: Handle) -> tuple[list[Denial], int]:
        """What the kernel refused to the code inside, oldest first, and how many more there were; also of one that
        has ended. Nothing, where nobody listens."""
        return [], 0

    async def set_lifetime(self, handle: Handle, seconds: float) -> None:
        """Let it live for so long from now."""
        raise Unsupported(f"The {self.name} driver cannot change a lifetime.")

    async def metrics(self, handle: Handle) -> Metrics:
        """What the sandbox uses now, measured from outside the wall."""
        raise Unsupported(f"The {self.name} driver has no metrics.")

    async def pause(self, handle: Handle) -> None:
        """Freeze every process of it."""
        raise Unsupported(f"The {self.name} driver cannot pause.")

    async def resume(self, handle: Handle) -> None:
        """Thaw a paused one."""
        raise Unsupported(f"The {self.name} driver cannot resume.")

    async def keep(self, handle: Handle) -> None:
        """A checkpoint was made: should it end otherwise than by `destroy` or its time, it counts as stopped."""
        raise Unsupported(f"The {self.name} driver cannot keep a sandbox beyond its end.")

    async def stop(self, handle: Handle) -> None:
        """End every process and keep the files; `create(resume=handle)` starts it again."""
        raise Unsupported(f"The {self.name} driver cannot stop.")

    async def snapshot(self, handle: Handle, name: str, facts: Manifest, *, force: bool) -> Manifest:
        """Keep its files as they are now under a name; `facts` are kept with them and given back by `snapshots`.

        Processes go on and notice nothing. Where files are layers, time does not depend on the amount of data; where
        they are copied, all stands still meanwhile.

        Raises:
            InvalidInput: there is a snapshot of that name.
            Busy: a process has a file open to write to; named in the message. With `force` it is ended instead.
        """
        raise Unsupported(f"The {self.name} driver has no snapshots.")

    async def snapshots(self) -> list[Manifest]:
        """Every snapshot: its `facts`, with `name`, `created`, `size` and `layers`."""
        raise Unsupported(f"The {self.name} driver has no snapshots.")

    async def find_snapshot(self, name: str) -> Manifest:
        """One of them. Raises SnapshotNotFound."""
        raise Unsupported(f"The {self.name} driver has no snapshots.", hint="Leave snapshot= out.")

    async def delete_snapshot(self, name: str) -> None:
        """Forget one. Sandboxes that were made of it live on. Raises SnapshotNotFound."""
        raise Unsupported(f"The {self.name} driver has no snapshots.")

    async def export_snapshot(self, name: str, path: str) -> None:
        """Write one to a file, which `import_snapshot` reads on any machine.

        Raises SnapshotNotFound, Unsupported, FileError.
        """
        raise Unsupported(f"The {self.name} driver cannot export snapshots.")

    async def import_snapshot(self, path: str, name: str | None, *, limit: int) -> Manifest:
        """Read one of at most `limit` bytes from a file, which may be hostile. Raises InvalidInput, FileError."""
        raise Unsupported(f"The {self.name} driver cannot import snapshots.")

    async def rollback(self, handle: Handle, name: str) -> None:
        """End all that runs in it and have its files as in a snapshot. Raises SnapshotNotFound."""
        raise Unsupported(f"The {self.name} driver cannot roll back.")

    async def fork(
        self, handle: Handle, spec: Spec, count: int, register: Register, *, wait: float, force: bool
    ) -> list[Handle]:
        """Make sandboxes that begin with its files as they are now, each registered as by `create`.

        The variables of its Python contexts are among the files: they were kept there just before.

        Raises:
            Busy: a process has a file open to write to.
        """
        raise Unsupported(f"The {self.name} driver cannot fork.")

    async def stage(self, handle: Handle) -> Staged:
        """What a review looks at. Raises InvalidInput for a sandbox without a source."""
        raise Unsupported(f"The {self.name} driver cannot show changes.")

    async def set_permissions(
        self, handle: Handle, permissions: Permissions | None, ignore: Sequence[str], *, force: bool
    ) -> str | None:
        """Have other rules from now on, also for what runs; gives the recipe that enforces them. Raises Busy."""
        raise Unsupported(f"The {self.name} driver has no path permissions.")

    async def discard(self, handle: Handle, *, force: bool) -> None:
        """Have its workspace as it was at first; the rest stays. Raises Busy, as `snapshot` does."""
        raise Unsupported(f"The {self.name} driver cannot discard changes.")


__all__ = ["Driver", "GuestStream", "Manifest", "Register", "Staged", "Stream"]
