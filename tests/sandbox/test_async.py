"""The asynchronous form, on asyncio and on trio. What both forms share is tested in the other files."""

from __future__ import annotations

import os

import anyio
import anyio.lowlevel
import pytest

from atoll import AsyncSandbox, Busy, FileMissing, SandboxGone, SandboxNotFound, aio
from atoll.errors import TimedOut

pytestmark = pytest.mark.anyio


async def gone(sandbox, word):
    with anyio.fail_after(20):
        while any(word in process.command for process in await sandbox.processes()):  # noqa: ASYNC110  # no event tells it
            await anyio.sleep(0.01)


async def test_a_sandbox_from_birth_to_end():
    async with await AsyncSandbox.create("fake", labels={"form": "async"}) as sandbox:
        assert (await sandbox.run("echo hi")).stdout == "hi\n"
        await sandbox.files.write("x", "text")
        assert await sandbox.files.read("x") == "text"
        assert (await sandbox.run_code("1 + 1")).text == "2"
        assert [info.id for info in await AsyncSandbox.list({"form": "async"})] == [sandbox.id]
        found = await AsyncSandbox.find({"form": "async"})
        assert found is not None
        assert await found.files.read("x") == "text"
        same = await AsyncSandbox.get_or_create({"form": "async"}, "fake")
        assert same.id == sandbox.id
        again = await AsyncSandbox.connect(sandbox.id)
        assert (await again.refresh()).status == "running"
    with pytest.raises(SandboxGone):
        await sandbox.run("true")
    with pytest.raises(SandboxNotFound):
        await AsyncSandbox.connect(sandbox.id)


async def test_many_tasks_share_one_sandbox(aio_sandbox):
    answers = {}

    async def work(number):
        for turn in range(5):
            answers[number, turn] = (await aio_sandbox.run(f"echo {number} {turn}")).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(work, number)
    assert answers == {(number, turn): f"{number} {turn}\n" for number in range(12) for turn in range(5)}


async def test_tasks_do_not_wait_for_each_other(aio_sandbox):
    order = []

    async def slow():
        await aio_sandbox.run("while [ ! -e go ]; do sleep 0.01; done")
        order.append("slow")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow)
        await aio_sandbox.run("true")
        order.append("fast")
        await aio_sandbox.files.write("go", "")
    assert order == ["fast", "slow"]


async def test_cancelling_a_run_kills_the_command(aio_sandbox):
    with anyio.move_on_after(0.3) as scope:
        await aio_sandbox.run("sleep 1020.5")
    assert scope.cancelled_caught
    await gone(aio_sandbox, "1020.5")
    assert (await aio_sandbox.run("echo alive")).stdout == "alive\n"


async def test_a_cancelled_task_still_destroys_its_sandbox():
    paths = []
    with anyio.CancelScope() as scope:
        async with await AsyncSandbox.create("fake") as sandbox:
            paths.append(sandbox._record.handle.data["box"])
            scope.cancel()
            await anyio.sleep_forever()
    assert not os.path.exists(paths[0])  # noqa: ASYNC240  # nothing else runs
    assert sandbox.info.status == "gone"


async def test_streams_are_iterated_and_left(aio_sandbox):
    output = aio_sandbox.stream("echo a; echo b >&2; exit 3")
    assert sorted([chunk async for chunk in output]) == [("stderr", "b\n"), ("stdout", "a\n")]
    assert output.result.exit_code == 3
    async with aio_sandbox.stream("echo x; sleep 1021.5") as output:
        async for chunk in output:
            assert chunk.text == "x\n"
            break
    await gone(aio_sandbox, "1021.5")


async def test_another_task_closes_a_stream(aio_sandbox):
    output = aio_sandbox.stream("echo x; sleep 1022.5")
    assert (await anext(output)).text == "x\n"
    taken = []

    async def read():
        taken.extend([chunk async for chunk in output])
        taken.append("end")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            output.close()
    assert taken == ["end"]


async def test_one_task_writes_while_another_reads_beyond_all_windows(aio_sandbox):
    data = b"0123456789abcdef" * (3 << 16)
    process = await aio_sandbox.start("cat")

    async def write():
        await process.write(data)
        await process.close_stdin()

    heard = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        heard.extend([chunk.text async for chunk in process])
    assert "".join(heard).encode() == data
    assert (await process.wait()).exit_code == 0


async def test_a_process_is_read_with_a_timeout_and_attached_to_again(aio_sandbox):
    process = await aio_sandbox.start("read x; echo got $x")
    with pytest.raises(TimedOut):
        await process.read(0.05)
    process.detach()
    again = await aio_sandbox.attach(process.pid)
    await again.write("it\n")
    assert (await again.wait(20)).stdout == "got it\n"


async def test_a_watch_sees_what_happens(aio_sandbox):
    async with await aio_sandbox.files.watch() as watch:
        await aio_sandbox.files.mkdir("new")
        event = await watch.read(20)
        assert (event.type, event.path) == ("created", "/workspace/new")


async def test_callbacks_may_be_coroutines(aio_sandbox):
    heard = []

    async def hear(text):
        await anyio.lowlevel.checkpoint()
        heard.append(text)

    await aio_sandbox.run("echo a", on_stdout=hear)
    await aio_sandbox.run_code("print('b')\n7", on_stdout=hear, on_result=hear)
    assert heard[:2] == ["a\n", "b\n"]
    assert heard[2].text == "7"


async def test_stdin_may_be_an_asynchronous_iterable(aio_sandbox):
    async def pieces():
        for piece in (b"a", "b"):
            await anyio.lowlevel.checkpoint()
            yield piece

    assert (await aio_sandbox.run("cat", stdin=pieces())).stdout == "ab"


async def test_trees_go_in_and_out(aio_sandbox, tmp_path):
    (tmp_path / "t" / "d").mkdir(parents=True)
    (tmp_path / "t" / "d" / "x").write_bytes(b"x" * 300_000)
    await aio_sandbox.files.upload(tmp_path / "t", "t")
    await aio_sandbox.files.download("t", tmp_path / "u")
    assert (tmp_path / "u" / "d" / "x").read_bytes() == b"x" * 300_000
    with pytest.raises(FileMissing):
        await aio_sandbox.files.download("none", tmp_path / "v")


async def test_pausing_stopping_and_resuming(aio_sandbox):
    await aio_sandbox.files.write("x", "kept")
    await aio_sandbox.pause()
    with pytest.raises(Busy):
        await aio_sandbox.run("true")
    await aio_sandbox.resume()
    await aio_sandbox.stop()
    await aio_sandbox.resume()
    assert await aio_sandbox.files.read("x") == "kept"
    await aio_sandbox.set_lifetime(50)
    assert (await aio_sandbox.metrics()).uptime >= 0


async def test_the_one_shot_helpers():
    assert (await aio.run("cat", "fake", stdin="hi")).stdout == "hi"
    assert (await aio.run_code("6 * 7", "fake")).text == "42"
    done = await aio.run_many([f"echo {number}" for number in range(5)], "fake", max_workers=2)
    assert [each.stdout for each in done] == [f"{number}\n" for number in range(5)]
    assert await aio.run_many([], "fake") == []
    assert await AsyncSandbox.list() == []
