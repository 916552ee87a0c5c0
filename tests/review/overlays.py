"""Real overlay mounts that are attached nowhere, as root and for an ordinary user, and trees to put below them."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile

from atoll.engine import kernel
from atoll.review import Stage, record_base
from atoll.types import Permissions

# Where a thousand fsyncs cost nothing.
IN_MEMORY = "/dev/shm"

NEW_USER, NEW_MOUNTS = 0x10000000, 0x20000


class Overlay:
    """A source, a stack of upper layers over it, and the merged tree, by descriptor and by path."""

    def __init__(self, permissions=None, ignore=(), options=(), where="/tmp"):
        self.home = tempfile.mkdtemp(prefix="rv-", dir=where)
        self.source = os.path.join(self.home, "source")
        self.state = os.path.join(self.home, "state")
        self.outside = os.path.join(self.home, "outside")
        self.base = os.path.join(self.home, "base")
        for path in (self.source, self.state, self.outside):
            os.mkdir(path)
        self._options = dict(options)
        self._mounts = []
        self.uppers = []
        self.permissions = Permissions(tuple(permissions)) if permissions is not None else None
        self.ignore = tuple(ignore)
        self.started = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        for fd in (*self._mounts, *self.uppers):
            os.close(fd)
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-R", "u+rwX", self.home], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.home)

    def start(self, record=True):
        """Mount a fresh layer over the source and write down what the source is."""
        self.restack()
        if record:
            record_base(self.source, self.base, None, None)
        return self

    def restack(self):
        """One more layer, as after a snapshot."""
        number = len(self.uppers)
        upper, scratch = f"{self.home}/upper{number}", f"{self.home}/scratch{number}"
        os.mkdir(upper)
        os.mkdir(scratch)
        self.uppers.append(os.open(upper, os.O_RDONLY | os.O_DIRECTORY))
        self._mount(number)

    def _mount(self, number):
        upper, scratch = f"{self.home}/upper{number}", f"{self.home}/scratch{number}"
        lowers = [f"{self.home}/upper{index}" for index in reversed(range(number))]
        options = {"lowerdir": ":".join([*lowers, self.source]), "upperdir": upper, "workdir": scratch}
        self._mounts.append(mount(options | self._options))

    def remount(self):
        """The same layers, with nothing remembered of what they were."""
        number = len(self.uppers) - 1
        os.close(self._mounts.pop())
        self._mount(number)

    @property
    def merged(self):
        """The path of the merged tree in this process."""
        return f"/proc/self/fd/{self._mounts[-1]}"

    @property
    def stage(self):
        return Stage(
            self._mounts[-1], tuple(reversed(self.uppers)), self.source, self.permissions, self.ignore, self.base,
            self.state, self.started,
        )  # fmt: skip

    def in_source(self, path, content=None):
        return place(self.source, path, content)

    def in_merged(self, path, content=None):
        return place(self.merged, path, content)

    def shell(self, command):
        """Run a command in the merged tree."""
        # A place that is mounted nowhere has no path, of which the shell complains.
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=self.merged,
            pass_fds=self._mounts[-1:],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def place(root, path, content):
    """The full path; with content, the file is made, and what is above it."""
    full = os.path.join(root, path)
    if content is not None:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    return full


def read(path):
    with open(path, "rb") as file:
        return file.read()


def mount(options):
    """A detached overlay mount."""
    if os.geteuid() == 0:
        return kernel.new_mount("overlay", 0, {"redirect_dir": "on", **options})
    return _from_namespace({"userxattr": None, **options})


def _from_namespace(options):
    """As an ordinary user: a child in a user namespace of its own mounts, and sends us the descriptor."""
    ours, theirs = socket.socketpair()
    uid, gid = os.geteuid(), os.getegid()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.unshare(NEW_USER | NEW_MOUNTS)
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
            fd = kernel.new_mount("overlay", 0, options)
            socket.send_fds(theirs, [b"x"], [fd])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(pid, 0)
    return fds[0]


def snapshot(root):
    """Everything below a directory: type, permission bits and content of each path, but not the times."""
    found = {}
    for above, directories, files in os.walk(os.fsencode(root)):
        for name in (*directories, *files):
            path = os.path.join(above, name)
            found[os.path.relpath(path, os.fsencode(root))] = describe(path)
    return found


def describe(path):
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "symlink", os.readlink(path)
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            return "file", stat.S_IMODE(mode), hashlib.sha256(file.read()).hexdigest()
    return stat.S_IFMT(mode), stat.S_IMODE(mode)
