"""AsyncSession: a shell that stays, so that a command finds what the ones before it have left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import monotonic
from typing import Any, Self

from ..errors import InvalidInput, ProtocolError, SandboxError, SessionEnded, TimedOut, command_failed
from ..hints import SESSION, elsewhere
from ..policy.sizes import parse_size
from ..policy.text import kind_of, short, shown
from ..types import Completed
from ..wire.frames import DATA, END, Frame
from . import answers, running
from .command import MAX_OUTPUT, Timeout, add_surroundings, choose_timeout
from .links import Links
from .output import AsyncOutput
from .running import Audience, Gathered, Listener, Running, check_listener

_CLOSE = 60.0
_OUT_OF_TIME = 124


@elsewhere(SESSION)
class AsyncSession:
    """A shell session: its directory, variables, functions, aliases and options last from command to command.

    Commands of one session run one after the other, those of different ones at once. A command sees no
    standard input. One that runs out of time is interrupted, then killed with what it has started; the session
    goes on, with its state, unless the shell itself had to be killed. `exit` ends it, and so does whatever else
    ends its shell: the next command raises `SessionEnded`. It outlives this object until `close` or the end of
    its `with` block.
    """

    def __init__(self, links: Links, id: str, shell: str, timeout: float | None) -> None:
        self._links = links
        self._id = id
        self._shell = shell
        self._timeout = timeout
        self._closed = False

    @property
    def id(self) -> str:
        """What `session(id=...)` finds it by again, from here or from another process."""
        return self._id

    @property
    def shell(self) -> str:
        """The shell's name."""
        return self._shell

    async def run(
        self,
        command: str,
        *,
        timeout: Timeout = "default",
        check: bool = False,
        max_output: int = MAX_OUTPUT,
        on_stdout: Listener | None = None,
        on_stderr: Listener | None = None,
    ) -> Completed:
        """Run a command, of one or many lines, to its end. The arguments are those of `Sandbox.run`.

        What runs in the background when it ends goes on; what that writes later comes with the next command.

        Raises:
            SessionEnded: its shell has ended before, or was closed.
            CommandFailed: `check` was asked for, and the command failed; `CommandTimedOut` where its time was over.
        """
        check_listener(self._links.io, "on_stdout", on_stdout)
        check_listener(self._links.io, "on_stderr", on_stderr)
        limit = parse_size(max_output, "max_output")
        under_way = await self._launch(command, timeout, limit)
        gathered = Gathered(limit)
        audience = Audience(on_stdout, on_stderr)
        async with under_way.operation:
            while isinstance(item := await under_way.next(), Frame):
                gathered.take(item)
                await audience.hear(item)
        await audience.finish()
        completed = gathered.complete(item)
        if check and not completed.success:
            raise command_failed(completed, short(command), choose_timeout(timeout, self._timeout))
        return completed

    def stream(self, command: str, *, timeout: Timeout = "default", max_output: int | None = None) -> AsyncOutput:
        """The output of a command as it comes: iterate over it, then look at its `result`.

        The command starts when the first chunk is asked for. Leaving the iteration early stops it as a timeout does.
        """

        limit = None if max_output is None else parse_size(max_output, "max_output")

        async def start() -> Running:
            return await self._launch(command, timeout, limit)

        return AsyncOutput(start)

    async def interrupt(self) -> bool:
        """Interrupt the command that runs, as Ctrl-C does; whether there was one."""
        return answers.flag(await self._ask("interrupt_session"), "interrupted")

    async def close(self) -> None:
        """End the shell and all that was started in it, in the background too. Doing so twice is harmless."""
        if not self._closed:
            self._closed = True
            await self._links.ask("close_session", session=self._id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with self._links.io.shield(_CLOSE):
            await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id} of {self._shell}{', closed' if self._closed else ''}>"

    async def _ask(self, op: str) -> dict[str, Any]:
        self._check_open()
        return await self._links.ask(op, session=self._id)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionEnded(f"Session {self._id} was closed.", hint="Open another one.")

    async def _launch(self, command: object, timeout: Timeout, limit: int | None) -> _Command:
        self._check_open()
        seconds = choose_timeout(timeout, self._timeout)
        request: dict[str, Any] = {
            "op": "session",
            "session": self._id,
            "command": _checked(command),
            "timeout": seconds,
        }
        if limit is not None:
            request["limit"] = limit
        deadline = None if seconds is None else monotonic() + seconds + running.GRACE
        operation = await self._links.open(request, quiet=None, deadline=deadline)
        return _Command(operation, None, await self._links.hint(request))


class _Command(Running):
    """A command of a session under way."""

    async def next(self, timeout: float | None = None) -> Frame | Completed:
        try:
            while True:
                frame = await self.operation.next(timeout)
                if frame.kind == DATA:
                    return self.heard(frame)
                if frame.kind == END:
                    return self.explained(_completed(self.operation.answer(frame)))
                raise self.operation.unexpected(frame)
        except TimedOut:
            raise
        except BaseException:
            self.operation.close()
            raise


async def open_session(
    links: Links,
    timeout: float | None,
    shell: object,
    env: Mapping[str, str] | None,
    workdir: str | os.PathLike[str] | None,
    id: object,
) -> AsyncSession:
    """A new session, or the one that has that id; `timeout` is for its commands.

    Raises:
        InvalidInput: a value that cannot be.
        Unsupported: the sandbox does not have that shell.
        SessionEnded: there is no session with that id.
    """
    # Of a path the name: the sandbox's own, wherever it lies in there.
    request: dict[str, Any] = {} if shell is None else {"shell": _text(shell, "shell").rpartition("/")[2]}
    add_surroundings(request, env, workdir)
    if id is None:
        answer = await links.ask("open_session", **request)
    elif request:
        raise InvalidInput("A session that is there has its shell, env and workdir already; give its id alone.")
    else:
        answer = await links.ask("find_session", session=_text(id, "id"))
    return AsyncSession(links, answers.text(answer, "session"), answers.text(answer, "shell"), timeout)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{what} is {shown(value)}; give its name as text.")
    return value


def _checked(command: object) -> str:
    """Raises InvalidInput."""
    if not isinstance(command, str):
        raise InvalidInput(f"The command is {kind_of(command)}; a session takes text for its shell.")
    if "\0" in command:
        raise InvalidInput("The command holds a NUL byte, which no shell takes.")
    try:
        command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidInput("The command holds half a surrogate pair, which stands for no byte.") from None
    return command


def _completed(answer: answers.Answer) -> Completed:
    timed_out = answers.flag(answer, "timed_out")
    if answer.get("exit_code") is None and not timed_out:
        error = answers.code_error(answer)
        raise SandboxError(f"The shell did not run the command: {error.value if error else 'it says nothing'}")
    exit_code = _OUT_OF_TIME if timed_out else answers.integer(answer, "exit_code")
    if not 0 <= exit_code <= 255:
        raise ProtocolError(f"The guest says that a command ended with {exit_code}.")
    duration, truncated = answers.number(answer, "duration"), answers.flag(answer, "truncated")
    return Completed(exit_code, "", "", duration, timed_out, truncated)
