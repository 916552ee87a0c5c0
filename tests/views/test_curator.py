"""Views that are kept ready: they are what would be made anew, and those who keep them leave nothing behind."""

import json
import os
import shutil
import signal
import struct
import time
import traceback

import pytest
from tests.views import trees
from tests.views.worlds import USER, _map

from atoll.engine import kernel, launch, messages
from atoll.engine.layout import VIEWS, Layout
from atoll.engine.settings import Settings
from atoll.engine.views import curator, sentry
from atoll.types import PathRule

RULES = (PathRule("**", "read"), PathRule("*.key", "none"))
FILES = {"a/file": "file", "a/b/deep": "deep", "a/secret.key": "SECRET", "top": "top"}
PATIENCE = 20.0


@pytest.fixture
def settings(place, monkeypatch):
    # Small trees are quick to test with, and no less true.
    monkeypatch.setattr(curator, "_WORTH_KEEPING", 0.0)
    made = make_settings(f"{place}/state")
    yield made
    launch.shut_down(made.layout.home)


def make_settings(home, recipe="A"):
    layout = Layout(home)
    layout.make()
    return Settings(layout=layout, rootless=recipe != "A", hierarchy=None, landlock=0, filter_code=b"", template="",
                    python="", python_path=(), resolver="", has_loop=False, recipe=recipe)  # fmt: skip


@pytest.fixture
def source(place):
    return trees.grow(f"{place}/source", FILES)


def obtain(settings, source, rules=RULES, ignore=()):
    """The paths of a view."""
    view = curator.obtain(settings, source, rules, ignore)
    try:
        return paths_of(view)
    finally:
        view.close()


