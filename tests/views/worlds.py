"""Views for tests: a holder process mounts one in namespaces of its own, and attempts run in it as its sandbox would.

An attempt is a function of a test module. It runs in a process of its own, with the view's root as working
directory, as the sandbox's user without capabilities, or as root of a user namespace in which only that user exists.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import pickle
import shutil
import signal
import socket
import traceback

from atoll.engine import kernel, views
from atoll.engine.settings import FIRST_UID
from atoll.engine.views import farm, hosts
from atoll.policy.rules import Matcher

SANDBOX, OTHER = FIRST_UID + 77, FIRST_UID - 1
USER, SUBORDINATE = 61234, 1_700_000_000
# "A-old" is A as on Linux 6.5, "B-links" is B before Linux 6.16.
RECIPES = ("A", "B", "B-links", "C", "D")
OLD = ("A-old",)
MOUNTED = ("A", "B", "B-links", "C")


# An attempt may not be able to load them from the library any more.
for name in ("latin-1", "ascii"):
    codecs.lookup(name)


class Failed(Exception):
    """What went wrong in the holder, with its traceback."""


class World:
    """A view of `source` by `rules`. The state of the sandbox is in `top`, which is the test's to remove."""

    def __init__(self, recipe, source, rules, top, *, ignores=None, lowers=(), covers=0, uid=SANDBOX, through=None):
        """`covers` is how many of the lower layers, the oldest, the rules judge; a view is passed through `through`."""
        self.recipe = recipe
        self.source = str(source)
        self.rules = rules
        self.top = str(top)
        self.ignores = ignores
        self.lowers = list(lowers)
        self.covers = covers
        self.uid = uid
        self.through = through
        self.rootless = recipe[0] in "BC"
        self.target = f"{self.top}/view"
        self.upper = f"{self.top}/upper"
        for name in ("view", "upper", "work", "farm", "merged"):
            os.makedirs(f"{self.top}/{name}", exist_ok=True)
            if self.rootless:
                os.chown(f"{self.top}/{name}", USER, USER)

    def __enter__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        self._holder = os.fork()
        if self._holder == 0:
            self._socket.close()
            _end_with(self._hold, theirs)
        theirs.close()
        if self.recipe == "C":
            self._hear()
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{self._holder}/{name}", "w", encoding="ascii") as file:
                    file.write(f"0 {USER} 1\n1 {SUBORDINATE} 10\n")
            self._socket.send(b"mapped")
        try:
            self.facts = self._hear()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self._socket.close()
        os.waitpid(self._holder, 0)

    def run(self, attempt, *arguments, as_root=False):
        """What an attempt gives, or OSError with its errno."""
        self._socket.send(pickle.dumps((attempt, arguments, as_root)))
        return self._hear()

    def fails(self, attempt, *arguments, as_root=False):
        """The name of the errno with which an attempt fails, or None."""
        try:
            self.run(attempt, *arguments, as_root=as_root)
        except OSError as error:
            return errno.errorcode[error.errno]
        return None

    def _hear(self):
        data = self._socket.recv(1 << 22)
        if not data:
            raise Failed("the holder died")
        kind, value = pickle.loads(data)
        if kind == "failed":
            raise Failed(value)
        if kind == "errno":
            raise OSError(value, os.strerror(value))
        return value

    def _hold(self, channel):
        if self.rootless:
            self._leave_root(channel)
        else:
            kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        channel.send(pickle.dumps(("value", self._build())))
        while data := channel.recv(1 << 20):
            attempt, arguments, as_root = pickle.loads(data)
            pid = os.fork()
            if pid == 0:
                _end_with(self._attempt, channel, attempt, arguments, as_root)
            os.waitpid(pid, 0)

    def _leave_root(self, channel):
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        if self.recipe == "C":
            channel.send(pickle.dumps(("value", None)))
            channel.recv(100)
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            return
        _map(0, USER)

    def _build(self):
        matcher = Matcher(self.rules)
        lowers = self.lowers
        if self.recipe == "D":
            tree = views.compile_tree(self.source, matcher, self.ignores)
            farm.plant(tree, self.source, self.target, farm.Users(self.uid, OTHER))
            return {}
        if self.recipe == "B-links":
            hosts._known[True] = False
        if self.recipe == "A-old":
            _be_old()
        made = views.prepare(
            self._judge(matcher), recipe=self.recipe[0], covers=self.covers, source=self.source,
            place=f"{self.top}/farm",
        )  # fmt: skip
        if self.through is not None:
            made = self.through(made)
        views.mount(
            made, source=self.source, lowers=lowers, upper=self.upper, work=f"{self.top}/work", target=self.target,
            uid=None if self.rootless else self.uid,
        )  # fmt: skip
        return {"parts": made.parts, "unenforced": made.unenforced, "writable": made.writable, "zones": len(made.zones)}

    def _judge(self, matcher):
        if not self.covers:
            return views.compile_tree(self.source, matcher, self.ignores)
        merged = f"{self.top}/merged"
        views.merge(
            source=self.source, lowers=self.lowers[-self.covers :], target=merged, rootless=self.rootless,
            uid=None if self.rootless else self.uid,
        )  # fmt: skip
        tree = views.compile_tree(merged, matcher, self.ignores)
        kernel.umount(merged)
        return tree

    def _attempt(self, channel, attempt, arguments, as_root):
        os.chdir(self.target)
        if not self.rootless:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        inside = 0 if as_root else 1000
        _map(inside, 0 if self.rootless else self.uid)
        os.chdir(self.target)
        if not as_root:
            kernel.drop_capabilities()
        channel.send(pickle.dumps(("value", attempt(*arguments))))


def _be_old():
    """As a kernel that copies no detached mount, and takes no content layers without metacopy."""
    mount = kernel.mount

    def old_mount(source, target, kind, flags=0, data=None):
        if kind == "overlay" and "::" in data and "metacopy=off" in data:
            raise OSError(errno.EINVAL, "old")
        mount(source, target, kind, flags, data)

    def old_clone(*_):
        raise OSError(errno.EINVAL, "old")

    kernel.mount = old_mount
    kernel.open_tree_at = old_clone


def _map(inside, outside):
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside} 1"),
        ("gid_map", f"{inside} {outside} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _end_with(work, channel, *arguments):
    """Run this in a child, which tells what went wrong and is never heard of again."""
    try:
        work(channel, *arguments)
    except OSError as error:
        if error.errno:
            # The place of an unexpected one is worth knowing, too.
            told = ("errno", error.errno) if arguments else ("failed", traceback.format_exc())
            channel.send(pickle.dumps(told))
        else:
            channel.send(pickle.dumps(("failed", traceback.format_exc())))
    except BaseException:  # noqa: BLE001
        with contextlib.suppress(OSError):
            channel.send(pickle.dumps(("failed", traceback.format_exc())))
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def fresh(directory):
    """An empty directory that other users may pass."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    os.chmod(directory, 0o755)
    return str(directory)
