"""What is on the disk, seen without atoll's own eyes."""

from __future__ import annotations

import os
import stat


def tree_of(root, *, times=True):
    """Every path below a directory with all that should come through; directories' times are only looked at once."""
    found = {}
    for directory, names, files in os.walk(os.fsencode(root)):
        for name in names + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content = None
            if stat.S_ISLNK(kind):
                content = os.readlink(path)
            elif stat.S_ISREG(kind):
                with open(path, "rb") as file:
                    content = file.read()
            mode = None if stat.S_ISLNK(kind) else stat.S_IMODE(status.st_mode)
            time = status.st_mtime_ns if times and not stat.S_ISDIR(kind) else None
            found[os.path.relpath(path, os.fsencode(root))] = (kind, mode, time, content)
    return found


def current(shelf, name):
    """The path of the current version's tree."""
    use = shelf.use(name)
    os.close(use.descriptor)
    return use.tree


def blobs(home):
    """The paths of all stored files, finished or not."""
    return [
        os.path.join(directory, name)
        for directory, _, names in os.walk(os.path.join(home, "codebases", "blobs"))
        for name in names
    ]


def versions(home, id):
    return sorted(int(name) for name in os.listdir(os.path.join(home, "codebases", id, "versions")))


def check_store(home):
    """What must be so whatever was killed: nothing half is left, and nothing that nobody uses."""
    store = os.path.join(home, "codebases")
    drafts = os.path.join(store, "drafts")
    assert not os.path.exists(drafts) or os.listdir(drafts) == []
    records = [os.path.join(store, name) for name in os.listdir(store) if name.startswith("cb-")]
    assert [name for path in records for name in os.listdir(path) if name.startswith(".")] == []
    assert [path for path in blobs(home) if os.stat(path).st_nlink < 2] == []
