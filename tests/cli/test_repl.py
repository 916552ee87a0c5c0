"""`atoll repl`, typed at on a real terminal, and piped into."""

from __future__ import annotations

import os
import signal
import stat

import pytest

from atoll import Sandbox
from atoll.cli.replcells import BracketRule, ProgramRule, PythonRule, from_pipe
from atoll.cli.replcommands import is_command

from .test_cells import PICTURE

# What ends the prompt on a terminal without colours.
PLAIN = {"NO_COLOR": "1"}


def prompt(number):
    return rb"In \[%d\]: " % number


def leave(it):
    # Keys that mean something are typed at a prompt: before, the terminal would take them for itself.
    it.expect(rb"In \[\d\]: ")
    it.type(b"\x04")
    assert it.wait() == 0


def test_cells_are_typed_and_their_values_shown(atoll):
    with atoll.terminal("repl", env=PLAIN) as it:
        it.expect(rb"python in sb-\w+, it is gone when you leave")
        it.expect(prompt(1))
        it.type(b"x = 20\r")
        it.expect(prompt(2))
        it.type(b"def f(n):\r")
        it.expect("     …: ".encode())
        it.type(b"    return n + 1\r")
        it.expect("     …: ".encode())
        it.type(b"\r")
        it.expect(prompt(3))
        it.type(b"f(x) * 2\r")
        it.expect(rb"\r\nOut\[3\]: 42\r\n")
        it.expect(prompt(4))
        it.type("print('grüße', end='')\r".encode())
        it.expect("\r\ngrüße\r\n".encode())
        it.expect(prompt(5))
        it.type(b"x / 0\r")
        it.expect(rb"ZeroDivisionError: division by zero\r\n")
        leave(it)
        assert b"\x1b[3" not in it.screen
        assert it.in_order()


def test_ctrl_c_interrupts_the_cell_and_what_was_there_stays(atoll):
    with atoll.terminal("repl", env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"x = 5\r")
        it.expect(prompt(2))
        it.type(b"half a line\x03")
        it.expect(rb"\r\n")
        it.expect(prompt(2))
        it.type(b"print('up'); exec('while True: pass')\r")
        it.expect(rb"\r\nup\r\n")
        it.type(b"\x03")
        it.expect(rb"KeyboardInterrupt\r\n")
        it.expect(prompt(3))
        it.type(b"x + 1\r")
        it.expect(rb"Out\[3\]: 6\r\n")
        it.type(b"exit()\r")
        assert it.wait() == 0


def test_a_cell_that_does_not_listen_is_restarted_by_the_third_ctrl_c(atoll):
    with atoll.terminal("repl", env=PLAIN) as it:
        it.expect(prompt(1))
        deaf = b"while 1:\\n try: print(\\'up\\'); time.sleep(1000)\\n except KeyboardInterrupt: print(\\'no\\')"
        it.type(b"import time; exec('%s')\r" % deaf)
        it.expect(rb"\r\nup\r\n")
        it.type(b"\x03")
        it.expect(rb"no\r\nup\r\n")
        it.type(b"\x03")
        it.expect(rb"Ctrl-C once more restarts it")
        it.type(b"\x03")
        it.expect(rb"the context was restarted; the variables of this context are lost\r\n")
        it.expect(prompt(1))
        it.type(b":quit\r")
        assert it.wait() == 0


def test_input_is_typed_and_can_be_interrupted(atoll):
    with atoll.terminal("repl", env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"name = input('who? ')\r")
        it.expect(rb"\rwho\? ")
        it.type(b"ada\r")
        it.expect(prompt(2))
        it.type(b"input('again? ')\r")
        it.expect(rb"\ragain\? ")
        it.type(b"\x03")
        it.expect(rb"KeyboardInterrupt\r\n")
        it.expect(prompt(3))
        it.type(b"name\r")
        it.expect(rb"Out\[3\]: 'ada'\r\n")
        leave(it)


