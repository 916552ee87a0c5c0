"""`session`: a shell that keeps its state from command to command."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...errors import CommandFailed, FileError, InvalidInput, SessionEnded
from ...sync import Sandbox
from ...sync.session import Session
from ...types import Capability, Chunk
from ..base import Checks, Make
from ..needs import needs
from ..waiting import eventually


class SessionChecks(Checks):
    """Sessions."""

    @pytest.fixture
    def shell(self, sandbox: Sandbox) -> Iterator[Session]:
        with sandbox.session("sh") as made:
            yield made

    @needs(Capability.COMMANDS)
    def test_a_session_keeps_directory_variables_and_functions(self, shell: Session, place: str) -> None:
        assert shell.run(f"cd {place}; word=kept; export seen=too; f() {{ echo $word $1; }}").exit_code == 0
        assert shell.run("f it; basename $PWD; sh -c 'echo $seen'").stdout == f"kept it\n{place}\ntoo\n"

    @needs(Capability.COMMANDS)
    def test_each_command_of_a_session_has_its_exit_code(self, shell: Session) -> None:
        done = shell.run("echo out; echo err >&2; (exit 5)")
        assert (done.exit_code, done.stdout, done.stderr, done.success) == (5, "out\n", "err\n", False)
        assert shell.run("echo $?").stdout == "5\n"
        with pytest.raises(CommandFailed):
            shell.run("false", check=True)
        assert shell.run("echo 'unbalanced").exit_code != 0
        assert shell.run("echo goes on").stdout == "goes on\n"

    @needs(Capability.COMMANDS)
    def test_a_session_starts_where_and_with_what_it_is_told(self, sandbox: Sandbox, place: str) -> None:
        with sandbox.session("sh", env={"WORD": "it's"}, workdir=place) as shell:
            assert shell.run('echo "$WORD"; basename $PWD').stdout == f"it's\n{place}\n"
        with pytest.raises(FileError):
            sandbox.session("sh", workdir=f"{place}/nowhere")
        with pytest.raises(InvalidInput):
            sandbox.session("no-such-shell")

    @needs(Capability.COMMANDS)
    def test_output_of_a_session_is_live(self, sandbox: Sandbox, shell: Session, place: str) -> None:
        shell.run(f"cd {place}")
        with shell.stream("echo first; while [ ! -e go ]; do sleep 0.02; done; echo second") as stream:
            assert next(stream) == Chunk("stdout", "first\n")
            sandbox.files.write(f"{place}/go", "")
            assert list(stream) == [Chunk("stdout", "second\n")]
            assert stream.result is not None
            assert stream.result.exit_code == 0

    @needs(Capability.COMMANDS)
    def test_much_output_of_a_session_comes_whole(self, shell: Session) -> None:
        assert len(shell.run("head -c 1000000 /dev/zero | tr '\\0' x").stdout) == 1_000_000

    @needs(Capability.COMMANDS)
    def test_a_timeout_in_a_session_stops_the_command_and_keeps_the_state(self, shell: Session) -> None:
        shell.run("word=kept")
        done = shell.run("echo begun; sleep 1000; echo never", timeout=0.5)
        assert (done.timed_out, done.exit_code, done.success, done.stdout) == (True, 124, False, "begun\n")
        assert shell.run("echo $word").stdout == "kept\n"

    @needs(Capability.COMMANDS)
    def test_a_session_whose_shell_has_ended_says_so(self, shell: Session) -> None:
        assert shell.run("exit 3").exit_code == 3
        with pytest.raises(SessionEnded):
            shell.run("echo")

    @needs(Capability.COMMANDS)
    def test_closing_a_session_ends_what_it_started(self, make: Make) -> None:
        sandbox = make()
        with sandbox.session("sh") as shell:
            shell.run("sleep 65432 & setsid sleep 65432 &")
            eventually(lambda: _count(sandbox, "sleep 65432") == 2, "both run")
        assert _count(sandbox, "sleep 65432") == 0
        with pytest.raises(SessionEnded):
            shell.run("echo")

    @needs(Capability.COMMANDS)
    def test_sessions_share_nothing_and_run_at_once(self, sandbox: Sandbox) -> None:
        with (
            sandbox.session("sh") as one,
            sandbox.session("sh") as other,
            one.stream("x=1; echo on; sleep 1000") as slow,
        ):
            assert next(slow).text == "on\n"
            assert other.run("echo ${x-none}").stdout == "none\n"

    @needs(Capability.COMMANDS)
    def test_another_process_goes_on_with_a_session(self, shell: Session, sandbox: Sandbox) -> None:
        shell.run("word=kept")
        body = "answer = Sandbox.connect(id).session(id=session).run('echo $word').stdout"
        assert self.elsewhere(body, id=sandbox.id, session=shell.id).answer() == "kept\n"


def _count(sandbox: Sandbox, command: str) -> int:
    return sum(process.command == command for process in sandbox.processes())
