"""Commands on a terminal."""

import signal
import sys

from tests.guest.rawclient import eventually


def test_a_command_has_a_terminal_that_controls_it(client):
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && ps -o tty= -p $$ | grep -q pts && echo yes"
    ended = client.run("/bin/sh", "-c", script, pty=[33, 101])
    assert ended.stdout == b"33 101\r\nyes\r\n"
    assert ended.stderr == b""
    assert ended.ok["exit_code"] == 0


def test_it_can_be_resized(client):
    script = "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\nprint('up', flush=True)\n"
    script += "signal.sigwait([signal.SIGWINCH])\nprint(*os.get_terminal_size())"
    channel = client.open("exec", argv=[sys.executable, "-c", script], pty=[24, 80])
    client.event(channel)
    assert client.receive().payload == b"up\r\n"
    client.call(channel, resize=[50, 132])
    assert client.finish(channel).stdout == b"132 50\r\n"


def test_ctrl_c_interrupts_the_command(client):
    script = "trap 'echo interrupted; exit 3' INT; echo up; while :; do sleep 0.05; done"
    channel = client.open("exec", argv=["/bin/sh", "-c", script], pty=[24, 80], stdin=True)
    client.event(channel)
    assert client.receive().payload == b"up\r\n"
    client.data(channel, b"\x03")
    ended = client.finish(channel)
    assert b"interrupted" in ended.stdout
    assert ended.ok["exit_code"] == 3


def test_the_end_of_input_is_the_end_of_transmission(client):
    channel = client.open("exec", argv=["cat"], pty=[24, 80], stdin=True)
    client.event(channel)
    client.data(channel, b"hello\n")
    client.eof(channel)
    ended = client.finish(channel)
    assert ended.stdout.count(b"hello") == 2
    assert ended.ok["exit_code"] == 0


def test_a_program_that_is_not_there_is_told_on_the_terminal(client):
    ended = client.run("no-such-program", pty=[24, 80])
    assert ended.stdout == b"no-such-program: command not found\r\n"
    assert ended.ok["exit_code"] == 127


def test_the_environment_and_the_descriptors_are_as_for_pipes(guest, client):
    other = guest.connect()
    script = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], sorted(os.environ))"
    ended = client.run(sys.executable, "-I", "-c", script, pty=[24, 80], env={"TERM": "xterm"})
    assert ended.stdout == b"[0, 1, 2] ['HOME', 'LANG', 'PATH', 'TERM']\r\n"
    other.close()


def test_signals_are_as_for_pipes(client):
    ended = client.run("/bin/sh", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status", pty=[24, 80])
    libc_own = 1 << 31 | 1 << 32  # 32 and 33, which libc lets nobody change
    assert [int(line.split()[1], 16) & ~libc_own for line in ended.stdout.splitlines()] == [0, 0]


def test_a_timeout_kills_the_whole_tree_of_it(client):
    ended = client.run("/bin/sh", "-c", "setsid sleep 60 & sleep 60", pty=[24, 80], timeout=0.3)
    assert ended.ok["exit_code"] == 124
    assert client.do("processes").ok["processes"] == []


def test_closing_the_channel_kills_it(client):
    channel = client.open("exec", argv=["/bin/sh"], pty=[24, 80], stdin=True)
    client.event(channel)
    client.cancel(channel)
    assert client.finish(channel).ok["exit_code"] == 128 + signal.SIGKILL
    eventually(lambda: client.do("processes").ok["processes"] == [])


def test_much_output_comes_through(client):
    ended = client.run(sys.executable, "-c", "print('x' * 2_000_000)", pty=[24, 80])
    assert ended.stdout == b"x" * 2_000_000 + b"\r\n"
