"""Sandbox: a place to run code in, blocking."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from ..client import lifecycle
from ..client.command import MAX_OUTPUT, Command, Seconds, Timeout
from ..client.keywords import Labelled, OverSource, Wishes
from ..client.record import Record
from ..client.running import Callback, Listener
from ..hints import SANDBOX, Hinting, elsewhere, hinting, not_made
from ..io import BlockingIO, drive
from ..sandbox import AsyncSandbox
from ..types import Codebase, Completed, ContextInfo, Execution, Info, PermissionsLike, Status
from .auditing import Audited
from .batch import Batch
from .docs import documented_by
from .lifetime import Lifetime
from .processes import Processes
from .review import Review
from .timeline import Timeline

if TYPE_CHECKING:  # what a first `run` does not need is imported by whoever needs it
    from ..client.cells import ErrorCallback, InputCallback, ResultCallback
    from ..client.feed import Input
    from ..client.tools import Function, Tools
    from .contexts import Cell, Contexts
    from .files import Files
    from .process import Output, Process
    from .session import Session
    from .variables import Variables


@elsewhere(SANDBOX)
@documented_by(AsyncSandbox)
class Sandbox(Batch, Lifetime, Review, Timeline, Audited, Processes, metaclass=Hinting):
    """A sandbox. It lives until `destroy`, its lifetime, or the end of its `with` block.

    It outlives the process that made it: `Sandbox.connect(id)` finds it again. Safe to use from many threads
    at once; every operation has a stream of its own, and one that Ctrl-C interrupts makes the guest end what
    it was doing. Every method may raise `SandboxGone`, and `Busy` while it is paused or stopped.
    """

    @hinting
    def __init__(self, record: Record, tools: Tools | None = None) -> None:
        if not isinstance(record, Record):
            raise TypeError(not_made(type(self)))
        self._core = AsyncSandbox(record, tools)
        self._contexts: Contexts | None = None
        self._files: Files | None = None
        self._variables: Variables | None = None

    @classmethod
    def create(cls, driver: str | None = None, **wishes: Unpack[Wishes]) -> Self:
        return cls._create(driver, wishes)

    @classmethod
    def _create(cls, driver: str | None, wishes: Mapping[str, Any]) -> Self:
        rest, offered = lifecycle.taken_apart(wishes, awaited=False)
        return cls(drive(lifecycle.create(BlockingIO(), driver, **rest)), offered)

    @classmethod
    def from_local(
        cls,
        path: str | os.PathLike[str],
        preset: PermissionsLike = "agent-safe",
        *,
        driver: str | None = None,
        ignore_file: str | None = None,
        **wishes: Unpack[OverSource],
    ) -> Self:
        return cls._create(driver, lifecycle.over_source(path, preset, ignore_file, wishes))

    @classmethod
    def from_codebase(
        cls,
        id: str,
        preset: PermissionsLike = "agent-safe",
        *,
        driver: str | None = None,
        **wishes: Unpack[OverSource],
    ) -> Self:
        return cls._create(driver, lifecycle.over(wishes, preset, codebase=id))

    @classmethod
    def connect(cls, id: str, *, tools: Tools | Mapping[str, Function] | None = None) -> Self:
        offered = lifecycle.offered_tools(tools, awaited=False)
        return cls(drive(lifecycle.connect(BlockingIO(), id)), offered)

    @classmethod
    def list(
        cls,
        labels: Mapping[str, str] | None = None,
        *,
        driver: str | None = None,
        status: Status | None = None,
        codebase: str | Codebase | None = None,
    ) -> builtins.list[Info]:
        return drive(lifecycle.listing(BlockingIO(), labels, driver, status, codebase))

    @classmethod
    def find(cls, labels: Mapping[str, str], *, tools: Tools | Mapping[str, Function] | None = None) -> Self | None:
        offered = lifecycle.offered_tools(tools, awaited=False)
        record = drive(lifecycle.find(BlockingIO(), labels))
        return None if record is None else cls(record, offered)

    @classmethod
    def get_or_create(cls, labels: Mapping[str, str], driver: str | None = None, **wishes: Unpack[Labelled]) -> Self:
        rest, offered = lifecycle.taken_apart(wishes, awaited=False)
        return cls(drive(lifecycle.get_or_create(BlockingIO(), labels, driver, **rest)), offered)

    @property
    def id(self) -> str:
        return self._core.id

    @property
    def driver(self) -> str:
        return self._core.driver

    @property
    def labels(self) -> Mapping[str, str]:
        return self._core.labels

    @property
    def info(self) -> Info:
        """What was last known of it, without asking anybody; `refresh` asks."""
        return self._core.info

    @property
    def files(self) -> Files:
        if self._files is None:
            from .files import Files

            self._files = Files(self._core.files)
        return self._files

    @property
    def variables(self) -> Variables:
        if self._variables is None:
            from .variables import Variables

            self._variables = Variables(self._core.variables)
        return self._variables

    @property
    def contexts(self) -> Contexts:
        if self._contexts is None:
            from .contexts import Contexts

            self._contexts = Contexts(self._core.contexts)
        return self._contexts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} on {self.driver}, {self.info.status}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).connect, (self.id,)

    @hinting
    def run(
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
        return drive(
            self._core.run(
                command, shell=shell, stdin=stdin, env=env, workdir=workdir, timeout=timeout, check=check,
                max_output=max_output, on_stdout=on_stdout, on_stderr=on_stderr,
            )
        )  # fmt: skip

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
    ) -> Output:
        from .process import Output

        return Output(
            self._core.stream(
                command, shell=shell, stdin=stdin, env=env, workdir=workdir, timeout=timeout, max_output=max_output
            )
        )

    @hinting
    def start(
        self,
        command: Command,
        *,
        shell: str | None = None,
        pty: bool | tuple[int, int] = False,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        timeout: Seconds | None = None,
    ) -> Process:
        from .process import Process

        return Process(
            drive(self._core.start(command, shell=shell, pty=pty, env=env, workdir=workdir, timeout=timeout))
        )

    @hinting
    def run_code(
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
        return drive(
            self._core.run_code(
                code, context=context, language=language, env=env, workdir=workdir, timeout=timeout,
                max_output=max_output, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result,
                on_error=on_error, on_input=on_input,
            )
        )  # fmt: skip

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
    ) -> Cell:
        from .contexts import Cell

        return Cell(
            self._core.stream_code(
                code, context=context, language=language, env=env, workdir=workdir, timeout=timeout,
                max_output=max_output, on_input=on_input,
            )
        )  # fmt: skip

    @hinting
    def install(
        self, packages: str | Iterable[str], *, timeout: Seconds | None = 600.0, on_progress: Callback | None = None
    ) -> None:
        drive(self._core.install(packages, timeout=timeout, on_progress=on_progress))

    @hinting
    def session(
        self,
        shell: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        id: str | None = None,
    ) -> Session:
        from .session import Session

        return Session(drive(self._core.session(shell, env=env, workdir=workdir, id=id)))

    def interrupt(self, context: str | ContextInfo = "main") -> bool:
        return drive(self._core.interrupt(context))