def test_history_lasts_and_is_private_and_tab_completes(atoll, kept, home):
    with atoll.terminal("repl", kept, env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"wonderful_name = 'one of its kind'\r")
        it.expect(prompt(2))
        it.type(b"wonder\t.upper()\r")
        it.expect(rb"Out\[2\]: 'ONE OF ITS KIND'\r\n")
        leave(it)
    assert stat.S_IMODE(os.stat(f"{home}/repl_history").st_mode) == 0o600
    with atoll.terminal("repl", kept, env=PLAIN) as it:
        it.expect(prompt(3))
        it.type(b"\x1b[A\r")
        it.expect(rb"Out\[3\]: 'ONE OF ITS KIND'\r\n")
        leave(it)


def test_commands(atoll, kept, tmp_path):
    target = tmp_path / "session.py"
    with atoll.terminal("repl", kept, env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"x = 'a\\x1bb'; open('made', 'w').close()\r")
        it.expect(prompt(2))
        it.type(b":vars\r")
        it.expect(rb"x +str +\S+ +'a\\x1bb'\r\n")
        it.type(b":files\r")
        it.expect(rb"0 +made\r\n")
        it.type(b":save %s\r" % os.fsencode(target))
        it.expect(rb"1 cells are in")
        it.type(b":save %s\r" % os.fsencode(target))
        it.expect(rb"File exists")
        it.type(b":nonsense\r")
        it.expect(rb"There is no :nonsense; :help lists")
        it.type(b":help\r")
        it.expect(rb":reset +start afresh")
        it.type(b":reset\r")
        it.expect(prompt(1))
        it.type(b"'x' in globals()\r")
        it.expect(rb"Out\[1\]: False")
        it.type(b":quit\r")
        assert it.wait() == 0
    assert target.read_text() == "x = 'a\\x1bb'; open('made', 'w').close()\n\n"


def test_colours_are_for_terminals(atoll, kept):
    with atoll.terminal("repl", kept) as it:
        it.expect(rb"\x1b\[32mIn \[1\]: \x1b\[0m")
        it.type(b"1\r")
        it.expect(rb"\x1b\[31mOut\[1\]: \x1b\[0m1\r\n")
        leave(it)


def test_a_shell_goes_on_while_a_command_is_open(atoll, kept):
    with atoll.terminal("repl", kept, "--lang", "bash", env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"for word in one two; do\r")
        it.expect("…: ".encode())
        it.type(b"echo $word; done\r")
        it.expect(rb"\r\none\r\ntwo\r\n")
        it.expect(prompt(2))
        it.type(b"cd /tmp\r")
        it.expect(prompt(3))
        it.type(b"pwd; false\r")
        it.expect(rb"\r\n/tmp\r\nexit code 1\r\n")
        leave(it)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_a_repl_that_is_told_to_end_leaves_no_sandbox(atoll, number, code):
    with atoll.terminal("repl", env=PLAIN) as it:
        it.expect(prompt(1))
        it.process.send_signal(number)
        assert it.wait() == code
        assert it.in_order()
    with atoll.terminal("repl", env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"print('up'); exec('while True: pass')\r")
        it.expect(rb"\r\nup\r\n")
        it.process.send_signal(number)
        assert it.wait() == code
    assert atoll.sandboxes() == []


def test_a_sandbox_that_ends_under_a_repl_is_told(atoll, kept):
    with atoll.terminal("repl", kept, env=PLAIN) as it:
        it.expect(prompt(1))
        Sandbox.connect(kept).destroy()
        it.type(b"1\r")
        it.expect(rb"atoll: The sandbox sb-\w+ is gone: ")
        assert it.wait() == 125
        assert it.in_order()


def test_a_repl_goes_on_after_what_only_one_cell_has_met(atoll, kept):
    with atoll.terminal("repl", kept, "-t", "0.3", env=PLAIN) as it:
        it.expect(prompt(1))
        it.type(b"while True: pass\r")
        it.expect(rb"atoll: The cell ran out of time after 0.3 s")
        it.expect(prompt(2))
        it.type(b"while True:\r\r")
        it.expect(rb"SyntaxError|IndentationError|" + "…: ".encode())
        it.type(b"\x03")
        it.expect(prompt(2))
        it.type(b"'\xff'\r")
        leave(it)


