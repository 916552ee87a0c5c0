"""`atoll shell`, and commands of `atoll run` and `exec`, on a real terminal, and the terminal afterwards."""

from __future__ import annotations

import signal

import pytest

from atoll import Sandbox

from .terminal import Terminal

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


def test_a_command_at_a_terminal_has_it(atoll):
    with atoll.terminal("run", "python3", "-q") as terminal:
        terminal.expect(rb">>> ")
        terminal.type(b"import os; os.isatty(0), os.isatty(1), os.environ['TERM'], 6 * 7\r")
        terminal.expect(rb"\(True, True, 'xterm', 42\)")
        terminal.type(b"\x03")
        terminal.expect(rb"KeyboardInterrupt")
        terminal.type(b"exit(7)\r")
        assert terminal.wait() == 7
        assert terminal.in_order()
    assert atoll.sandboxes() == []


def test_one_word_and_one_that_exists_have_it_too(atoll, kept):
    for words in (["run", "cat"], ["exec", kept, "cat"], ["run", "-it", "--", "cat"], ["run", "-i", "--tty", "cat"]):
        with atoll.terminal(*words) as terminal:
            terminal.type(b"to and fro\r")
            terminal.expect(rb"to and fro\r\n(?s:.*)to and fro\r\n")
            terminal.type(b"\x04")
            assert terminal.wait() == 0


def test_the_window_of_a_command_changes_its_size(atoll):
    script = "trap 'stty size' WINCH; stty size; while :; do sleep 0.1; done"
    with atoll.terminal("run", "sh", "-c", script) as terminal:
        terminal.expect(rb"24 80\r\n")
        terminal.resize(33, 101)
        terminal.expect(rb"33 101\r\n")
        terminal.type(b"\x03")
        assert terminal.wait() == 130


def test_a_program_has_the_terminal_where_it_is_asked_for(atoll, tmp_path):
    (tmp_path / "ask.py").write_text("print('hello', input('name? '))")
    with atoll.terminal("run", "-it", "--file", str(tmp_path / "ask.py")) as terminal:
        terminal.expect(rb"name\? ")
        terminal.type(b"ada\r")
        terminal.expect(rb"hello ada\r\n")
        assert terminal.wait() == 0


def test_a_time_limit_holds_at_a_terminal_and_is_told(atoll):
    with atoll.terminal("run", "-t", "0.5", "cat", env={"COLUMNS": "200"}) as terminal:
        assert terminal.wait() == 124
        assert b"atoll: The command ran out of time after 0.5 s and was killed" in terminal.screen
        assert terminal.in_order()


@pytest.mark.parametrize("words", [["-n"], ["--json"]])
def test_a_command_that_is_to_have_no_keys_has_no_terminal(atoll, words):
    with atoll.terminal("run", *words, "test -t 0 || test -t 1 || echo 'no 'terminal") as terminal:
        terminal.expect(rb"no terminal")
        assert terminal.wait() == 0


def test_output_that_goes_elsewhere_stays_apart_from_the_terminal(atoll, tmp_path):
    for redirection in (">", "2>"):
        command = "test -t 1 || test -t 2 || echo no terminal; cat"
        line = f"{atoll.script} run '{command}' {redirection} {tmp_path}/file; echo end"
        with Terminal(["/bin/sh", "-c", line], atoll.env(TERM="xterm", COLUMNS="200")) as terminal:
            terminal.expect(rb"end\r\n")
            assert terminal.wait() == 0


def test_who_gets_no_keys_is_told(atoll, tmp_path):
    line = f"{atoll.script} run cat > {tmp_path}/file"
    with Terminal(["/bin/sh", "-c", line], atoll.env(TERM="xterm", COLUMNS="200")) as terminal:
        terminal.expect(rb"`cat` got no keys; they are for a command whose input and output are your terminal.")
        assert terminal.wait() == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-it", "cat"], "--tty needs a terminal, as input and as output; without one, leave it out."),
        (["-n", "-i", "cat"], "-n keeps standard input from the command, and -i passes it on"),
        (["-it", "--json", "cat"], "--json prints what a command has written"),
        (["-it", "--code", "1"], "A cell has no terminal"),
    ],
)
def test_a_terminal_that_cannot_be_had_is_refused(atoll, words, sentence):
    done = atoll("run", *words)
    assert done.code == 125
    assert sentence in done.err
