"""`run --code` and `exec --code`: cells whose state stays in the sandbox."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

from atoll import Sandbox
from atoll.cli import pictures
from atoll.client.command import MAX_OUTPUT
from atoll.types import Result

from .conftest import stop


def png(width, height):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", pixels) + part(b"IEND", b"")


PICTURE = f"""
class Picture:
    def _repr_png_(self):
        import base64
        return base64.b64decode({base64.b64encode(png(6, 4)).decode()!r})
"""


def test_what_a_kept_run_has_made_the_next_cell_has(atoll):
    made = atoll("run", "--lang", "python", "--keep", "--code", "x = 41; print('made')")
    assert (made.code, made.out) == (0, b"made\n")
    id = made.err.split()[-1]
    assert atoll("exec", id, "--code", "x + 1") == (0, b"42\n", "")
    assert atoll("exec", id, "--context", "other", "--code", "'x' in globals()").out == b"False\n"
    assert atoll("exec", id, "--lang", "bash", "--code", "y=7").code == 0
    assert atoll("exec", id, "--lang", "bash", "--code", "echo $y").out == b"7\n"
    assert atoll("destroy", id).code == 0


def test_code_comes_from_standard_input_or_a_file(atoll, kept, tmp_path):
    file = tmp_path / "cell.py"
    file.write_text("# -*- quotes: ''' \"\"\" $HOME -*-\nz = 'grüße'\nz")
    assert atoll("exec", kept, "--code-file", str(file)).out == "'grüße'\n".encode()
    assert atoll("exec", kept, "--code", "-", input=b"z * 2").out == "'grüßegrüße'\n".encode()


def test_a_cell_that_raises_says_so_and_what_came_before_is_there(atoll, kept):
    process = atoll.start("exec", kept, "--code", "print('before')\nx = 1\nx / 0")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"before\n")
    assert err.decode().startswith('Traceback (most recent call last):\n  File "<cell 1>", line 3')
    assert err.endswith(b"ZeroDivisionError: division by zero\n")
    assert b"\x1b" not in err, "no colours into a pipe"
    assert atoll("exec", kept, "--code", "x").out == b"1\n"


def test_a_cell_that_takes_too_long_ends_with_124_and_the_state_stays(atoll, kept):
    atoll("exec", kept, "--code", "x = 1")
    process = atoll.start("exec", kept, "-t", "0.3", "--code", "while True: pass")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 124
    assert b"atoll: The cell ran out of time after 0.3 s; -t gives it more.\n" in err
    assert b"lost" not in err
    assert atoll("exec", kept, "--code", "x").out == b"1\n"


def test_lost_variables_are_told(atoll, kept):
    done = atoll("exec", kept, "--code", "import os; os._exit(3)")
    assert done.code == 1
    assert "lost" in done.err


def test_a_cell_whose_output_was_cut_exits_with_0_and_a_note(atoll, kept):
    size = MAX_OUTPUT + 1000
    done = atoll("exec", kept, "--code", f"for _ in range({size} // 1000): print('x' * 999)")
    assert (done.code, len(done.out)) == (0, MAX_OUTPUT)
    assert "more than may pass" in done.err
    assert atoll("exec", kept, "--code", "print('x' * 999)").err == ""


def test_the_exit_code_of_a_shells_cell_is_the_commands(atoll, kept):
    done = atoll("exec", kept, "--lang", "bash", "--code", "(exit 7)")
    assert (done.code, done.err) == (7, "exit code 7\n")


def test_a_cell_that_fails_for_want_of_a_network_is_told(atoll, kept):
    process = atoll.start("exec", kept, "--code", "import socket; socket.getaddrinfo('example.com', 80)")
    err = process.communicate(timeout=60)[1].decode()
    assert err.splitlines()[-1].startswith("atoll: This sandbox has no network; network='all'")
    process = atoll.start("exec", kept, "--code", "1/0")
    assert b"network" not in process.communicate(timeout=60)[1]


def test_all_of_a_cell_as_json(atoll, kept):
    done = atoll("exec", kept, "--json", "--code", "print('out'); display('shown'); 6 * 7")
    told = json.loads(done.out)
    assert (done.code, told["text"], told["stdout"], told["error"], told["count"]) == (0, "42", "out\n", None, 1)
    assert [result["is_main"] for result in told["results"]] == [False, True]
    assert told["results"][0]["data"]["text/plain"] == "'shown'"
    failed = atoll.start("exec", kept, "--json", "--code", "1/0")
    out, err = failed.communicate(timeout=60)
    assert (failed.returncode, err) == (1, b"")
    assert json.loads(out)["error"]["name"] == "ZeroDivisionError"


def test_input_is_answered_by_standard_input(atoll, kept):
    done = atoll("exec", kept, "--code", "a = input('a? '); b = input(); a + b", input=b"one\ntwo\nthree\n")
    assert done.out == b"a? \n'onetwo'\n"
    process = atoll.start("exec", kept, "-n", "--code", "input()")
    _, err = process.communicate(b"unread\n", timeout=60)
    assert process.returncode == 1
    assert b"Error" in err


def test_pictures_become_files_that_replace_none(atoll, kept, tmp_path):
    (tmp_path / "figure-1.png").write_text("mine")
    done = atoll("exec", kept, "--code", f"{PICTURE}\ndisplay(Picture())\nPicture()", cwd=tmp_path)
    size = f"{len(png(6, 4))} bytes"
    assert done == (0, b"", f"figure-2.png (6x4, {size})\nfigure-3.png (6x4, {size})\n")
    assert (tmp_path / "figure-1.png").read_text() == "mine"
    assert (tmp_path / "figure-3.png").read_bytes() == png(6, 4)


@pytest.mark.parametrize(
    ("mime", "data", "name"),
    [
        ("image/jpeg", base64.b64encode(b"jpeg" * 1000).decode(), "figure-1.jpg (4 kB)"),
        ("image/svg+xml", "<svg/>", "figure-1.svg (6 bytes)"),
        ("application/pdf", base64.b64encode(bytes(2_500_000)).decode(), "figure-1.pdf (2.5 MB)"),
        ("image/png", base64.b64encode(b"no picture").decode(), "figure-1.png (10 bytes)"),
    ],
)
def test_each_kind_of_picture_has_its_name(mime, data, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pictures.save(Result({"text/plain": "", mime: data})) == name


def test_ctrl_c_ends_the_cell_and_the_state_stays(atoll, kept):
    process = atoll.start("exec", kept, "--code", "x = 5; print('up', flush=True)\nwhile True: pass")
    assert process.stdout.readline() == b"up\n"
    assert stop(process)[0] == 130
    assert Sandbox.connect(kept).run_code("x", timeout=20).text == "5"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--code", "1", "ls"], "The cell is the whole of what runs"),
        (["--code", "1", "--file", "x.py"], "The cell is the whole of what runs"),
        (["--code", "1", "--code-file", "x.py"], "not both"),
        (["--code", "1", "--deps", "go.mod"], "--packages"),
        (["--code", "-", "-n"], "keeps standard input away"),
        (["--context", "a", "ls"], "--context is for a cell"),
        (["--code", "1", "--lang", "cobol"], "cobol"),
        (["--code-file", "/nowhere"], "/nowhere: No such file"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(atoll, kept, words, sentence):
    done = atoll("exec", kept, *words)
    assert (done.code, done.out) == (125, b"")
    assert sentence in done.err
