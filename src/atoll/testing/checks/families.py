"""Time limits and whole process trees: what is killed, and what may stay."""

from __future__ import annotations

import signal

from ...sync import Sandbox
from ...types import Capability
from ..base import Checks
from ..needs import needs
from ..waiting import eventually, goes_on, stands_still

BEAT = "while :; do echo x >> beat; sleep 0.02; done"

# Forked twice, with a session, an environment and descriptors of its own: nothing ties it to the command.
HIDDEN = f"env -i PATH=/usr/bin:/bin setsid sh -c '{BEAT}' < /dev/null > /dev/null 2>&1 &"


class FamilyChecks(Checks):
    """Time and trees."""

    @needs(Capability.COMMANDS)
    def test_a_timeout_is_told_and_is_no_success(self, sandbox: Sandbox) -> None:
        done = sandbox.run("echo begun; sleep 1000; echo never", timeout=0.5)
        assert (done.timed_out, done.success, done.exit_code) == (True, False, 124)
        assert done.stdout == "begun\n"
        assert sandbox.run("echo after").stdout == "after\n"

    @needs(Capability.COMMANDS)
    def test_a_timeout_kills_what_ignores_it(self, sandbox: Sandbox) -> None:
        done = sandbox.run("trap '' TERM INT HUP; while :; do sleep 1; done", timeout=0.3)
        assert (done.timed_out, done.exit_code) == (True, 124)

    @needs(Capability.COMMANDS)
    def test_a_timeout_kills_children(self, sandbox: Sandbox, place: str) -> None:
        _runs_out_of_time(sandbox, f"({BEAT}) & wait", place)
        assert stands_still(lambda: _beats(sandbox, place))

    @needs(Capability.COMMANDS)
    def test_a_timeout_kills_what_has_forked_twice_and_left_its_session(self, sandbox: Sandbox, place: str) -> None:
        _runs_out_of_time(sandbox, f"({HIDDEN}) ; sleep 1000", place)
        assert stands_still(lambda: _beats(sandbox, place))

    @needs(Capability.COMMANDS)
    def test_a_timeout_kills_one_command_and_no_other(self, sandbox: Sandbox, place: str) -> None:
        with sandbox.start(BEAT, workdir=place):
            assert sandbox.run("sleep 1000", timeout=0.3).timed_out
            assert goes_on(lambda: _beats(sandbox, place))

    @needs(Capability.COMMANDS)
    def test_leaving_a_stream_kills_its_tree(self, sandbox: Sandbox, place: str) -> None:
        with sandbox.stream(f"({HIDDEN}) ; echo on; sleep 1000", workdir=place) as stream:
            assert next(stream).text == "on\n"
            eventually(lambda: _beats(sandbox, place), "the hidden process has begun")
        eventually(lambda: stands_still(lambda: _beats(sandbox, place)), "the hidden process is dead")

    @needs(Capability.COMMANDS)
    def test_a_background_process_does_not_hold_a_command_up(self, sandbox: Sandbox, place: str) -> None:
        done = sandbox.run(f"({BEAT}) & echo $! > pid; echo done", workdir=place, timeout=20)
        assert (done.stdout, done.exit_code, done.timed_out) == ("done\n", 0, False)
        eventually(lambda: _beats(sandbox, place), "it goes on by itself")
        assert goes_on(lambda: _beats(sandbox, place))
        sandbox.signal(int(sandbox.files.read(f"{place}/pid")), signal.SIGKILL, tree=True)
        eventually(lambda: stands_still(lambda: _beats(sandbox, place)), "it is killed")


def _runs_out_of_time(sandbox: Sandbox, command: str, place: str) -> None:
    """Run what begins to beat before its time is over, which a busy machine may need more of."""
    for timeout in (1.0, 5.0, 25.0):
        assert sandbox.run(command, workdir=place, timeout=timeout).timed_out
        if _beats(sandbox, place):
            return
    raise AssertionError("It did not beat once.")


def _beats(sandbox: Sandbox, place: str) -> int:
    path = f"{place}/beat"
    return sandbox.files.info(path).size if sandbox.files.exists(path) else 0
