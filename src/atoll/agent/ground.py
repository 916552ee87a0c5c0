"""The sandbox of a run: made when it is first needed, kept in snapshots, and had again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Busy, SandboxGone, SandboxNotFound, SnapshotNotFound, Unsupported

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox
    from .journal import Hold, Journal
    from .rows import Run, Step

LABEL = "atoll.run"
LIFETIME = 4 * 3600.0
CHANGING = frozenset(("run_code", "run_command", "write_file", "edit_file"))
"""The tools after whose calls a sandbox may be another than before."""

_DECIDED = ("image", "source", "codebase", "ignore", "workdir", "packages")  # a snapshot has brought these along
_PATIENCE = 30.0


class Ground:
    """One run's sandbox.

    Who goes on with a run that was interrupted uses the sandbox that it finds only when nothing in it is in doubt and
    nobody else can still be at work there. Else that one is destroyed, and another begins with the last snapshot.

    Args:
        functions: what code inside may call.
        context: what the variable `context` is, or None.
    """

    def __init__(
        self, journal: Journal, hold: Hold, run: Run, functions: Mapping[str, Callable[..., Any]], context: Any
    ) -> None:
        self._journal = journal
        self._hold = hold
        self._wishes = dict(run.settings["sandbox"])
        self._lent: str | None = self._wishes.pop("lent", None)
        self._keep = bool(run.settings.get("keep"))
        self._functions = functions
        self._context = context
        self._former = run.sandbox
        self._trusted = hold.clean
        self._sandbox: AsyncSandbox | None = None
        self._point: str | None = None
        self._unkept = 0
        self._snapshots = True
        self._why: str | None = None
        self._note: str | None = None

    @property
    def id(self) -> str | None:
        """Of the sandbox that is used now, or was before."""
        return self._sandbox.id if self._sandbox is not None else self._former

    @property
    def point(self) -> str | None:
        """The snapshot that has what was last done."""
        return self._point

    @property
    def lent(self) -> bool:
        return self._lent is not None

    @property
    def reversible(self) -> bool:
        """Whether a step in doubt can be undone without losing others. A lent sandbox is not ours to turn back."""
        return self._lent is None and not self._unkept

    def take_note(self) -> str | None:
        """What the model must be told with the next thing that it hears from the sandbox; once."""
        note, self._note = self._note, None
        return note

    def remember(self, step: Step) -> None:
        """Take into account a step that the journal has."""
        if step.kind != "tool" or step.name not in CHANGING:
            return
        if step.outcome is None:
            self._trusted = False
        elif step.snapshot is not None:
            self._point, self._unkept = step.snapshot, 0
        elif step.outcome.get("ran"):
            self._unkept += 1

    async def open(self) -> AsyncSandbox:
        """The sandbox. Raises as `AsyncSandbox.create` and `AsyncSandbox.connect` do."""
        if self._sandbox is not None:
            return self._sandbox
        if self._lent is not None:
            self._sandbox = await self._connect(self._lent)
        elif self._former is None:
            self._sandbox = await self._make()
        else:
            self._sandbox = await self._return(self._former)
        if self._sandbox.id != self._former:
            self._journal.set_sandbox(self._hold, self._sandbox.id)
        return self._sandbox

    async def mark(self, key: str) -> tuple[str | None, dict[str, str]]:
        """Keep the sandbox as it is after a step: the snapshot, and what of its variables cannot be kept.

        There is no snapshot where the wall has none, or while a process is writing a file.
        """
        if self._sandbox is None:
            return None, {}
        if not self._snapshots:
            self._unkept += 1
            return None, {}
        name = f"{self._hold.run}.{key}.{self._hold.fence}"
        try:
            made = await self._sandbox.snapshot(name)
        except (Unsupported, Busy) as error:
            self._snapshots = isinstance(error, Busy)
            self._unkept += 1
            return None, {}
        self._point, self._unkept = made.name, 0
        return made.name, dict(made.lost)

    def lose(self, reason: str) -> None:
        """The sandbox is gone, or not to be used any more; the next `open` has another one."""
        if self._sandbox is not None:
            self.leave()
            self._former, self._sandbox = self._sandbox.id, None
        self._trusted = False
        self._why = reason

    async def twin(self) -> AsyncSandbox:
        """Another sandbox that is as this one was after the last step, for the caller to use and destroy."""
        from ..sandbox import AsyncSandbox

        if self._point is not None and not self._unkept:
            return await AsyncSandbox.create(snapshot=self._point, **self._restorable())
        if self._sandbox is None and self._former is None and self._lent is None:
            return await self._fresh()
        return await (await self.open()).fork()

    async def close(self) -> None:
        """Destroy it, unless it is to be kept or was only lent."""
        if self._lent is not None or self._keep:
            return
        if self._sandbox is not None:
            await _end(self._sandbox)
        if self._former is not None and (self._sandbox is None or self._former != self._sandbox.id):
            await _destroy(self._former)

    def leave(self) -> None:
        """Let go of it, and let it live: whoever goes on with the run finds it again."""
        if self._sandbox is not None:
            self._sandbox._links.drop()  # noqa: SLF001  # in an error's traceback it would stay open for who knows how long

    async def _return(self, id: str) -> AsyncSandbox:
        """The sandbox of an interrupted run, or what can be had of it."""
        if self._trusted or (self._hold.clean and self._why is None and not self.reversible):
            try:
                return await self._connect(id)
            except (SandboxNotFound, SandboxGone) as gone:
                self._tell(f"The sandbox has ended ({gone.message.rstrip('.')}).")
        else:
            self._tell(self._why or "The program that ran this was interrupted.")
            await _destroy(id)
        return await self._make()

    def _tell(self, what: str) -> None:
        back = "It is as it was at the beginning" if self._point is None else "It is back as it was after the last step"
        if self._unkept:
            back = f"What the last {self._unkept} calls did in it is lost: it could not be kept. It is as it was before"
        self._note = f"{what} {back}. Processes that ran in it are gone."

    async def _make(self) -> AsyncSandbox:
        if self._point is None:
            return await self._fresh()
        from ..sandbox import AsyncSandbox

        try:
            return await AsyncSandbox.create(snapshot=self._point, tools=self._tools(), **self._restorable())
        except SnapshotNotFound:
            self._note = f"{self._note or ''} The snapshot {self._point} is gone: the sandbox begins empty.".strip()
            return await self._fresh()

    async def _fresh(self) -> AsyncSandbox:
        from ..sandbox import AsyncSandbox

        made = await AsyncSandbox.create(**self._common(self._wishes), tools=self._tools())
        try:
            if self._context is not None:
                await made.variables.set("context", self._context)
        except BaseException:
            await _end(made)
            raise
        return made

    async def _connect(self, id: str) -> AsyncSandbox:
        from ..sandbox import AsyncSandbox

        return await AsyncSandbox.connect(id, tools=self._tools())

    def _tools(self) -> Any:
        from ..client.tools import Tools

        return Tools(self._functions, timeout=None)

    def _restorable(self) -> dict[str, Any]:
        return self._common({name: value for name, value in self._wishes.items() if name not in _DECIDED})

    def _common(self, wishes: Mapping[str, Any]) -> dict[str, Any]:
        more: dict[str, Any] = {"labels": {**wishes.get("labels", {}), LABEL: self._hold.run}}
        if self._wishes.get("source") or self._wishes.get("codebase"):
            # What is reviewed later shall not be full of compiled modules.
            more["env"] = {"PYTHONDONTWRITEBYTECODE": "1", **(wishes.get("env") or {})}
        return {"lifetime": LIFETIME, **wishes, **more}


async def _destroy(id: str) -> None:
    from ..sandbox import AsyncSandbox

    try:
        await _end(await AsyncSandbox.connect(id))
    except (SandboxNotFound, SandboxGone):
        pass


async def _end(sandbox: AsyncSandbox) -> None:
    import anyio

    with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE):
        try:
            await sandbox.destroy()
        except (SandboxNotFound, SandboxGone):
            pass


async def sweep(run: str, *, but: str | None = None) -> None:
    """Destroy what sandboxes a run has left, as one that a crash kept from being noted down."""
    from ..sandbox import AsyncSandbox

    for info in await AsyncSandbox.list({LABEL: run}):
        if info.id != but and info.status != "gone":
            await _destroy(info.id)