def paths_of(view):
    """Looked at by a child: among other mounts goes only who has no threads, and a test runner may have some."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            root = os.open("rest", os.O_RDONLY, dir_fd=view.clone())
            found = []
            for directory, names, others, _ in os.fwalk(".", dir_fd=root):
                found += [os.path.normpath(f"{directory}/{name}") for name in [*names, *others]]
            os.write(writer, json.dumps(found).encode())
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            raise
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return set(json.loads(data))


def curators(settings):
    """The pids of those who answer."""
    found = []
    for name in os.listdir(settings.layout.run):
        if name.startswith(VIEWS):
            try:
                with messages.connect(f"{settings.layout.run}/{name}") as sock:
                    found.append(struct.unpack("iII", sock.getsockopt(1, 17, 12))[0])
            except OSError:
                continue
    return found


def eventually(check):
    until = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < until
        time.sleep(0.01)


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except FileNotFoundError:
        return True


SEEN = {"a", "a/file", "a/b", "a/b/deep", "top"}


@pytest.fixture
def walks(monkeypatch):
    """How often a tree was looked at."""
    found = []
    real = curator.compile_tree
    monkeypatch.setattr(curator, "compile_tree", lambda *args, **kwargs: found.append(1) or real(*args, **kwargs))
    return found


def test_a_view_is_made_once_as_long_as_nothing_changes(settings, source, walks):
    assert [obtain(settings, source) for _ in range(5)] == [SEEN] * 5
    assert len(walks) == 1
    assert len(curators(settings)) == 1


def touch(path):
    os.utime(path)


def rewrite(path):
    with open(path, "w", encoding="ascii") as file:
        file.write("rewritten and longer")


CHANGES = {
    "a new file": (lambda root: trees.grow(root, {"a/b/new": "new"}), {"a/b/new"}, set()),
    "a new directory": (lambda root: trees.grow(root, {"new/file": "x"}), {"new", "new/file"}, set()),
    "a file that goes": (lambda root: os.unlink(f"{root}/a/b/deep"), set(), {"a/b/deep"}),
    "a directory that goes": (lambda root: shutil.rmtree(f"{root}/a/b"), set(), {"a/b", "a/b/deep"}),
    "a renamed file": (lambda root: os.rename(f"{root}/top", f"{root}/other"), {"other"}, {"top"}),
    "a renamed directory": (lambda root: os.rename(f"{root}/a/b", f"{root}/b"), {"b", "b/deep"}, {"a/b", "a/b/deep"}),
    "a hidden file that gets another name": (
        lambda root: os.rename(f"{root}/a/secret.key", f"{root}/a/open"),
        {"a/open"},
        set(),
    ),
    "other content": (lambda root: rewrite(f"{root}/top"), set(), set()),
    "another time": (lambda root: touch(f"{root}/a/b/deep"), set(), set()),
    "another mode": (lambda root: os.chmod(f"{root}/a/file", 0o600), set(), set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_at_once(settings, source, walks, change):
    act, more, less = CHANGES[change]
    assert obtain(settings, source) == SEEN
    act(source)
    assert obtain(settings, source) == (SEEN | more) - less
    assert len(walks) >= 2
    seen = len(walks)
    assert obtain(settings, source) == (SEEN | more) - less
    assert len(walks) == seen, "and it is kept again"


def test_no_change_is_ever_missed(settings, source):
    for number in range(60):
        trees.grow(source, {f"a/file{number}": "x"})
        assert f"a/file{number}" in obtain(settings, source)


def test_reading_is_no_change(settings, source, walks):
    obtain(settings, source)
    for directory, _, names in os.walk(source):
        for name in names:
            with open(f"{directory}/{name}", "rb") as file:
                file.read()
    obtain(settings, source)
    assert len(walks) == 1


def test_what_goes_on_in_hidden_directories_is_no_change(settings, source, walks):
    trees.grow(source, {".git/index": "x"})
    rules = (PathRule("**", "read"), PathRule(".git", "none", priority=1))
    before = obtain(settings, source, rules)
    assert ".git" not in before
    rewrite(f"{source}/.git/index.lock")
    os.rename(f"{source}/.git/index.lock", f"{source}/.git/index")
    assert obtain(settings, source, rules) == before
    assert len(walks) == 1


def test_other_rules_ignores_and_sources_are_other_views(settings, source, place):
    assert obtain(settings, source) == SEEN
    assert obtain(settings, source, (PathRule("top", "read"),)) == {"top"}
    assert obtain(settings, source, RULES, ("b/",)) == SEEN - {"a/b", "a/b/deep"}
    other = trees.grow(f"{place}/other", {"x": "x"})
    assert obtain(settings, other) == {"x"}
    assert len(curators(settings)) == 4


def test_another_directory_of_the_same_name_is_another_source(settings, source):
    assert obtain(settings, source) == SEEN
    os.rename(source, f"{source}-old")
    trees.grow(source, {"fresh": "x"})
    assert obtain(settings, source) == {"fresh"}


def test_a_view_that_is_made_quickly_is_not_kept(settings, source, monkeypatch):
    monkeypatch.setattr(curator, "_WORTH_KEEPING", 60.0)
    assert obtain(settings, source) == SEEN
    assert curators(settings) == []


@pytest.mark.parametrize(("name", "value"), [("_LOCAL", frozenset()), ("MOST_DIRECTORIES", 1)])
def test_what_cannot_be_watched_is_not_kept(settings, source, monkeypatch, name, value):
    monkeypatch.setattr(sentry, name, value)
    assert obtain(settings, source) == SEEN
    assert curators(settings) == []


def test_there_are_never_too_many(settings, source, monkeypatch):
    monkeypatch.setattr(curator, "_MOST", 2)
    for number in range(4):
        obtain(settings, source, (PathRule(f"file{number}", "read"),))
    assert len(curators(settings)) == 2


def test_the_dead_take_no_room(settings, source, monkeypatch):
    monkeypatch.setattr(curator, "_MOST", 1)
    obtain(settings, source)
    (pid,) = curators(settings)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone(pid))
    obtain(settings, source, (PathRule("top", "read"),))
    assert len(curators(settings)) == 1
    assert len(os.listdir(settings.layout.run)) == 1


def test_one_that_nobody_asks_ends(settings, source, monkeypatch):
    monkeypatch.setattr(curator, "_IDLE", 0.05)
    obtain(settings, source)
    eventually(lambda: not os.listdir(settings.layout.run))


def test_one_that_is_killed_is_replaced(settings, source, walks):
    obtain(settings, source)
    (pid,) = curators(settings)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone(pid))
    assert obtain(settings, source) == SEEN
    assert len(walks) == 2
    (new,) = curators(settings)
    assert new != pid
    assert obtain(settings, source) == SEEN
    assert len(walks) == 2


def test_one_that_hangs_keeps_nobody(settings, source, monkeypatch):
    monkeypatch.setattr(curator, "_PATIENCE", 0.1)
    obtain(settings, source)
    (pid,) = curators(settings)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert obtain(settings, source) == SEEN
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end", ["shut_down", "unlink", "remove", "source"])
def test_it_ends_with_what_it_serves(settings, source, end):
    obtain(settings, source)
    (pid,) = curators(settings)
    run = settings.layout.run
    if end == "shut_down":
        launch.shut_down(settings.layout.home)
    elif end == "unlink":
        for name in os.listdir(run):
            os.unlink(f"{run}/{name}")
    elif end == "remove":
        shutil.rmtree(settings.layout.home)
    else:
        shutil.rmtree(source)
    eventually(lambda: gone(pid))
    if end != "remove":
        eventually(lambda: not os.listdir(run))


def test_it_holds_no_file_of_the_host_and_no_child(settings, source):
    obtain(settings, source)
    (pid,) = curators(settings)
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
        (mount,) = file.read().splitlines()
    assert " tmpfs " in mount
    assert set(os.listdir(f"/proc/{pid}/root/rest")) == {"a", "top"}
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        assert not target.startswith(source)
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        assert int(file.read().rpartition(")")[2].split()[1]) != os.getpid()


def test_nobody_else_is_given_a_view(settings, source, monkeypatch):
    # Even if the directory and the socket were open to all.
    real = os.chmod
    for path in (settings.layout.home, settings.layout.top, settings.layout.run):
        real(path, 0o755)
    monkeypatch.setattr(os, "chmod", lambda path, mode: real(path, 0o666 if "/.view-" in path else mode))
    obtain(settings, source)
    (name,) = os.listdir(settings.layout.run)
    address = f"{settings.layout.run}/{name}"
    assert as_user(lambda: ask(address), 0) == "view"
    assert as_user(lambda: ask(address), USER) == "nothing"
    assert as_user(lambda: ask(address), 0) == "view", "and it lives on"


def ask(address):
    with messages.connect(address) as sock:
        try:
            messages.send(sock, {"want": "view"})
            answer, _ = messages.receive(sock)
        except (messages.Ended, OSError):
            return "nothing"
        return next(iter(answer))


def as_user(act, uid):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if uid:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            os.write(writer, act().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def test_an_ordinary_user_has_curators_too(place, source, monkeypatch):
    monkeypatch.setattr(curator, "_WORTH_KEEPING", 0.0)
    home = f"{place}/user"
    os.mkdir(home, 0o700)
    os.chown(home, USER, USER)

    def story():
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _map(0, USER)
        settings = make_settings(f"{home}/state", "B")
        first = obtain(settings, source)
        there = len(curators(settings))
        monkeypatch.setattr(curator, "compile_tree", None)
        second = obtain(settings, source)
        for name in os.listdir(settings.layout.run):
            launch._shut_down(f"{settings.layout.run}/{name}")
        return f"{first == second == SEEN} {there} {os.listdir(settings.layout.run)}"

    assert as_user(story, USER) == "True 1 []"


def test_a_mask_of_another_namespace_is_not_asked_for(place, source, monkeypatch):
    monkeypatch.setattr(curator, "_WORTH_KEEPING", 0.0)
    home = f"{place}/user"
    os.mkdir(home, 0o700)
    os.chown(home, USER, USER)

    def story():
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _map(0, USER)
        settings = make_settings(f"{home}/state", "B")
        obtain(settings, source)
        return " ".join(sorted(os.listdir(settings.layout.run)))

    one, two = as_user(story, USER), as_user(story, USER)
    assert len(one.split()) == 1
    assert len(two.split()) == 2
    shutil.rmtree(home)


def test_many_who_ask_at_once_all_get_a_view(settings, source):
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if all(obtain(settings, source) == SEEN for _ in range(3)) else 2
            finally:
                os._exit(code)
        children.append(pid)
    assert {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children} == {0}
    assert len(curators(settings)) == 1
