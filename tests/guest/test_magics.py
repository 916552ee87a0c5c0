"""Magics of IPython in Python cells: what they become, and that nothing else becomes anything."""

from __future__ import annotations

import ast
import pathlib
import random

import pytest

from atoll.guest.celltext import may_have_magics
from atoll.guest.magics import translated

from .support import failure, text

SOURCES = [path.read_text() for path in sorted(pathlib.Path(__file__).parents[2].joinpath("src/atoll").rglob("*.py"))]


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("!ls", "__magics__.system('ls')"),
        ("x = !ls", "x = __magics__.lines('ls')"),
        ("if a:\n    !ls -l\nb", "if a:\n    __magics__.system('ls -l')\nb"),
        ("!echo a \\\n  b\nc", "__magics__.system('echo a \\\\\\n  b')\n\nc"),
        ("!!ls", "__magics__.lines('ls')"),
        ("x = !!ls", "x = __magics__.lines('ls')"),
        ("%ls -a", "__magics__.system('ls -a')"),
        ("x = %ls", "x = __magics__.lines('ls')"),
        ("%pwd", "__magics__.pwd('')"),
        ("%%writefile a.py\nx = 1\n%y\n", "__magics__.writefile('a.py', 'x = 1\\n%y\\n')"),
        ("%cd /tmp", "__magics__.cd('/tmp')"),
        ("%env A=1", "__magics__.env('A=1')"),
        ("%matplotlib inline\nx", "pass\nx"),
        ("%time f(x)", "__magics__.timed(lambda: (f(x)))"),
        ("%time y = f(x)", "__magics__.start(); y = f(x); __magics__.stop()"),
        ("%timeit -n 3 f(x)", "__magics__.timeit('-n 3 f(x)')"),
        ("%pip install six", "__magics__.pip('install six')"),
        ("%%bash\necho hi\n!x", "__magics__.script('bash', 'echo hi\\n!x')"),
        ("\n%%time\nx = 1\nx", "__magics__.start()\nx = 1\nx"),
        ("%%time\n!ls", "__magics__.start()\n__magics__.system('ls')"),
        ("%%timeit a = 1\na + 1", "__magics__.timeit('a = 1', 'a + 1')"),
        ('!a\ns = """\n!b\n%c\n"""\nt = (1\n% 2)', '__magics__.system(\'a\')\ns = """\n!b\n%c\n"""\nt = (1\n% 2)'),
        ("!a\ny = 7 \\\n% 2", "__magics__.system('a')\ny = 7 \\\n% 2"),
    ],
)
def test_a_magic_becomes_a_call_and_every_other_line_stays(cell, python):
    assert translated(cell) == python
    ast.parse(python)


@pytest.mark.parametrize(
    "cell",
    ["", "x = 1", "%klingon", "%%klingon\nx", "x = y?", "!", "%", "a b c", "%time", "%time x y", "%%writefile\nx"],
)
def test_what_is_no_magic_that_is_known_stays_what_it_is(cell):
    assert translated(cell) is None


def test_no_valid_python_is_changed():
    chance = random.Random(7)
    for source in SOURCES:
        lines = source.split("\n")
        for _ in range(3):
            first = chance.randrange(len(lines))
            part = "\n".join(lines[first : first + chance.randrange(1, 40)])
            # Whatever its lines are, between quotes or brackets they are left alone, and so is all that has no magic.
            held = f"!true\nx = [{part!r},\n% 3]\ny = '''\n!{part.replace(chr(39), '').replace(chr(92), '')}\n%cd\n'''"
            assert translated(held) == "__magics__.system('true')" + held[len("!true") :]
            if not may_have_magics(part):
                assert translated(part) is None