def test_a_pipe_is_obeyed_statement_by_statement_until_a_cell_fails(atoll, tmp_path):
    script = (
        "def f(n):\n    n += 1\n\n    return n\nif f(1) == 3:\n    print('no')\nelse:\n    print('yes')\n"
        "name = input()\nada\nname, f(41)\n'''two\n\nlines'''\n"
    )
    done = atoll("repl", input=script.encode())
    assert done == (0, b"yes\n('ada', 42)\n'two\\n\\nlines'\n", "")
    process = atoll.start("repl", cwd=tmp_path)
    out, err = process.communicate(f"{PICTURE}\nPicture()\nprint(1)\n1/0\nprint(2)\n".encode(), timeout=60)
    assert (process.returncode, out) == (1, b"1\n")
    assert err.startswith(b"figure-1.png (6x4, ")
    assert err.endswith(b"ZeroDivisionError: division by zero\n")
    assert atoll.sandboxes() == []


def test_other_languages_are_piped_as_a_whole(atoll):
    assert atoll("repl", "--lang", "sh", input=b"f() {\n  echo $1\n}\n\nf hi\n").out == b"hi\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--memory", "1G"], "leave out what is for a new one: resources"),
        (["--lang", "bash", "--context", "main"], "The context main is for python"),
        (["-e", "A=b"], "exists already; leave out -e"),
        (["--lang", "cobol"], "cobol"),
    ],
)
def test_what_cannot_be_is_refused(atoll, kept, words, sentence):
    assert atoll("exec", kept, "--code", "1").code == 0
    done = atoll("repl", kept, *words, input=b"1\n")
    assert (done.code, done.out) == (125, b"")
    assert sentence in done.err


@pytest.mark.parametrize(
    ("lines", "whole"),
    [
        (["x = 1"], True),
        (["x = ("], False),
        (["def f():"], False),
        (["def f():", "    pass"], False),
        (["def f():", "    pass", ""], True),
        (["while True: pass"], True),
        (["@decorated"], False),
        (["'''text"], False),
        (["x = 1", "y = 2"], True),
        (["x = 1", "def f():"], False),
        (["await something()"], True),
        (["this is wrong"], True),
        (["x \\"], False),
        (["1 is 1"], True),
    ],
)
def test_where_python_ends(lines, whole):
    assert PythonRule().is_whole(lines) is whole


def test_a_line_that_cannot_be_of_the_block_begins_another():
    rule = PythonRule()
    block = ["if x:", "    pass"]
    assert rule.begins_another(block, "print()")
    for line in ("    more()", "else:", "elif y:", "# note", ""):
        assert not rule.begins_another(block, line)
    assert not rule.begins_another(["x = '''"], "print()")


def test_a_pipe_is_cut_where_python_would():
    text = "a = 1\n\n# note\nfor i in a:\n    b\n\n    c\nelse:\n    d\n:vars\ne = (1,\n\n2)\nf"
    cells = list(from_pipe(PythonRule(), text.split("\n"), is_command))
    assert cells == [
        "a = 1", "# note", "for i in a:\n    b\n\n    c\nelse:\n    d", ":vars", "e = (1,\n\n2)", "f",
    ]  # fmt: skip


def test_other_rules():
    assert not BracketRule().is_whole(["f(", "1"])
    assert BracketRule().is_whole(["f(", "1)"])
    assert BracketRule().is_whole(["print('(')", ""])
    assert not ProgramRule().is_whole(["package main", ""])
    assert ProgramRule().is_whole(["package main", "", ""])


@pytest.mark.parametrize(("line", "so"), [(":vars", True), (":save x", True), (": > file", False), (":(){", False)])
def test_a_colon_and_a_word_is_a_command(line, so):
    assert is_command(line) is so
