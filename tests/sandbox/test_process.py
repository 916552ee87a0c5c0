from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading

import pytest

from atoll import FileError, InvalidInput, SandboxError
from atoll.errors import TimedOut


def read_until(process, text):
    """All output up to and with `text`."""
    heard = ""
    while text not in heard:
        chunk = process.read(20)
        assert chunk is not None, heard
        heard += chunk.text
    return heard


def test_a_process_takes_input_and_gives_output(sandbox):
    process = sandbox.start("cat")
    process.write("hello ")
    assert read_until(process, "hello ") == "hello "
    process.write(b"world")
    process.close_stdin()
    done = process.wait(20)
    assert (done.stdout, done.exit_code, process.exit_code) == ("world", 0, 0)
    assert process.wait() == done
    assert process.read() is None


def test_iterating_gives_all_output_until_the_end(sandbox):
    process = sandbox.start("echo a; echo b >&2; exit 5")
    assert sorted(process) == [("stderr", "b\n"), ("stdout", "a\n")]
    assert process.wait().exit_code == 5


def test_waiting_and_reading_are_bounded_by_their_timeouts_and_can_go_on(sandbox):
    process = sandbox.start("read x; echo got $x")
    with pytest.raises(TimedOut):
        process.wait(0.05)
    with pytest.raises(TimeoutError):
        process.read(0.05)
    assert process.exit_code is None
    process.write("it\n")
    assert process.wait(20).stdout == "got it\n"


def test_a_wait_is_bounded_though_output_never_pauses(sandbox):
    with sandbox.start("yes") as process, pytest.raises(TimedOut):
        process.wait(0.3)


def test_it_survives_the_object_and_is_attached_to_again_with_what_nobody_read(sandbox):
    process = sandbox.start("echo one; read x; echo two $x")
    assert read_until(process, "one\n") == "one\n"
    pid = process.pid
    process.detach()
    del process
    again = sandbox.attach(pid)
    assert again.pid == pid
    again.write("more\n")
    assert again.wait(20).stdout == "two more\n"


def test_another_process_of_the_host_attaches(sandbox):
    process = sandbox.start("read x; echo got $x; exit 7")
    process.detach()
    program = f"""
from atoll import Sandbox
process = Sandbox.connect({sandbox.id!r}).attach({process.pid})
process.write("word\\n")
done = process.wait(20)
print(done.stdout, done.exit_code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "got word\n 7\n"
    assert done.stderr == ""


def test_a_detached_object_says_how_to_go_on(sandbox):
    process = sandbox.start("sleep 1004.5")
    process.detach()
    for attempt in (lambda: process.write("x"), process.read, process.wait, process.kill):
        with pytest.raises(SandboxError, match=r"attach\(\d+\)"):
            attempt()
    with sandbox.attach(process.pid):
        pass


def test_signals_reach_it_and_kill_takes_the_tree(sandbox, eventually):
    process = sandbox.start("trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.01; done")
    read_until(process, "ready\n")
    process.signal(signal.SIGUSR1)
    assert process.wait(20).exit_code == 9
    process.signal(signal.SIGUSR1)
    tree = sandbox.start("(sleep 1005.5 &); echo ready; sleep 1005.5")
    read_until(tree, "ready\n")
    tree.kill()
    assert tree.wait(20).exit_code == 137
    eventually(lambda: not any("1005.5" in each.command for each in sandbox.processes()))


def test_a_with_block_kills_it_at_its_end(sandbox, eventually):
    with sandbox.start("sleep 1006.5") as process:
        assert any("1006.5" in each.command for each in sandbox.processes())
    assert process.exit_code == 137
    eventually(lambda: not any("1006.5" in each.command for each in sandbox.processes()))


def test_a_terminal_has_a_size_echoes_and_can_be_resized(sandbox):
    with sandbox.start("stty size; read x; stty size; tty >/dev/null && echo is a tty", pty=(30, 100)) as process:
        assert "30 100" in read_until(process, "100\r\n")
        process.resize(40, 120)
        process.write("x\n")
        rest = process.wait(20).stdout
    assert "40 120" in rest
    assert "is a tty" in rest


def test_a_terminal_has_a_usual_size_and_ctrl_c_interrupts(sandbox, eventually):
    with sandbox.start(["sh"], pty=True) as process:
        process.write("stty size\n")
        assert "24 80" in read_until(process, "24 80")
        process.write("sleep 1012.5\n")
        eventually(lambda: any(each.command == "sleep 1012.5" for each in sandbox.processes()))
        process.write("\x03")
        eventually(lambda: not any(each.command == "sleep 1012.5" for each in sandbox.processes()))
        process.write("echo al''ive\n")
        read_until(process, "alive")


def test_one_thread_writes_while_another_reads_beyond_all_windows(sandbox):
    data = b"0123456789abcdef" * (6 << 16)
    process = sandbox.start("cat")

    def write():
        process.write(data)
        process.close_stdin()

    writer = threading.Thread(target=write)
    writer.start()
    heard = "".join(chunk.text for chunk in process)
    writer.join(30)
    assert not writer.is_alive()
    assert heard.encode() == data


def test_a_write_that_nobody_takes_is_bounded_by_its_timeout(sandbox):
    with sandbox.start("sleep 1000") as process, pytest.raises(TimedOut):
        process.write(b"x" * (4 << 20), timeout=0.2)


def test_writing_to_a_process_that_has_ended_is_a_broken_pipe(sandbox):
    process = sandbox.start("true")
    process.wait(20)
    with pytest.raises(FileError) as caught:
        process.write("x")
    assert caught.value.errno == errno.EPIPE


def test_a_program_that_is_not_there_says_so_when_waited_for(sandbox):
    process = sandbox.start(["no-such-program"])
    done = process.wait(20)
    assert done.exit_code == 127
    assert "no-such-program" in done.stderr


@pytest.mark.parametrize("pid", [0, -1, True, "1", 1 << 40])
def test_a_pid_that_cannot_be_is_refused(sandbox, pid):
    with pytest.raises(InvalidInput):
        sandbox.attach(pid)


def test_attaching_to_what_was_never_started_is_an_error(sandbox):
    with pytest.raises(InvalidInput, match="999999"):
        sandbox.attach(999_999)


@pytest.mark.parametrize("pty", [(0, 80), (24,), "big", (24, 1 << 17)])
def test_a_terminal_that_cannot_be_is_refused(sandbox, pty):
    with pytest.raises(InvalidInput):
        sandbox.start("true", pty=pty)


@pytest.mark.parametrize("number", [0, 65, -9, "TERMINATE", True])
def test_a_signal_that_cannot_be_is_refused(sandbox, number):
    with sandbox.start("sleep 1000") as process, pytest.raises(InvalidInput):
        process.signal(number)


def test_processes_are_listed_with_who_started_them(sandbox):
    with sandbox.start("sleep 1007.5 & exec sleep 1008.5") as process:
        listed = {each.command: each for each in sandbox.processes()}
        own = next(each for command, each in listed.items() if "1008.5" in command)
        assert own.pid == process.pid
        assert own.memory > 0
        assert own.started_by_api


def test_a_signal_by_pid_reaches_any_process(sandbox):
    process = sandbox.start("sleep 1009.5")
    sandbox.signal(process.pid, signal.SIGTERM)
    assert process.wait(20).exit_code == 143
