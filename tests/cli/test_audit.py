"""`audit`: what was refused, for people, for programs, and as it comes."""

from __future__ import annotations

import json
import re
import time

import pytest

from atoll import FileDenied, InvalidInput, Sandbox
from atoll.cli.audit import moment

from .conftest import stop

UGLY = "shut/a\nb\x1b[31m\x9b31m\u202e\udcff"


@pytest.fixture
def shut(kept):
    """The id of a sandbox with a directory that nobody may use."""
    sandbox = Sandbox.connect(kept)
    sandbox.run("mkdir shut && chmod 000 shut", check=True)
    return sandbox


def deny(sandbox, path):
    with pytest.raises(FileDenied):
        sandbox.files.read(path)


def test_an_audit_of_nothing_is_empty(atoll, kept):
    assert atoll("audit", kept) == (0, b"", "")
    assert json.loads(atoll("audit", kept, "--json").out) == []


def test_a_refusal_is_a_line(atoll, shut):
    deny(shut, "shut/x")
    done = atoll("audit", shut.id[:-1])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  files   read      shut/x\n", done.out.decode())
    assert (done.code, done.err) == (0, "")


def test_names_are_shown_and_not_sent(atoll, shut):
    deny(shut, UGLY)
    for words in ([], ["--json"]):
        out = atoll("audit", shut.id, *words).out
        assert out.isascii()
        assert re.search(rb"[^\n -~]", out) is None
    (denial,) = json.loads(out)
    assert denial["path"] == UGLY
    assert denial.keys() == {"time", "path", "operation", "source", "process"}


def test_a_refused_copy_is_seen(atoll, shut):
    assert atoll("cp", f"{shut.id}:shut/x", "/tmp/never").code == 125
    assert atoll("audit", shut.id).out.split()[-3:] == [b"files", b"download", b"shut/x"]


def test_only_the_latest_can_be_asked_for(atoll, shut):
    deny(shut, "shut/x")
    assert b"shut/x" in atoll("audit", shut.id, "--since", "10m").out
    assert b"shut/x" in atoll("audit", shut.id, "--since", "2001-01-01").out
    assert atoll("audit", shut.id, "--since", "2999-01-01").out == b""
    wrong = atoll("audit", shut.id, "--since", "lately")
    assert wrong.code == 125
    assert "--since is 'lately'; give a moment as" in wrong.err


def test_moments_are_dates_or_times_ago():
    assert moment("90", 1000.0) == 910.0
    assert moment("1970-01-01T00:01:00+00:00", 1000.0) == 60.0
    with pytest.raises(InvalidInput):
        moment("-5", 1000.0)


def test_one_wants_to_know_which(atoll):
    done = atoll("audit")
    assert (done.code, done.out) == (125, b"")
    assert "Say which sandbox" in done.err


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_following_tells_of_each_once(atoll, shut, words):
    deny(shut, "shut/first")
    process = atoll.start("audit", shut.id, "--follow", *words)
    lines = [process.stdout.readline()]
    deny(shut, "shut/second")
    lines.append(process.stdout.readline())
    deny(shut, "shut/third")
    lines.append(process.stdout.readline())
    assert [name in line for name, line in zip((b"first", b"second", b"third"), lines, strict=True)] == [True] * 3
    code, rest, err = stop(process)
    assert (code, rest, err) == (130, b"", "")


def test_following_ends_with_the_sandbox(atoll):
    with Sandbox.create() as sandbox:
        sandbox.run("mkdir shut && chmod 000 shut", check=True)
        deny(sandbox, "shut/x")
        process = atoll.start("audit", sandbox.id, "--follow")
        assert b"shut/x" in process.stdout.readline()
    started = time.monotonic()
    assert process.wait(30) == 0
    assert time.monotonic() - started < 20
