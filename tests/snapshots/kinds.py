"""Files of every kind, made in a sandbox, changed once, and told of so that two tellings can be compared."""

from __future__ import annotations

MAKE = r"""
import os, socket
os.makedirs("d/deep/er"), os.mkdir("empty"), os.mkdir("shared")
open("a", "w").write("one\n"), open("d/f", "w").write("x"), open("d/deep/er/g", "w").write("deep")
os.symlink("a", "link"), os.symlink("/nowhere", "dangling"), os.link("a", "hard"), os.mkfifo("fifo", 0o640)
open(b"bad\xffname", "w").write("not UTF-8"), open("new\nline", "w").write("two lines"), open("tab\tand space", "w")
open(".wh.a", "w").write("no whiteout"), open(".wh..wh..opq", "w").write("nothing opaque")
open("n" * 255, "w").write("long"), open("d/" + "ä" * 100, "w").write("umlauts")
socket.socket(socket.AF_UNIX).bind("socket")
with open("holes", "wb") as file:
    file.truncate(300 << 20), file.seek(100 << 20), file.write(b"in the middle"), file.seek(0, 2), file.write(b"end")
open("zeros", "wb").write(bytes(10_000)), open("big", "wb").write(os.urandom(3_000_000)), open("nothing", "wb")
os.setxattr("a", "user.note", b"a=b\0c"), os.setxattr("d", "user.odd=name%", b"1")
os.chmod("shared", 0o1777), os.chmod("d/f", 0o755), os.chmod("d/deep", 0o500), os.chmod("zeros", 0o000)
open("old", "w"), os.utime("old", ns=(-1_500_000_000, -1_500_000_000))
open("/tmp/t", "w").write("t"), open(os.path.expanduser("~/h"), "w").write("h")
"""

CHANGE = r"""
import os, shutil
open("a", "w").write("two\n"), os.remove("d/f"), shutil.rmtree("empty"), os.mkdir("empty"), open("empty/n", "w")
os.rename("link", "link2"), os.mkdir("new"), open("new/q", "w").write("q"), os.remove("old")
os.chmod("d/deep", 0o755), os.remove("fifo"), os.mkdir("fifo"), os.remove("hard"), open("big", "ab").write(b"+")
os.remove("/tmp/t"), open("/tmp/u", "w").write("u")
"""

TELL = r"""
import hashlib, os, stat, sys
for top in (b"/workspace", b"/tmp"):
    for base, directories, files in os.walk(top):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(base, name)
            found = os.lstat(path)
            kind = stat.S_IFMT(found.st_mode)
            told = [path, oct(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns]
            if kind == stat.S_IFLNK:
                told.append(os.readlink(path))
            if kind == stat.S_IFREG:
                told += [found.st_size, found.st_nlink]
                if found.st_mode & 0o400:
                    with open(path, "rb") as file:
                        told.append(hashlib.file_digest(file, "sha256").hexdigest())
            if kind in (stat.S_IFREG, stat.S_IFDIR) and found.st_mode & 0o400:
                told.append([(key, os.getxattr(path, key)) for key in sorted(os.listxattr(path))])
            print(told)
"""


def make(sandbox):
    sandbox.run(["python3", "-c", MAKE], check=True)


def change(sandbox):
    sandbox.run(["python3", "-c", CHANGE], check=True)


def tell(sandbox):
    """Every path of the workspace and of /tmp with all that can be seen of it, a line each."""
    return sandbox.run(["python3", "-c", TELL], check=True).stdout.splitlines()
