"""`by_line`: callbacks that hear lines."""

from __future__ import annotations

import anyio.lowlevel
import pytest
from hypothesis import given, strategies as st

from atoll import AsyncSandbox, InvalidInput, by_bytes, by_line
from atoll.client import lines
from atoll.client.lines import Lines


@given(st.lists(st.text(alphabet="ab\u00fc\n\r", max_size=6)))
def test_whatever_the_pieces_the_lines_are_those_of_the_whole(pieces):
    whole = "".join(pieces)
    stream = Lines()
    heard = [line for piece in pieces for line in stream.feed(piece.encode())] + stream.finish()
    expected = [line.removesuffix("\r") for line in whole.split("\n")[:-1]]
    rest = whole.rpartition("\n")[2]
    assert heard == expected + ([rest] if rest else [])


def test_a_line_without_an_end_comes_in_pieces(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 4)
    stream = Lines()
    assert stream.feed(b"abcdefghij") == ["abcd", "efgh"]
    assert stream.feed(b"k\nlmnopq\n") == ["ijk", "lmno", "pq"]
    assert stream.feed(b"abcde") == ["abcd"]
    assert stream.finish() == ["e"]


def test_commands_cells_and_sessions_tell_lines(sandbox):
    heard = []
    sandbox.run("printf 'a\\nb'; printf 'c\\n\\nd'", on_stdout=by_line(heard.append))
    assert heard == ["a", "bc", "", "d"]
    heard.clear()
    sandbox.run_code("import sys; print('one', file=sys.stderr); print(2)", on_stderr=by_line(heard.append))
    assert heard == ["one"]
    with sandbox.session() as session:
        session.run("echo x; echo y", on_stdout=by_line(heard.append))
    assert heard == ["one", "x", "y"]


@pytest.mark.anyio
async def test_the_function_may_be_a_coroutine_function_where_it_is_awaited(aio_sandbox, sandbox):
    heard = []

    async def hear(line):
        await anyio.lowlevel.checkpoint()
        heard.append(line)

    assert isinstance(aio_sandbox, AsyncSandbox)
    await aio_sandbox.run("echo a; echo b", on_stdout=by_line(hear))
    assert heard == ["a", "b"]
    with pytest.raises(InvalidInput, match="coroutine function"):
        sandbox.run("true", on_stdout=by_line(hear))
    with pytest.raises(InvalidInput, match="give a function"):
        sandbox.run("true", on_stdout=by_line("print"))


def test_a_callback_hears_bytes_where_it_asks_for_them(sandbox):
    heard = []
    done = sandbox.run(r"printf '\377a\303'; printf '\200' >&2", on_stdout=by_bytes(heard.append))
    assert b"".join(heard) == done.stdout_bytes == b"\xffa\xc3"
    assert (done.stdout, done.stderr_bytes) == ("\ufffda\ufffd", b"\x80")
    plain = sandbox.run("printf 'grün'")
    assert (plain.stdout_bytes, plain.stderr_bytes, plain.raw) == ("grün".encode(), b"", None)
    with sandbox.session() as session:
        assert session.run(r"printf '\377'").stdout_bytes == b"\xff"
    with pytest.raises(InvalidInput, match="on_stdout is 'print'"):
        sandbox.run("true", on_stdout=by_bytes("print"))


async def test_a_coroutine_function_hears_bytes(aio_sandbox):
    heard = []

    async def hear(data):
        await anyio.lowlevel.checkpoint()
        heard.append(data)

    done = await aio_sandbox.run("head -c 300000 /dev/urandom", on_stdout=by_bytes(hear))
    assert b"".join(heard) == done.stdout_bytes
    async with aio_sandbox.stream("cat", stdin=done.stdout_bytes) as output:
        assert b"".join([chunk.data async for chunk in output]) == done.stdout_bytes
