"""The same through AsyncSandbox, on asyncio: one test for each thing that a loop could break."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ...errors import CommandFailed, FileMissing, SandboxGone
from ...sandbox import AsyncSandbox
from ...sync import Sandbox
from ...types import Capability
from .. import waiting
from ..base import Checks, Make
from ..needs import needs
from ..waiting import PATIENCE, eventually, stands_still

BEAT = "while :; do echo x >> beat; sleep 0.02; done"


class AsyncChecks(Checks):
    """Asynchronous."""

    def on_a_loop(self, main: Coroutine[None, None, None]) -> None:
        asyncio.run(asyncio.wait_for(main, 2 * PATIENCE))

    def with_sandbox(self, story: Callable[[AsyncSandbox], Awaitable[None]], **wishes: Any) -> None:
        async def main() -> None:
            name = self.driver_class.name
            async with await AsyncSandbox.create(name, **self.with_defaults(**wishes)) as sandbox:
                await story(sandbox)

        self.on_a_loop(main())

    @needs(Capability.COMMANDS)
    def test_async_a_command_runs(self, label: dict[str, str]) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            done = await sandbox.run("cat; echo err >&2; exit 3", stdin="in", env={"A": "b"})
            assert (done.exit_code, done.stdout, done.stderr) == (3, "in", "err\n")
            assert (await sandbox.run("sleep 1000", timeout=0.3)).timed_out
            with pytest.raises(CommandFailed):
                await sandbox.run("exit 1", check=True)
            assert [info.id for info in await AsyncSandbox.list(label)] == [sandbox.id]

        self.with_sandbox(story, labels=label)
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS)
    def test_async_many_commands_run_at_once(self) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            async with asyncio.TaskGroup() as group:
                # Each waits for a file that the next one makes: one after the other they would never end.
                tasks = [group.create_task(sandbox.run(_meet(n, 6), timeout=PATIENCE)) for n in range(6)]
            assert [task.result().stdout for task in tasks] == [f"{n}\n" for n in range(6)]

        self.with_sandbox(story)

    @needs(Capability.COMMANDS)
    def test_async_a_stream_is_live(self) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            script = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second"
            stream = sandbox.stream(script, timeout=waiting.HURRY)
            texts: list[str] = []
            async for chunk in stream:
                if not texts:
                    await sandbox.files.write("go", "")
                texts.append(chunk.text)
            assert texts == ["first\n", "second\n"]
            assert stream.result is not None
            assert not stream.result.timed_out

        self.with_sandbox(story)

    @needs(Capability.COMMANDS)
    def test_async_a_cancelled_command_is_killed(self, make: Make) -> None:
        sandbox = make()

        async def main() -> None:
            twin = await AsyncSandbox.connect(sandbox.id)
            begun = asyncio.Event()
            task = asyncio.create_task(twin.run(f"echo x > beat; echo on; {BEAT}", on_stdout=lambda _: begun.set()))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await twin.run("echo usable")).stdout == "usable\n"

        self.on_a_loop(main())
        eventually(lambda: stands_still(lambda: sandbox.files.info("beat").size), "the cancelled command is dead")

    def test_async_a_cancelled_with_block_destroys(self, label: dict[str, str]) -> None:
        async def main() -> None:
            entered = asyncio.Event()

            async def block() -> None:
                name = self.driver_class.name
                async with await AsyncSandbox.create(name, **self.with_defaults(labels=label)):
                    entered.set()
                    await asyncio.sleep(1000)

            task = asyncio.create_task(block())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        self.on_a_loop(main())
        assert Sandbox.list(label) == []

    @needs(Capability.COMMANDS)
    def test_async_a_process_is_written_to_and_waited_for(self) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            process = await sandbox.start("read line; echo got $line; exit 4")
            await process.write("word\n")
            done = await process.wait(PATIENCE)
            assert (done.exit_code, done.stdout) == (4, "got word\n")

        self.with_sandbox(story)

    def test_async_files_are_written_and_read(self, tmp_path: pathlib.Path) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            files = sandbox.files
            await files.write("sub/file", "text")
            assert await files.read("sub/file") == "text"
            assert [info.name for info in await files.list("sub")] == ["file"]
            with pytest.raises(FileMissing):
                await files.read("missing")
            (tmp_path / "tree").mkdir()
            (tmp_path / "tree" / "large").write_bytes(b"x" * 2_000_000)
            await files.upload(tmp_path / "tree", "up")
            await files.download("up", tmp_path / "down")
            assert (tmp_path / "down" / "large").read_bytes() == b"x" * 2_000_000

        self.with_sandbox(story)

    @needs(Capability.CODE)
    def test_async_code_keeps_its_state(self) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            await sandbox.run_code("x = 41")
            assert (await sandbox.run_code("x + 1")).text == "42"
            done = await sandbox.run_code("while True: pass", timeout=0.3)
            assert (done.timed_out, done.state_lost) == (True, False)

        self.with_sandbox(story)

    @needs(Capability.COMMANDS)
    def test_async_what_is_destroyed_is_gone(self) -> None:
        async def story(sandbox: AsyncSandbox) -> None:
            twin = await AsyncSandbox.connect(sandbox.id)
            await sandbox.destroy()
            for each in (sandbox, twin):
                with pytest.raises(SandboxGone):
                    await each.run("true")

        self.with_sandbox(story)


def _meet(number: int, count: int) -> str:
    others = " && ".join(f"[ -e {other} ]" for other in range(count))
    return f"touch {number}; until {others}; do sleep 0.02; done; echo {number}"
