"""Where a kernel's terminals send no signals, a process beside the command does."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest

from atoll.guest import attendant, spawn

PATIENCE = 20
TRAPS = "trap 'echo int' INT; trap 'stty size' WINCH; trap 'exit 7' QUIT; echo ready; while :; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def without_signals(monkeypatch):
    monkeypatch.setattr(attendant, "_probed", [True])


@pytest.fixture
def shell():
    env = {b"PATH": os.environb[b"PATH"]}
    child = spawn.spawn_terminal(spawn.Command([b"/bin/sh", b"-c", TRAPS.encode()], env), (24, 80))
    beside = attendant.Attendant(child.stdout, child.attendant)
    until(child, "ready")
    yield child, beside
    for fd in (child.stdin, child.stdout):
        os.close(fd)
    try:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # the test has seen its end


def until(child, word):
    seen = ""
    while word not in seen:
        assert select.select([child.stdout], [], [], PATIENCE)[0], seen
        seen += os.read(child.stdout, 4096).decode()
    return seen


def test_it_passes_signals_on_to_the_foreground(shell):
    child, beside = shell
    beside.send(signal.SIGINT)
    until(child, "int")
    spawn.resize(child.stdout, (50, 132))
    beside.send(signal.SIGWINCH)
    until(child, "50 132")
    beside.send(signal.SIGQUIT)
    assert os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) == 7
    beside.close()


def test_it_is_no_child_of_the_command_and_ends_with_its_pipe(shell):
    child, beside = shell
    with open(f"/proc/{child.pid}/stat", encoding="ascii") as file:
        session = file.read().rpartition(")")[2].split()[3]
    assert attendants(session, child.pid)
    beside.close()
    deadline = time.monotonic() + PATIENCE
    while attendants(session, child.pid):
        assert time.monotonic() < deadline


def attendants(session, command):
    """The living processes of a session that are neither the command nor below it."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == session and fields[0] != "Z" and int(entry) != command and int(fields[1]) != command:
            found.append(int(entry))
    return found


def test_keys_become_signals_only_where_the_terminal_says_so(shell):
    import termios

    child, beside = shell
    assert beside.split(b"ab\x03cd\x1c") == [(b"ab", signal.SIGINT), (b"cd", signal.SIGQUIT)]
    assert beside.split(b"plain") == [(b"plain", None)]
    modes = termios.tcgetattr(child.stdout)
    modes[3] &= ~termios.ISIG
    termios.tcsetattr(child.stdout, termios.TCSANOW, modes)
    assert beside.split(b"ab\x03") == [(b"ab\x03", None)]
    beside.close()


def test_this_kernel_needs_none(monkeypatch):
    monkeypatch.setattr(attendant, "_probed", [])
    assert not attendant.needed()
