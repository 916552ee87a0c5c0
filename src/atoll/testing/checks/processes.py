"""`start`: processes with a life of their own, terminals and signals."""

from __future__ import annotations

import signal
import threading

import pytest

from ...errors import AtollError, FileError, InvalidInput, TimedOut
from ...sync import Sandbox
from ...sync.process import Process
from ...types import Capability
from ..base import Checks, Make
from ..needs import needs
from ..waiting import PATIENCE, eventually


class ProcessChecks(Checks):
    """Processes."""

    @needs(Capability.COMMANDS)
    def test_a_started_process_runs_while_we_go_on(self, sandbox: Sandbox) -> None:
        with sandbox.start("echo on; sleep 1000") as process:
            assert process.read(PATIENCE) == ("stdout", "on\n")
            assert process.exit_code is None
            assert sandbox.run("echo meanwhile").stdout == "meanwhile\n"
            listed = {p.pid: p for p in sandbox.processes()}
            assert listed[process.pid].started_by_api
            assert "sleep 1000" in listed[process.pid].command

    @needs(Capability.COMMANDS)
    def test_wait_gives_the_end_and_the_unread_output(self, sandbox: Sandbox) -> None:
        process = sandbox.start("echo out; echo err >&2; exit 9")
        done = process.wait(PATIENCE)
        assert (done.exit_code, done.stdout, done.stderr) == (9, "out\n", "err\n")
        assert process.exit_code == 9

    @needs(Capability.COMMANDS)
    def test_iterating_gives_all_output(self, sandbox: Sandbox) -> None:
        process = sandbox.start("for i in 1 2 3; do echo $i; done")
        assert "".join(chunk.text for chunk in process) == "1\n2\n3\n"
        assert process.exit_code == 0

    @needs(Capability.COMMANDS)
    def test_waiting_has_an_end_and_the_process_has_not(self, sandbox: Sandbox) -> None:
        with sandbox.start("cat") as process:
            with pytest.raises(TimedOut):
                process.read(timeout=0.1)
            with pytest.raises(TimedOut):
                process.wait(timeout=0.1)
            process.write("still here\n")
            assert process.read(PATIENCE) == ("stdout", "still here\n")

    @needs(Capability.COMMANDS)
    def test_input_is_written_and_ended(self, sandbox: Sandbox) -> None:
        process = sandbox.start("while read line; do echo got $line; done; echo end")
        process.write("one\n")
        assert process.read(PATIENCE) == ("stdout", "got one\n")
        process.write(b"two\n")
        process.close_stdin()
        assert process.wait(PATIENCE).stdout == "got two\nend\n"

    @needs(Capability.COMMANDS)
    def test_one_thread_reads_while_another_writes(self, sandbox: Sandbox) -> None:
        data = "0123456789\n" * 200_000
        process = sandbox.start("cat")

        def feed() -> None:
            process.write(data)
            process.close_stdin()

        writer = threading.Thread(target=feed)
        writer.start()
        done = process.wait(4 * PATIENCE)
        writer.join()
        assert done.stdout == data

    @needs(Capability.COMMANDS)
    def test_writing_to_what_has_ended_is_an_error(self, sandbox: Sandbox) -> None:
        process = sandbox.start("exit 0")
        process.wait(PATIENCE)
        with pytest.raises(FileError):
            process.write("too late")

    @needs(Capability.COMMANDS)
    def test_signals_arrive(self, sandbox: Sandbox) -> None:
        process = sandbox.start("trap 'echo caught; exit 4' TERM; echo ready; while :; do sleep 0.02; done")
        assert process.read(PATIENCE) == ("stdout", "ready\n")
        process.signal(signal.SIGTERM)
        done = process.wait(PATIENCE)
        assert (done.exit_code, done.stdout) == (4, "caught\n")

    @needs(Capability.COMMANDS)
    def test_kill_takes_all_that_it_started(self, sandbox: Sandbox, place: str) -> None:
        process = sandbox.start("(setsid sleep 76543 &); echo ready; sleep 76543")
        assert process.read(PATIENCE) == ("stdout", "ready\n")
        eventually(lambda: _count(sandbox, "sleep 76543") >= 2, "both run")
        process.kill()
        assert process.wait(PATIENCE).exit_code == 128 + signal.SIGKILL
        eventually(lambda: _count(sandbox, "sleep 76543") == 0, "both are dead")

    @needs(Capability.COMMANDS)
    def test_a_process_outlives_the_object(self, sandbox: Sandbox) -> None:
        process = sandbox.start("echo one; read line; echo $line; exit 6")
        assert process.read(PATIENCE) == ("stdout", "one\n")
        process.detach()
        again = sandbox.attach(process.pid)
        again.write("two\n")
        done = again.wait(PATIENCE)
        assert (done.exit_code, done.stdout) == (6, "two\n")

    @needs(Capability.COMMANDS)
    def test_another_process_attaches_to_it(self, make: Make) -> None:
        sandbox = make()
        process = sandbox.start("while [ ! -e go ]; do sleep 0.02; done; echo unread; read line; echo $line; exit 8")
        process.detach()
        sandbox.files.write("go", "")
        body = """
process = Sandbox.connect(id).attach(pid)
first = process.read(30).text
process.write("from afar\\n")
done = process.wait(30)
answer = [first, done.stdout, done.exit_code]
"""
        answer = self.elsewhere(body, id=sandbox.id, pid=process.pid).answer()
        assert answer == ["unread\n", "from afar\n", 8]

    @needs(Capability.COMMANDS)
    def test_the_end_of_what_nobody_watched_is_kept(self, sandbox: Sandbox, place: str) -> None:
        process = sandbox.start("while [ ! -e go ]; do sleep 0.02; done; echo last words; exit 5", workdir=place)
        process.detach()
        sandbox.files.write(f"{place}/go", "")
        eventually(lambda: process.pid not in {p.pid for p in sandbox.processes()}, "it has ended")
        done = sandbox.attach(process.pid).wait(PATIENCE)
        assert (done.exit_code, done.stdout) == (5, "last words\n")

    @needs(Capability.COMMANDS)
    def test_what_was_never_started_cannot_be_attached_to(self, sandbox: Sandbox) -> None:
        with pytest.raises(InvalidInput):
            sandbox.attach(2_000_000_000)
        with pytest.raises(InvalidInput):
            sandbox.signal(2_000_000_000, signal.SIGTERM)

    @needs(Capability.COMMANDS)
    def test_starting_a_program_that_is_not_there_is_127(self, sandbox: Sandbox) -> None:
        done = sandbox.start(["no-such-program"]).wait(PATIENCE)
        assert done.exit_code == 127

    @needs(Capability.COMMANDS, Capability.PTY)
    def test_a_terminal_is_one(self, sandbox: Sandbox) -> None:
        with sandbox.start("test -t 0 && test -t 1 && test -t 2 && echo yes; stty size", pty=(40, 100)) as process:
            assert process.wait(PATIENCE).stdout == "yes\r\n40 100\r\n"
        with sandbox.start("test -t 0 || echo no") as process:
            assert process.wait(PATIENCE).stdout == "no\n"

    @needs(Capability.COMMANDS, Capability.PTY)
    def test_a_terminal_changes_its_size(self, sandbox: Sandbox) -> None:
        script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"
        with sandbox.start(script, pty=True) as process:
            _read_until(process, "ready")
            process.resize(50, 132)
            _read_until(process, "50 132")

    @needs(Capability.COMMANDS, Capability.PTY)
    def test_a_terminal_turns_control_c_into_an_interrupt(self, sandbox: Sandbox) -> None:
        # In bash the interrupt is lost if it comes while a short command of the loop ends.
        script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.02; done"
        with sandbox.start(["sh", "-c", script], pty=True) as process:
            _read_until(process, "ready")
            process.write("\x03")
            assert process.wait(PATIENCE).exit_code == 5

    @needs(Capability.COMMANDS, Capability.PTY)
    def test_a_shell_on_a_terminal_takes_commands(self, sandbox: Sandbox) -> None:
        with sandbox.start(["sh"], pty=True) as process:
            process.write("echo $((40 + 2))\n")
            _read_until(process, "42")
            process.write("exit 3\n")
            assert process.wait(PATIENCE).exit_code == 3

    @needs(Capability.COMMANDS, Capability.PTY)
    def test_a_terminal_size_that_cannot_be_is_refused(self, sandbox: Sandbox) -> None:
        for size in ((0, 80), (24, 1 << 16), (24,), "large"):
            with pytest.raises(AtollError):
                sandbox.start("true", pty=size)  # type: ignore[arg-type]  # the point of the test


def _count(sandbox: Sandbox, command: str) -> int:
    return sum(p.command == command for p in sandbox.processes())


def _read_until(process: Process, text: str) -> None:
    seen = ""
    while text not in seen:
        chunk = process.read(PATIENCE)
        assert chunk is not None, f"it ended before it wrote {text!r}; it wrote {seen!r}"
        seen += chunk.text
