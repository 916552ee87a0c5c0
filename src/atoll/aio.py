"""`run`, `run_code` and `run_many`, awaited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from .client.cells import ErrorCallback, InputCallback, ResultCallback
from .client.command import MAX_OUTPUT, Command, several
from .client.feed import Input
from .client.keywords import Wishes
from .client.oneshot import all_completed, check_workers, wishes_for_one
from .client.running import Listener
from .errors import AtollError
from .sandbox import AsyncSandbox
from .types import Completed, Execution

__all__ = ["AsyncSandbox", "run", "run_code", "run_many"]


async def run(
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
    """Run one command in a sandbox of its own. `wishes` are the keywords of `AsyncSandbox.create`.

    Raises:
        CommandFailed: `check` was asked for, and the command failed or ran out of time.
    """
    async with AsyncSandbox.create(driver, **wishes_for_one(run, wishes)) as sandbox:
        return await sandbox.run(
            command, shell=shell, stdin=stdin, check=check, max_output=max_output, on_stdout=on_stdout,
            on_stderr=on_stderr,
        )  # fmt: skip


async def run_code(
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
    async with AsyncSandbox.create(driver, **wishes_for_one(run_code, wishes)) as sandbox:
        return await sandbox.run_code(
            code, max_output=max_output, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result,
            on_error=on_error, on_input=on_input, language=language,
        )  # fmt: skip


async def run_many(
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

    A command that fails is data, as with `run`. `wishes` are the keywords of `AsyncSandbox.create`.

    Args:
        max_workers: how many run at once.
        together: all in one sandbox instead, one after the other, so that each finds what those before it have left.

    Raises:
        ManyFailed: the wall failed for some; all have ended, and its `results` has each result and error. Together
            it is the wall's own error, and no command runs after it.
    """
    jobs = several(commands)
    if together:
        async with AsyncSandbox.create(driver, **wishes_for_one(run_many, wishes, len(jobs))) as sandbox:
            return await sandbox.run_many(jobs, max_output=max_output)
    import anyio

    results: list[Completed | AtollError | None] = [None] * len(jobs)
    upcoming = iter(range(len(jobs)))
    wishes = wishes_for_one(run_many, wishes)

    async def take_jobs() -> None:
        for index in upcoming:
            try:
                results[index] = await run(jobs[index], driver, max_output=max_output, **wishes)
            except AtollError as error:
                results[index] = error

    async with anyio.create_task_group() as tasks:
        for _ in range(min(check_workers(max_workers), len(jobs))):
            tasks.start_soon(take_jobs)
    return all_completed(results)
