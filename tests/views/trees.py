"""Source trees for tests, and what can be told of a tree to see whether it has changed."""

from __future__ import annotations

import hashlib
import os
import stat

from tests.views.worlds import USER


def grow(root, files, *, owner=USER):
    """Make files from a mapping of paths to contents; a path that ends in a slash is a directory."""
    os.makedirs(root, exist_ok=True)
    for path, content in files.items():
        full = os.path.join(os.fsencode(root), os.fsencode(path))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if isinstance(content, tuple):
            os.symlink(content[0], full)
        elif not full.endswith(b"/"):
            with open(full, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
            os.chmod(full, 0o644)
    for directory, names, others in os.walk(os.fsencode(root)):
        for name in [*names, *others]:
            os.chown(os.path.join(directory, name), owner, owner, follow_symlinks=False)
    os.chown(root, owner, owner)
    return str(root)


def told(root):
    """All that a tree is, path by path: whatever changes in it, this changes."""
    found = {}
    for directory, names, others in os.walk(os.fsencode(root)):
        for name in [*names, *others, b"."]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content = b""
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).digest()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            attributes = tuple((each, os.getxattr(path, each, follow_symlinks=False))
                               for each in os.listxattr(path, follow_symlinks=False))  # fmt: skip
            found[path] = (status.st_mode, status.st_uid, status.st_gid, status.st_size, status.st_mtime_ns,
                           status.st_ino, status.st_rdev, content, attributes)  # fmt: skip
    return found
