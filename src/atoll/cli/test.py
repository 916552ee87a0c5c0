"""`atoll test`: a wall tried from create to destroy, with figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from .. import registry
from ..client.choosing import choose
from ..driver import Driver
from ..errors import AtollError
from ..io import BlockingIO, drive
from ..sync.sandbox import Sandbox
from ..types import Capability
from .interrupts import Interrupts
from .options import add_driver_option
from .output import colourful, paint, say
from .parsing import Parser

_DESCRIPTION = """\
Make a sandbox, use it as a program would, and destroy it; tells what worked and
how long it took.
"""

_EPILOG = """\
exit code:
  0, or 1 when something did not work
"""

_BINARY = bytes(range(256)) * 4096
_OUTPUT = 1 << 20


class _Wrong(Exception):
    """A step gave another result than it must."""


class _Report:
    """Runs steps and prints a line for each."""

    def __init__(self) -> None:
        self.failed = 0
        self._colours = colourful()

    def step(self, name: str, action: Callable[[], object]) -> bool:
        """Whether it worked."""
        start = time.perf_counter()
        try:
            action()
        except (AtollError, _Wrong) as error:
            self.failed += 1
            say(f"  {paint('failed', 'red', wanted=self._colours)}  {name}: {error}")
            return False
        took = (time.perf_counter() - start) * 1000
        say(f"  {paint('ok', 'green', wanted=self._colours)}  {name.ljust(44)} {took:8.1f} ms")
        return True


def main(words: list[str]) -> int:
    parser = Parser("test", "[-p NAME]", _DESCRIPTION, _EPILOG)
    add_driver_option(parser, "the wall to try, or `strongest` (default: jail, or $ATOLL_DRIVER)")
    args = parser.parse_args(words)
    name = drive(choose(BlockingIO(), args.driver, _name_of))
    driver = registry.load(name, BlockingIO())
    say(f"{name}: {driver.summary}")
    interrupts = Interrupts()
    report = _Report()
    made: list[Sandbox] = []
    try:
        with interrupts.held(1.0):
            report.step("create", lambda: made.append(Sandbox.create(name)))
        for sandbox in made:
            _try(report, sandbox, drive(driver.offers()).capabilities)
    finally:
        with interrupts.held(20.0):
            for sandbox in made:
                report.step("destroy", sandbox.destroy)
    say(f"{report.failed} step{'s' * (report.failed != 1)} failed." if report.failed else "All of it works.")
    return 1 if report.failed else 0


async def _name_of(driver: Driver, _passed_over: Mapping[str, str]) -> str:
    return driver.name


def _try(report: _Report, sandbox: Sandbox, capabilities: frozenset[Capability]) -> None:
    if Capability.COMMANDS in capabilities:
        _try_commands(report, sandbox)
    report.step("write and read a file of 1 MiB", lambda: _file(sandbox, _BINARY))
    report.step("write and read a file of 10 MiB", lambda: _file(sandbox, _BINARY * 10))
    if Capability.CODE in capabilities:
        _try_code(report, sandbox)
    if Capability.PTY in capabilities:
        report.step("a terminal", lambda: _terminal(sandbox))
    if {Capability.ISOLATION, Capability.COMMANDS} <= capabilities:
        report.step("the wall: no root, no network", lambda: _wall(sandbox))


def _try_commands(report: _Report, sandbox: Sandbox) -> None:
    report.step('run("echo hi")', lambda: _same(sandbox.run("echo hi").stdout, "hi\n"))
    report.step('run("true") again', lambda: _same(sandbox.run("true").exit_code, 0))
    report.step("an exit code of 7", lambda: _same(sandbox.run("exit 7").exit_code, 7))
    report.step("1 MiB through a pipe and back", lambda: _pipe(sandbox))
    report.step("a timeout of 0.1 s kills `sleep 60`", lambda: _timeout(sandbox))


def _try_code(report: _Report, sandbox: Sandbox) -> None:
    report.step("run_code: first cell", lambda: sandbox.run_code("x = 41"))
    report.step("run_code: a variable is kept", lambda: _same(sandbox.run_code("x + 1").text, "42"))
    report.step("an error is data", lambda: _same(sandbox.run_code("1 / 0").success, expected=False))
    report.step("a timeout of 0.1 s ends an endless loop", lambda: _loop(sandbox))
    report.step("run_code: the next cell", lambda: _same(sandbox.run_code("6 * 7").text, "42"))


def _loop(sandbox: Sandbox) -> None:
    _same(sandbox.run_code("while True: pass", timeout=0.1).timed_out, expected=True)


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise _Wrong(f"expected {expected!r}, got {found!r}")


def _pipe(sandbox: Sandbox) -> None:
    _same(len(sandbox.run("cat", stdin="a" * _OUTPUT).stdout), _OUTPUT)


def _file(sandbox: Sandbox, content: bytes) -> None:
    sandbox.files.write("atoll-test", content)
    _same(sandbox.files.read_bytes("atoll-test") == content, expected=True)


def _timeout(sandbox: Sandbox) -> None:
    _same(sandbox.run("sleep 60", timeout=0.1).timed_out, expected=True)


def _terminal(sandbox: Sandbox) -> None:
    with sandbox.start("test -t 0 && stty size", pty=(24, 80)) as process:
        _same(process.wait(30).stdout.strip(), "24 80")


def _wall(sandbox: Sandbox) -> None:
    _same(sandbox.run("test $(id -u) != 0").exit_code, 0)
    _same(sandbox.run("cat /proc/net/route | tail -n +2").stdout, "")
