"""One command or cell in a sandbox of its own that is thrown away afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from ..client.command import MAX_OUTPUT, Command, several
from ..client.keywords import Wishes
from ..client.oneshot import all_completed, check_workers, wishes_for_one
from ..client.running import Listener
from ..errors import AtollError
from ..types import Completed, Execution
from .sandbox import Sandbox

if TYPE_CHECKING:
    from ..client.cells import ErrorCallback, InputCallback, ResultCallback
    from ..client.feed import Input


def run(
    command: Command,
    driver: str | None = None,
    *,
    shell: str | None = None,
    stdin: Input | None = None,
    check: bool = False,
    max_output: int = MAX_OUTPUT,
    on_stdout: Listener | None = None,
    on_stderr: Listener | None = None,
    **wishes: Unpack[Wishes],
) -> Completed:
    """Run one command in a sandbox of its own. `wishes` are the keywords of `Sandbox.create`.

    Raises:
        CommandFailed: `check` was asked for, and the command failed or ran out of time.
    """
    with Sandbox.create(driver, **wishes_for_one(run, wishes)) as sandbox:
        return sandbox.run(
            command, shell=shell, stdin=stdin, check=check, max_output=max_output, on_stdout=on_stdout,
            on_stderr=on_stderr,
        )  # fmt: skip


def run_code(
    code: str,
    driver: str | None = None,
    *,
    max_output: int = MAX_OUTPUT,
    on_stdout: Listener | None = None,
    on_stderr: Listener | None = None,
    on_result: ResultCallback | None = None,
    on_error: ErrorCallback | None = None,
    on_input: InputCallback | None = None,
    language: str | None = None,
    **wishes: Unpack[Wishes],
) -> Execution:
    """Run code in a sandbox of its own: Python, unless another language is named. `wishes` are those of `create`."""
    with Sandbox.create(driver, **wishes_for_one(run_code, wishes)) as sandbox:
        return sandbox.run_code(
            code, max_output=max_output, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result,
            on_error=on_error, on_input=on_input, language=language,
        )  # fmt: skip


def run_many(
    commands: Iterable[Command],
    driver: str | None = None,
    *,
    max_workers: int = 8,
    together: bool = False,
    max_output: int = MAX_OUTPUT,
    **wishes: Unpack[Wishes],
) -> list[Completed]:
    """Run many commands at once, each in a fresh sandbox; the results in the order of the commands.

    No command finds what another has left; with `together=True` each does.

    A command that fails is data, as with `run`. `wishes` are the keywords of `Sandbox.create`.

    Args:
        max_workers: how many run at once.
        together: all in one sandbox instead, one after the other, so that each finds what those before it have left.

    Raises:
        ManyFailed: the wall failed for some; all have ended, and its `results` has each result and error. Together
            it is the wall's own error, and no command runs after it.
    """
    jobs = several(commands)
    if together:
        with Sandbox.create(driver, **wishes_for_one(run_many, wishes, len(jobs))) as sandbox:
            return sandbox.run_many(jobs, max_output=max_output)
    workers = _Workers(jobs, driver, max_output, wishes_for_one(run_many, wishes))
    workers.work(min(check_workers(max_workers), len(jobs)))
    return all_completed(workers.results)


class _Workers:
    """Threads that take the next command when they are done with one."""

    def __init__(self, jobs: list[Command], driver: str | None, max_output: int, wishes: dict[str, Any]) -> None:
        self.results: list[Completed | AtollError | None] = [None] * len(jobs)
        self._jobs = jobs
        self._next = iter(range(len(jobs)))
        self._driver = driver
        self._max_output = max_output
        self._wishes = wishes
        self._live: set[Sandbox] = set()
        self._broken: list[BaseException] = []

    def work(self, count: int) -> None:
        from threading import Thread

        threads = [Thread(target=self._take_jobs, name=f"atoll-run-many-{n}") for n in range(count)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:
            # Ctrl-C: what runs ends with its sandbox, and the threads with it.
            self._broken.append(error)
            for sandbox in list(self._live):
                sandbox.destroy()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            raise
        if self._broken:
            raise self._broken[0]

    def _take_jobs(self) -> None:
        for index in self._next:
            if self._broken:
                return
            try:
                self.results[index] = self._run(self._jobs[index])
            except AtollError as error:
                self.results[index] = error
            except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
                self._broken.append(error)

    def _run(self, command: Command) -> Completed:
        with Sandbox.create(self._driver, **self._wishes) as sandbox:
            self._live.add(sandbox)
            try:
                return sandbox.run(command, max_output=self._max_output)
            finally:
                self._live.discard(sandbox)
