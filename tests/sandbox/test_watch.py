from __future__ import annotations

import threading

import pytest

from atoll import FileMissing
from atoll.errors import TimedOut


@pytest.fixture
def files(sandbox):
    sandbox.run("rm -rf -- *")
    return sandbox.files


def next_about(watch, name):
    """The next event for a path that ends so."""
    while True:
        event = watch.read(20)
        assert event is not None
        if event.path.endswith(name):
            return event


def test_every_change_after_it_was_got_is_seen(files):
    with files.watch() as watch:
        files.write("new", "x")
        assert next_about(watch, "/new").type in ("created", "moved")
        files.remove("new")
        while (event := next_about(watch, "/new")).type != "removed":
            pass
        assert event.path == "/workspace/new"


def test_it_sees_below_unless_told_not_to(files, sandbox):
    files.mkdir("a/b")
    with files.watch(recursive=True) as deep, files.watch(recursive=False) as flat:
        sandbox.run("echo x > a/b/deep; echo x > shallow")
        assert next_about(deep, "/deep").path == "/workspace/a/b/deep"
        assert next_about(flat, "/shallow").path == "/workspace/shallow"


def test_reading_is_bounded_by_its_timeout_and_can_go_on(files):
    with files.watch() as watch:
        with pytest.raises(TimedOut):
            watch.read(0.05)
        files.mkdir("later")
        assert next_about(watch, "/later").type == "created"


def test_closing_ends_the_iteration_also_from_another_thread(files):
    watch = files.watch()
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(watch))
    reader.start()
    watch.close()
    reader.join(30)
    assert not reader.is_alive()
    assert seen == []
    assert watch.read() is None


def test_watching_what_is_not_there_is_an_error(files):
    with pytest.raises(FileMissing):
        files.watch("missing")
