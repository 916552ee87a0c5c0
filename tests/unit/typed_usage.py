"""Calls as users write them, for `test_typing.py`: mypy is to complain where a comment says so, and nowhere else."""

from __future__ import annotations

from datetime import timedelta

from atoll import AsyncSandbox, Sandbox, aio, run, run_code, run_many


def blocking(path: str) -> None:
    with Sandbox.create("jail", source=path, preset="development", timeout="5m", lifetime=timedelta(hours=1)) as sb:
        sb.run("ls", timeout=timedelta(seconds=5), env={"A": "1"}).stdout.upper()
        sb.signal(1, "TERM")
        sb.run("ls", timout=3)  # E: Unexpected keyword argument "timout"
        sb.run("ls", "-la")  # E: Too many positional arguments
        sb.execute("ls")  # E: "Sandbox" has no attribute "execute"
        assert sb.run("true").ok  # E: "Completed" has no attribute "ok"
        sb.run_code("1", contex="a")  # E: Unexpected keyword argument "contex"
        sb.stream("ls", cwd="/")  # E: Unexpected keyword argument "cwd"
        sb.start("ls", ptty=True)  # E: Unexpected keyword argument "ptty"
    Sandbox.create(timout=3)  # E: Unexpected keyword argument "timout"
    Sandbox.create(provider="e2b")  # E: Unexpected keyword argument "provider"
    Sandbox.create(strict="yes")  # E: incompatible type
    Sandbox.from_local(path, "development", permissions=[("src/**", "read")], driver="jail", tools={})
    Sandbox.from_local(path, netwrok="none")  # E: Unexpected keyword argument "netwrok"
    Sandbox.from_codebase("shop", tags={})  # E: Unexpected keyword argument "tags"
    Sandbox.get_or_create({"a": "b"}, source=path, preset="read-only").files.read("x").upper()
    Sandbox.get_or_create({"a": "b"}, env_vars={})  # E: Unexpected keyword argument "env_vars"
    run("ls", timeout=3, source=path, preset="full-access").stdout.upper()
    run("ls", timout=3)  # E: Unexpected keyword argument "timout"
    run_code("1", colour="red")  # E: Unexpected keyword argument "colour"
    run_many(["ls"], together=True, workdirr="/")  # E: Unexpected keyword argument "workdirr"
    Sandbox()  # E: Missing positional argument "record"


async def awaited(path: str) -> None:
    async with AsyncSandbox.create("jail", packages=["six"]) as sb:
        (await sb.run("ls")).stdout.upper()
    async with await AsyncSandbox.from_local(path) as sb:
        (await sb.run("ls")).stdout.upper()
    sb = await AsyncSandbox.connect("sb-1")
    (await aio.run("ls", "jail", timeout=3)).stdout.upper()
    await AsyncSandbox.create(timout=3)  # E: Unexpected keyword argument "timout"
    await aio.run("ls", timout=3)  # E: Unexpected keyword argument "timout"
