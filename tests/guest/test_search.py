"""`search` by name and by content."""

import os
import time

import pytest
from tests.guest.rawclient import eventually
from tests.guest.support import put


@pytest.fixture
def files(guest):
    put(guest, "readme.md", b"# Title\nhello world\n")
    put(guest, "src/main.py", b"import os\nprint('Hello')\n")
    put(guest, "src/deep/util.py", b"def hello():\n    return 1\n")
    put(guest, "src/deep/data.bin", b"\0\1hello\n")
    put(
        guest,
        "src/\udcffodd.txt".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"),
        b"caf\xe9 hello\n",
    )
    os.symlink("main.py", os.path.join(guest.workspace, "src/link.py"))
    os.mkfifo(os.path.join(guest.workspace, "src/fifo.py"))


def hits(ended):
    assert ended.error is None, ended.error
    found = [match for event in ended.events for match in event["matches"]]
    return sorted((match["path"].removeprefix("/workspace/"), match["line"], match["text"]) for match in found)


def paths(ended):
    return [path for path, _, _ in hits(ended)]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", ["src/deep/util.py", "src/main.py"]),
        ("main.*", ["src/main.py"]),
        ("src/*.py", ["src/main.py"]),
        ("/src/*.py", ["src/main.py"]),
        ("src/**", ["src/deep/data.bin", "src/deep/util.py", "src/main.py", "src/\udcffodd.txt"]),
        ("src/**/*.py", ["src/deep/util.py", "src/main.py"]),
        ("**/util.??", ["src/deep/util.py"]),
        ("[mr]*.[pm][yd]", ["readme.md", "src/main.py"]),
        ("[!r]*.md", []),
        ("README.MD", []),
        ("*", ["readme.md", "src/deep/data.bin", "src/deep/util.py", "src/main.py", "src/\udcffodd.txt"]),
    ],
)
def test_globs(client, files, glob, expected):
    ended = client.do("search", path=".", glob=glob)
    assert paths(ended) == expected
    assert ended.ok == {"truncated": False, "skipped": 0}


def test_content_is_found_with_line_and_text(client, files):
    found = hits(client.do("search", path=".", content="hello"))
    assert found == [
        ("readme.md", 2, "hello world"),
        ("src/deep/util.py", 1, "def hello():"),
        ("src/\udcffodd.txt", 1, "caf\udce9 hello"),
    ]


def test_glob_and_content_together_and_case(client, files):
    assert paths(client.do("search", path=".", glob="*.py", content="hello")) == ["src/deep/util.py"]
    assert paths(client.do("search", path=".", glob="*.PY", content="HELLO", ignore_case=True)) == [
        "src/deep/util.py",
        "src/main.py",
    ]
    assert hits(client.do("search", path="src", content=r"^import (\w+)$")) == [("src/main.py", 1, "import os")]


def test_a_single_file_is_searched(client, files):
    assert hits(client.do("search", path="readme.md", content="o")) == [("readme.md", 2, "hello world")]
    assert paths(client.do("search", path="readme.md", glob="*.md")) == ["readme.md"]
    assert paths(client.do("search", path="readme.md", glob="*.py")) == []


def test_the_limit_is_told(client, files):
    ended = client.do("search", path=".", glob="*", limit=2)
    assert len(hits(ended)) == 2
    assert ended.ok["truncated"] is True
    assert client.do("search", path=".", glob="*.md", limit=1).ok["truncated"] is False


def test_many_matches_come_in_pieces(guest, client):
    put(guest, "many", b"".join(b"match %d %s\n" % (i, b"x" * 1000) for i in range(3000)))
    ended = client.do("search", path=".", content="match", limit=10_000)
    assert len(hits(ended)) == 3000
    assert max(len(text) for _, _, text in hits(ended)) == 500


def test_a_huge_line_takes_no_huge_memory(guest, client):
    path = put(guest, "line", b"x")
    os.truncate(path, 1)
    with open(path, "ab") as file:
        file.writelines(b"y" * (1 << 20) for _ in range(200))
        file.write(b"needle\nafter\n")
    assert hits(client.do("search", path=".", content="after")) == [("line", 2, "after")]


@pytest.mark.parametrize(("name", "pattern"), [("content", "("), ("content", "*"), ("glob", "[z-a]")])
def test_a_pattern_that_is_none_is_refused(client, name, pattern):
    error = client.do("search", path=".", **{name: pattern}).error
    assert error["code"] == "invalid_input"
    assert client.do("search", path=".").error["code"] == "invalid_input"


def test_a_catastrophic_expression_holds_up_nobody_and_dies_with_its_channel(guest, client):
    put(guest, "trap", b"a" * 60 + b"!\n")
    other = guest.connect()
    channel = other.open("search", path=".", content="(a+)+$")
    for _ in range(5):
        assert client.run("echo", "quick").stdout == b"quick\n"
    assert len(client.do("processes").ok["processes"]) == 1
    start = time.monotonic()
    other.cancel(channel)
    assert other.finish(channel).error["code"] == "cancelled"
    assert time.monotonic() - start < 10
    eventually(lambda: client.do("processes").ok["processes"] == [])


def test_a_search_that_is_killed_says_so(guest, client):
    put(guest, "trap", b"a" * 60 + b"!\n")
    channel = client.open("search", path=".", content="(a+)+$")
    other = guest.connect()
    pid = other.do("processes").ok["processes"][0]["pid"]
    assert other.do("signal", pid=pid, signal=9).ok == {}
    assert "killed" in client.finish(channel).error["message"]
