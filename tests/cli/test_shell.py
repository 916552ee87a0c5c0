"""`atoll shell` on a real terminal, and the terminal afterwards."""

from __future__ import annotations

import signal

import pytest

from atoll import Sandbox

PROMPT = rb"sb-\w+\S*:\S*\$ "


def test_a_shell_is_a_terminal_in_a_sandbox_that_ends_with_it(atoll):
    with atoll.terminal("shell") as terminal:
        terminal.expect(rb"sb-\w+ on jail; it is gone when you leave")
        terminal.expect(PROMPT)
        terminal.type(b"test -t 0 && test -t 2 && echo terminal$((40+2)) in $PWD as $TERM\r")
        terminal.expect(rb"terminal42 in /workspace as xterm")
        assert len(atoll.sandboxes()) == 1
        assert not terminal.in_order(), "while it lasts the keys go through unchanged"
        terminal.type(b"exit 7\r")
        assert terminal.wait() == 7
        assert terminal.in_order()


def test_ctrl_c_is_for_the_program_inside_and_ctrl_d_leaves(atoll):
    with atoll.terminal("shell") as terminal:
        terminal.expect(PROMPT)
        terminal.type(b"sh -c 'echo go; exec sleep 1000'\r")
        terminal.expect(rb"[\r\n]go\r\n")
        terminal.type(b"\x03")
        terminal.expect(PROMPT)
        terminal.type(b"echo code $?\r")
        terminal.expect(rb"code 130")
        terminal.expect(PROMPT)
        terminal.type(b"true\r")
        terminal.expect(PROMPT)
        terminal.type(b"\x04")
        assert terminal.wait() == 0


def test_the_size_of_the_window_reaches_the_program(atoll):
    with atoll.terminal(
        "shell", "--", "sh", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.1; done"
    ) as it:
        it.expect(rb"24 80\r\n")
        it.resize(33, 101)
        it.expect(rb"33 101\r\n")
        it.type(b"\x03")
        assert it.wait() == 130


def test_every_key_passes_and_full_screen_programs_get_it(atoll):
    code = "import os, tty; tty.setraw(0); print('ready', flush=True); print(ascii(os.read(0, 64)), end='\\r\\n')"
    with atoll.terminal("shell", "--", "python3", "-c", code) as terminal:
        terminal.expect(rb"ready")
        terminal.type(b"\x1b[A\x03\x1a\xff\x00")
        terminal.expect(rb"b'\\x1b\[A\\x03\\x1a\\xff\\x00'")
        assert terminal.wait() == 0


def test_a_shell_in_a_sandbox_that_exists_leaves_it_alone(atoll, kept):
    with atoll.terminal("shell", kept[:8], "-e", "WORD=hi", "--workdir", "/tmp") as terminal:
        terminal.expect(PROMPT)
        terminal.type(b"echo $WORD > here; exit\r")
        assert terminal.wait() == 0
    assert atoll("exec", kept, "cat /tmp/here").out == b"hi\n"


def test_a_sandbox_that_ends_under_a_shell_is_told_and_the_terminal_is_put_in_order(atoll, kept):
    with atoll.terminal("shell", kept) as terminal:
        terminal.expect(PROMPT)
        Sandbox.connect(kept).destroy()
        terminal.expect(rb"atoll: The sandbox sb-\w+ is gone: ")
        assert terminal.wait() == 125
        assert terminal.in_order()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_a_shell_that_is_told_to_end_leaves_no_sandbox(atoll, number, code):
    with atoll.terminal("shell") as terminal:
        terminal.expect(PROMPT)
        terminal.process.send_signal(number)
        assert terminal.wait() == code
        assert terminal.in_order()
    assert atoll.sandboxes() == []


def test_a_kept_shell_stays(atoll):
    with atoll.terminal("shell", "--keep", "-l", "a=b", "--", "touch", "made") as terminal:
        assert terminal.wait() == 0
    assert atoll("run", "--reuse", "-l", "a=b", "ls").out == b"made\n"
    assert atoll("destroy", "-l", "a=b").code == 0


def test_a_large_paste_arrives_whole(atoll):
    code = (
        "import os, tty; tty.setraw(0); print('ready', flush=True); n = 0\n"
        "while n < 300000: n += len(os.read(0, 65536))\n"
        "print('got', n)"
    )
    with atoll.terminal("shell", "--", "python3", "-c", code) as terminal:
        terminal.expect(rb"ready")
        for _ in range(300):
            terminal.type(b"x" * 1000)
        terminal.expect(rb"got 300000")
        assert terminal.wait() == 0


def test_a_shell_needs_a_terminal(atoll):
    done = atoll("shell")
    assert done == (125, b"", "atoll: A shell needs a terminal; `atoll run` and `atoll exec` work without one.\n")


def test_wishes_for_a_sandbox_that_exists_are_refused(atoll, kept):
    with atoll.terminal("shell", kept, "--memory", "1G", "--keep") as terminal:
        assert terminal.wait() == 125
        assert b"leave out what is for a new one: resources, keep" in terminal.screen.replace(b"\r\n", b" ")


def test_a_command_without_a_pipe_gets_no_input_from_the_terminal(atoll):
    with atoll.terminal("run", "cat; echo end") as terminal:
        terminal.expect(rb"end\r\n")
        assert terminal.wait() == 0


def test_a_program_that_waits_for_keys_is_told_where_they_are(atoll, kept):
    for words, instead in ((["run", "cat"], "atoll shell -- cat"), (["exec", kept, "sh"], f"atoll shell {kept} -- sh")):
        with atoll.terminal(*words, env={"COLUMNS": "200"}) as terminal:
            assert terminal.wait() == 0
            assert f"got no keys; `{instead}` gives it your terminal." in terminal.screen.decode()
    for words in (["true"], ["-n", "cat"]):
        with atoll.terminal("run", *words) as terminal:
            assert terminal.wait() == 0
            assert terminal.screen == b""


def test_a_program_is_run_in_place_of_a_shell_after_the_id(atoll, kept):
    with atoll.terminal("shell", kept[:8], "echo", "-n", "-l", "own") as terminal:
        assert terminal.wait() == 0
        assert terminal.screen == b"-l own"


def test_a_program_in_place_of_an_id_is_explained(atoll):
    with atoll.terminal("shell", "python3", "x.py", env={"COLUMNS": "200"}) as terminal:
        assert terminal.wait() == 125
        assert b"A program in a new one is `atoll shell -- python3 x.py`." in terminal.screen


def test_ctrl_c_in_a_terminal_ends_a_run(atoll):
    with atoll.terminal("run", "echo up; sleep 1000") as terminal:
        terminal.expect(rb"up\r\n")
        terminal.type(b"\x03")
        assert terminal.wait() == 130
