"""AsyncSandbox: a place to run code in, behind whichever wall its driver builds.

Written once, as coroutines: `atoll.sync.Sandbox` is the same with blocking I/O (see `atoll.io`).
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from .client import lifecycle, running
from .client.auditing import AsyncAudited
from .client.batch import AsyncBatch
from .client.command import (
    MAX_OUTPUT,
    Command,
    Seconds,
    Timeout,
    choose_timeout,
    exec_request,
    terminal_size,
)
from .client.keywords import Labelled, OverSource, Wishes
from .client.lifetime import AsyncLifetime
from .client.links import Links
from .client.pending import Pending
from .client.processes import AsyncProcesses
from .client.record import Record
from .client.review import AsyncReview
from .client.running import Callback, Listener, Running
from .client.timeline import AsyncTimeline
from .hints import SANDBOX, Hinting, elsewhere, hinting, not_made
from .io import AnyIO
from .types import Codebase, Completed, ContextInfo, Execution, Info, PermissionsLike, Status

if TYPE_CHECKING:  # what a first `run` does not need is imported by whoever needs it
    from .client.cells import AsyncCell, ErrorCallback, InputCallback, ResultCallback
    from .client.contexts import AsyncContexts
    from .client.feed import Input
    from .client.files import AsyncFiles
    from .client.output import AsyncOutput
    from .client.process import AsyncProcess
    from .client.session import AsyncSession
    from .client.tools import Function, Tools
    from .client.variables import AsyncVariables

_DESTROY = 60.0


@elsewhere(SANDBOX)
class AsyncSandbox(
    AsyncBatch, AsyncLifetime, AsyncReview, AsyncTimeline, AsyncAudited, AsyncProcesses, metaclass=Hinting
):
    """A sandbox. It lives until `destroy`, its lifetime, or the end of its `async with` block.

    It outlives the process that made it: `AsyncSandbox.connect(id)` finds it again. Safe to use from many
    tasks at once; every operation has a stream of its own, and one that is cancelled or interrupted makes
    the guest end what it was doing. Every method may raise `SandboxGone`, and `Busy` while it is paused
    or stopped.
    """

    @hinting
    def __init__(self, record: Record, tools: Tools | None = None) -> None:
        """For internal use: `create`, `connect`, `find` and `get_or_create` make sandboxes."""
        if not isinstance(record, Record):
            raise TypeError(not_made(type(self)))
        self._record = record
        self._links = Links(record)
        self._files: AsyncFiles | None = None
        self._variables: AsyncVariables | None = None
        self._contexts: AsyncContexts | None = None
        self._tools = tools

    @classmethod
    def create(cls, driver: str | None = None, **wishes: Unpack[Wishes]) -> Pending[Self]:
        """Make a sandbox.

        Args:
            driver: the wall; `$ATOLL_DRIVER` or "jail" unless given.
            image: a directory or tar with the root file system; the host's own system files unless given.
            source: a directory of the host that is the workspace at first; it is never changed. Code inside sees it as
                `preset` and `permissions` say.
            network: "none", "all", or "host" for the weaker wall that shares the host's.
            resources: a `Resources`, or a mapping such as `{"memory": "512M", "cpu": 1.0, "pids": 256, "disk": "1G"}`.
            env: variables for everything that runs in it.
            labels: words of your own, by which `find` and `list` know it.
            timeout: seconds, a `timedelta`, or text such as "5m", for one command or cell that asks for no other; None
                is without end.
            lifetime: as long, until it ends by itself, even when its maker is gone.
            workdir: the directory that commands start in.
            strict: refuse a host where a limit could only be polled and not enforced.
            packages: Python packages to have in it, as pip writes them. They are installed once, behind a wall, and
                kept for every later sandbox that asks for the same.
            preset: the rules for a source: "agent-safe" unless given, which shows what is no secret and lets code write
                in output/ and tmp/. "development" lets it write all but secrets, "full-access" is without rules.
            permissions: rules of your own: instead of the preset, or with `preset=` in addition to it, weighed by
                their priorities.
            ignore: what of the source is not there at all, as `.gitignore` writes it.
            codebase: a stored tree, by its id or name, as the source.
            snapshot: begin with the files and variables of this one; see `snapshot`.
            audit: have `audit` tell also what the kernel denies to the code inside. Only root can; as long as such a
                sandbox lives, every system call of this machine takes about 0.1 µs more.
            on_progress: called with each line that the installer says, the first time.
            tools: functions of this process that cells may call by name, with JSON arguments; a mapping, or `Tools`
                with limits of your own. They are there for cells that this object runs.

        Raises:
            InvalidInput: a value that cannot be, with what to write instead.
            Unsupported: the driver cannot honour it; nothing was started.
            DriverError: there is no such driver, or it cannot work on this host.
            CreateFailed: it could not be built; nothing is left of it.
            PackagesFailed: the packages could not be installed; the message says why.
        """
        return Pending(cls._create(driver, wishes))

    @classmethod
    async def _create(cls, driver: str | None, wishes: Mapping[str, Any]) -> Self:
        rest, offered = lifecycle.taken_apart(wishes, awaited=True)
        return cls(await lifecycle.create(AnyIO(), driver, **rest), offered)

    @classmethod
    def from_local(
        cls,
        path: str | os.PathLike[str],
        preset: PermissionsLike = "agent-safe",
        *,
        driver: str | None = None,
        ignore_file: str | None = None,
        **wishes: Unpack[OverSource],
    ) -> Pending[Self]:
        """A sandbox over a directory of yours, with rules. Nothing reaches the directory but by `apply`.

        Args:
            path: the directory.
            preset: the rules: the name of a preset, or rules. Those of `permissions=` come in addition to it.
            driver: the wall, as for `create`.
            ignore_file: a file in the directory with more of what `ignore=` takes, such as ".gitignore".
            wishes: the other keywords of `create`.
        """
        return Pending(cls._create(driver, lifecycle.over_source(path, preset, ignore_file, wishes)))

    @classmethod
    def from_codebase(
        cls,
        id: str,
        preset: PermissionsLike = "agent-safe",
        *,
        driver: str | None = None,
        **wishes: Unpack[OverSource],
    ) -> Pending[Self]:
        """A sandbox over a stored codebase, by its id or name, with rules.

        The keywords are those of `create`; rules of `permissions=` come in addition to the preset.
        """
        return Pending(cls._create(driver, lifecycle.over(wishes, preset, codebase=id)))

    @classmethod
    def connect(cls, id: str, *, tools: Tools | Mapping[str, Function] | None = None) -> Pending[Self]:
        """A sandbox that exists, whichever process made it; `tools` as for `create`.

        Args:
            id: its id, or the beginning of it that no other has.

        Raises:
            SandboxNotFound: no sandbox has that id.
            SandboxGone: it has ended; the message says why.
            InvalidInput: several ids begin so.
        """
        return Pending(cls._connect(id, tools))

    @classmethod
    async def _connect(cls, id: str, tools: Tools | Mapping[str, Function] | None) -> Self:
        offered = lifecycle.offered_tools(tools, awaited=True)
        return cls(await lifecycle.connect(AnyIO(), id), offered)

    @classmethod
    async def list(
        cls,
        labels: Mapping[str, str] | None = None,
        *,
        driver: str | None = None,
        status: Status | None = None,
        codebase: str | Codebase | None = None,
    ) -> builtins.list[Info]:
        """The sandboxes of this user that carry all of `labels`, newest first, as they stand now.

        One that has ended without `destroy` is swept up and told of once, with the status "gone" and a reason.
        The other arguments leave out those behind other walls, in another status, or over another codebase.
        """
        return await lifecycle.listing(AnyIO(), labels, driver, status, codebase)

    @classmethod
    async def find(
        cls, labels: Mapping[str, str], *, tools: Tools | Mapping[str, Function] | None = None
    ) -> Self | None:
        """The newest living sandbox that carries all of `labels`, or None; `tools` as for `create`."""
        offered = lifecycle.offered_tools(tools, awaited=True)
        record = await lifecycle.find(AnyIO(), labels)
        return None if record is None else cls(record, offered)

    @classmethod
    def get_or_create(
        cls, labels: Mapping[str, str], driver: str | None = None, **wishes: Unpack[Labelled]
    ) -> Pending[Self]:
        """The newest living sandbox that carries all of `labels`, or a new one, made with the keywords of `create`.

        Of many callers at once, in this or other processes, one makes it and all get it.
        """
        return Pending(cls._get_or_create(labels, driver, wishes))

    @classmethod
    async def _get_or_create(cls, labels: Mapping[str, str], driver: str | None, wishes: Mapping[str, Any]) -> Self:
        rest, offered = lifecycle.taken_apart(wishes, awaited=True)
        return cls(await lifecycle.get_or_create(AnyIO(), labels, driver, **rest), offered)

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def driver(self) -> str:
        return self._record.driver.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self._record.info.labels

    @property
    def info(self) -> Info:
        """What was last known of it, without asking anybody; `refresh` asks."""
        return self._record.info

    @property
    def files(self) -> AsyncFiles:
        if self._files is None:
            from .client.files import AsyncFiles

            self._files = AsyncFiles(self._links, self._record)
        return self._files

    @property
    def contexts(self) -> AsyncContexts:
        if self._contexts is None:
            from .client.contexts import AsyncContexts

            self._contexts = AsyncContexts(self._links)
        return self._contexts

    @property
    def variables(self) -> AsyncVariables:
        if self._variables is None:
            from .client.variables import AsyncVariables

            self._variables = AsyncVariables(self._links, self.info.spec.resources.memory)
        return self._variables

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with self._links.io.shield(_DESTROY):
            await self.destroy()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} on {self.driver}, {self.info.status}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled it is its id, and connects when it is loaded. Its tools stay behind: they are of this process."""
        return _connected, (type(self), self.id)

    @hinting
    async def run(
        self,
        command: Command,
        *,
        shell: str | None = None,
        stdin: Input | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Timeout = "default",
        check: bool = False,
        max_output: int = MAX_OUTPUT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> Completed:
        """Run a command to its end. Text goes to a shell, a list is a program and its arguments.

        Args:
            shell: the name of one; unless given, bash where the sandbox has it, else `/bin/sh`.
            stdin: text, bytes, a file object, or an iterable of pieces.
            env: variables on top of the sandbox's.
            workdir: where it starts; the sandbox's workdir unless given.
            timeout: seconds, a `timedelta`, or text such as "5m", until it is killed with all that it started; None is
                without end. The sandbox's own unless given.
            check: raise `CommandFailed` when the exit code is not 0.
            max_output: bytes of output that are passed on; the rest is dropped, and `truncated` says so.
            on_stdout, on_stderr: called with text as it comes, never half a character; with `by_line(f)`, f is called
                with lines, with `by_bytes(f)` with bytes. What is not UTF-8 is U+FFFD in text; the result has
                `stdout_bytes` and `stderr_bytes`, too.

        Raises:
            CommandFailed: `check` was asked for, and the command failed; `CommandTimedOut` where its time was over.
            Unresponsive: the guest did not answer in time.
        """
        running.check_listener(self._links.io, "on_stdout", on_stdout)
        running.check_listener(self._links.io, "on_stderr", on_stderr)
        request = self._exec(command, shell, env, workdir, timeout, max_output, stdin=stdin is not None)
        feed = running.feed_of(self._links.io, stdin)
        return await running.run(self._links, request, feed, check=check, on_stdout=on_stdout, on_stderr=on_stderr)

    @hinting
    def stream(
        self,
        command: Command,
        *,
        shell: str | None = None,
        stdin: Input | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Timeout = "default",
        max_output: int | None = None,
    ) -> AsyncOutput:
        """The output of a command as it comes: iterate over it, then look at its `result`.

        The command starts when the first chunk is asked for, and dies when the iteration is left early. A chunk has
        its text, and as `data` its bytes.
        """
        from .client.output import AsyncOutput

        request = self._exec(command, shell, env, workdir, timeout, max_output, stdin=stdin is not None)
        feed = running.feed_of(self._links.io, stdin)

        async def start() -> Running:
            return await running.launch(self._links, request, feed)

        return AsyncOutput(start)

    @hinting
    async def start(
        self,
        command: Command,
        *,
        shell: str | None = None,
        pty: bool | tuple[int, int] = False,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Seconds | None = None,
    ) -> AsyncProcess:
        """Start a process that lives on its own, with a terminal if `pty` is True or (rows, columns).

        It outlives this object and this process; `attach(pid)` finds it again. It may run for as long as the
        sandbox lives, unless a `timeout` is given.
        """
        request = self._exec(command, shell, env, workdir, timeout, None, stdin=True)
        request["hold"] = True
        size = terminal_size(pty)
        if size is not None:
            request["pty"] = size
        from .client.process import hold

        return await hold(self._links, request)

    @hinting
    async def run_code(
        self,
        code: str,
        *,
        context: str | ContextInfo | None = None,
        language: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Timeout = "default",
        max_output: int = MAX_OUTPUT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
        on_result: ResultCallback | None = None,
        on_error: ErrorCallback | None = None,
        on_input: InputCallback | None = None,
    ) -> Execution:
        """Run code in a context that keeps its state from cell to cell.

        The value of the last expression is the main result. Code that raises is data: see `error`. After a
        timeout `timed_out` is True, and `state_lost` says whether the variables are gone.

        Args:
            context: "main" unless given; one that is not there is made.
            language: Python unless given, or what the context is for. Without a context it means the one that
                is named after the language.
            env, workdir: for this cell only.
            on_stdout, on_stderr, on_result, on_error: called as it comes, in the order of the cell.
            on_input: called with the prompt of an `input()`; gives the line. Without it `input()` raises there.
        """
        from .client import cells

        listeners = cells.Listeners(on_stdout, on_stderr, on_result, on_error, on_input, self._tools)
        request = self._code(code, context, language, env, workdir, timeout, max_output)
        return await cells.run_code(self._links, request, listeners)

    @hinting
    def stream_code(
        self,
        code: str,
        *,
        context: str | ContextInfo | None = None,
        language: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Timeout = "default",
        max_output: int = MAX_OUTPUT,
        on_input: InputCallback | None = None,
    ) -> AsyncCell:
        """What a cell says and shows, as it comes: iterate over it, then look at its `execution`.

        The cell starts when the first piece is asked for, and is stopped when the iteration is left early.
        """
        from .client import cells

        request = self._code(code, context, language, env, workdir, timeout, max_output)
        hearing = cells.Hearing(self._links, request["limit"], cells.Listeners(on_input=on_input, tools=self._tools))
        return cells.AsyncCell(lambda answering: cells.begin(self._links, request, answering), hearing)

    def _code(
        self, code: object, context: object, language: object, env: Any, workdir: Any, timeout: Timeout, limit: int
    ) -> dict[str, Any]:
        from .client.cells import code_request

        seconds = choose_timeout(timeout, self.info.spec.timeout)
        return code_request(code, context, language, env=env, workdir=workdir, timeout=seconds, max_output=limit)

    @hinting
    async def install(
        self, packages: str | Iterable[str], *, timeout: Seconds | None = 600.0, on_progress: Callback | None = None
    ) -> None:
        """Install Python packages in this sandbox, for commands and for contexts that run already.

        It needs a network: `network="all"` when the sandbox is made. Packages that are known before are better
        given to `create`, which installs them once for all sandboxes.

        Args:
            packages: requirements as pip writes them, such as "numpy" or "pandas>=2"; a text is one of them.
            timeout: seconds until the installer is killed; None is without end.
            on_progress: called with each line that the installer says.

        Raises:
            Unsupported: the sandbox has no network, or its driver no packages.
            PackagesFailed: the installer failed; the message says why.
        """
        from .client.installing import install

        await install(self._links, self._record, packages, timeout=timeout, on_progress=on_progress)

    @hinting
    async def session(
        self,
        shell: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        id: str | None = None,
    ) -> AsyncSession:
        """Open a shell that keeps its directory, variables and functions from command to command.

        Args:
            shell: "bash" unless given, or "zsh", or "sh"; a path such as "/bin/bash" means the one of that name.
            env: variables on top of the sandbox's.
            workdir: where it starts; the sandbox's workdir unless given.
            id: of a session that is there, to go on with instead.

        Raises:
            Unsupported: the sandbox does not have that shell; the message says how to get it.
            SessionEnded: no session has that id any more.
        """
        from .client import session

        return await session.open_session(self._links, self.info.spec.timeout, shell, env, workdir, id)

    async def interrupt(self, context: str | ContextInfo = "main") -> bool:
        """Interrupt the cell that runs in a context, as Ctrl-C does; whether there was one."""
        return await self.contexts.interrupt(context)

    def _exec(
        self,
        command: Command,
        shell: str | None,
        env: Mapping[str, str] | None,
        workdir: str | os.PathLike[str] | None,
        timeout: Timeout,
        limit: int | None,
        *,
        stdin: bool,
    ) -> dict[str, Any]:
        seconds = choose_timeout(timeout, self.info.spec.timeout)
        return exec_request(command, shell, stdin=stdin, env=env, workdir=workdir, timeout=seconds, limit=limit)


def _connected(cls: type[AsyncSandbox], id: str) -> AsyncSandbox:
    return cls(lifecycle.connect_at_once(id, AnyIO()))