def test_random_cells_become_python_or_stay():
    chance = random.Random(11)
    pieces = [
        "!",
        "%",
        "%%",
        "time",
        "cd ",
        "x",
        "=",
        " ",
        "\n",
        "'",
        '"""',
        "(",
        ")",
        "\\",
        "{",
        "}",
        "#",
        "1",
        ":",
        "?",
        "é",
        "\t",
    ]
    for _ in range(3000):
        cell = "".join(chance.choices(pieces, k=chance.randrange(1, 25)))
        made = translated(cell)
        if made is not None:
            assert "__magics__" in made or "pass" in made
            assert made.count("\n") >= cell.rstrip("\n").count("\n") or cell.strip().startswith("%%")


@pytest.fixture
def cell(client):
    return lambda code, **more: client.do("code", code=code, context="magic", **more)


def test_commands_run_where_the_context_is(cell):
    done = cell(
        "import os\nname = 'it'\n%cd /usr\n"
        "!echo $0 in $PWD says {name} and $name {1,2} >&1; echo err >&2; false\n_exit_code"
    )
    assert failure(done) is None
    assert done.stdout.decode().splitlines()[0] == "/usr"
    assert b"in /usr says it and it" in done.stdout
    assert done.stderr == b"err\n"
    assert text(done) == "1"
    assert text(cell("files = !printf 'a\\nb'\nfiles")) == "['a', 'b']"
    assert cell("%%bash\ncd /\npwd; echo $((40+2))").stdout == b"/\n42\n"
    assert failure(cell("%%sh\nexit 3"))["name"] == "CalledProcessError"
    assert cell("for n in range(2):\n    !echo {n * 2}").stdout == b"0\n2\n"


def test_times_are_told_and_values_stay_values(cell):
    done = cell("%time 6 * 7")
    assert text(done) == "42"
    assert b"wall time: " in done.stdout
    done = cell("%%time\nx = 41\nx + 1")
    assert text(done) == "42"
    assert done.stdout.count(b"wall time: ") == 1
    done = cell("%timeit -n 2 -r 3 x + 1")
    assert b"(3 rounds of 2)" in done.stdout
    assert b"wall time" not in cell("x").stdout
    assert b"rounds of" in cell("%%timeit -n 1 -r 1 y = 5\ny + x").stdout


def test_files_are_written_and_directories_told(cell, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    assert text(cell(f"%cd {place}\n%pwd")) == repr(str(place))
    written = cell("%%writefile made.py\nprint('from a file')\n%no magic here")
    assert (failure(written), written.stdout) == (None, b"Writing made.py\n")
    assert cell("%%writefile -a made.py\nlast").stdout == b"Appending to made.py\n"
    assert (place / "made.py").read_text() == "print('from a file')\n%no magic here\nlast\n"
    assert cell("%ls").stdout == b"made.py\n"
    assert text(cell("!!ls")) == "['made.py']"
    assert failure(cell("%%writefile nowhere/x\n1"))["name"] == "FileNotFoundError"


def test_variables_of_the_environment(cell):
    assert cell("%env GREETING=hi").stdout == b"env: GREETING=hi\n"
    assert text(cell("%env GREETING")) == "'hi'"
    assert cell("!echo $GREETING").stdout == b"hi\n"


def test_errors_name_the_line_of_the_cell(cell):
    error = failure(cell("!true\n%cd /no/such/place"))
    assert error["name"] == "FileNotFoundError"
    assert "%cd /no/such/place" in error["traceback"]
    assert "magiccalls" not in error["traceback"]
    assert "IPython's" in failure(cell("%klingon"))["value"]


def test_pip_says_what_works_where_there_is_no_network(client):
    offline = "import socket\nclass Closed(socket.socket):\n    def connect(self, address): raise OSError\n"
    offline += "socket.socket = Closed\n"
    client.do("code", code=offline, context="offline")
    for line in ("%pip install six", "!pip install six"):
        error = failure(client.do("code", code=line, context="offline"))
        assert error["name"] == "RuntimeError"
        assert "sb.install([...])" in error["value"]


def test_what_no_cell_needs_is_not_there(client):
    code = "import sys; [name for name in sys.modules if 'magic' in name or name == 'subprocess']"
    assert text(client.do("code", code=code, context="plain")) == "[]"
