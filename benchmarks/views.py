"""What path permissions cost: a tree seen through a view of 50 rules, beside the same tree on the host.

The same program runs in both places and times itself. A FUSE pass-through of the tree is walked beside them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from atoll import PathRule, Sandbox

from .measure import Figure, interleaved, median, say

FILES, SIZE = 5000, 4096
SET_UP_FILES = 10_000
BIG = 500 << 20
ROUNDS = 9

# The times, in seconds, of one thing after the other; the first round fills the caches.
WORK = """
import json, os, subprocess, sys, time
what, root = sys.argv[1:3]

def walk():
    count = 0
    for place, directories, names in os.walk(root):
        for name in names:
            os.lstat(os.path.join(place, name))
            count += 1
    return count

def read():
    for place, directories, names in os.walk(root):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                file.read()

def sequential():
    with open(root + "/big", "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass

def run(*argv):
    subprocess.run(argv, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

buffer = bytearray(1 << 20)
actions = {
    "walk": walk,
    "read": read,
    "sequential": sequential,
    "git": lambda: run("git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "status", "--porcelain"),
    "grep": lambda: run("grep", "-r", "needle", "."),
}
action = actions[what]
action()
times = []
for _ in range(3):
    start = time.perf_counter()
    action()
    times.append(time.perf_counter() - start)
print(json.dumps(min(times)))
"""
INSTALL = """
import json, os, subprocess, sys, time
wheels, target = sys.argv[1:3]
start = time.perf_counter()
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile",
    "--disable-pip-version-check", "--target", target, wheels], check=True)
print(json.dumps(time.perf_counter() - start))
"""


def rules() -> list[PathRule]:
    """Fifty, of all kinds and levels; most of the tree can be read, a part be written to."""
    some = [PathRule("**", "read"), PathRule("/d1*/**", "write"), PathRule("**/.env*", "none", priority=5)]
    some += [PathRule(f"/d{number}/hidden-{number}.txt", "none", "file") for number in range(20)]
    some += [PathRule(f"/d{number}/shown-{number}", "view", "directory") for number in range(20)]
    some += [PathRule(f"*.secret{number}", "none") for number in range(7)]
    return some


def make_tree(root: str, files: int) -> None:
    for number in range(files):
        place = Path(root) / f"d{number % 50}" / f"e{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}.txt").write_bytes(os.urandom(SIZE // 2) + b"x" * (SIZE // 2))


def _host(what: str, root: str) -> float:
    done = subprocess.run([sys.executable, "-c", WORK, what, root], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)) * 1e3


def _inside(sandbox: Sandbox, what: str) -> float:
    done = sandbox.run(["python3", "-c", WORK, what, "/workspace"], check=True, timeout=300)
    return float(json.loads(done.stdout)) * 1e3


@contextlib.contextmanager
def _fuse(root: str) -> Iterator[str | None]:
    """The same tree through FUSE, with nothing remembered that a change of permissions would have to take back."""
    if shutil.which("bindfs") is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as place:
        options = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
        subprocess.run(["bindfs", "-o", options, root, place], check=True)
        try:
            yield place
        finally:
            subprocess.run(["fusermount3", "-u", place], check=False)


def _set_up(root: str) -> tuple[list[float], list[float]]:
    """Milliseconds of create over a tree whose view is new, and over one whose view is kept; less those of create."""
    cold, cached = [], []
    for number in range(5):
        own = [*rules()[:-1], PathRule(f"*.never{number}", "none")]
        cold.append(_create(root, own))
        cached += [_create(root, own) for _ in range(3)]
    plain = median([_create(root, None) for _ in range(9)])
    return [each - plain for each in cold], [each - plain for each in cached]


def _create(root: str, permissions: list[PathRule] | None) -> float:
    start = time.perf_counter()
    with Sandbox.create(source=root, permissions=permissions):
        seen = (time.perf_counter() - start) * 1e3
    time.sleep(0.05)
    return seen


def _install(sandbox: Sandbox, wheel: str) -> tuple[float, float]:
    """Seconds of installing a wheel of many files, on the host and into a view."""
    with tempfile.TemporaryDirectory() as target:
        done = subprocess.run(
            [sys.executable, "-c", INSTALL, wheel, target], capture_output=True, text=True, check=True
        )
        host = float(json.loads(done.stdout))
    inside = f"/workspace/d1/{os.path.basename(wheel)}"
    sandbox.files.upload(wheel, inside)
    done = sandbox.run(
        ["python3", "-c", INSTALL, inside, f"/workspace/d1/site-{os.urandom(4).hex()}"], check=True, timeout=300
    )
    return host * 1e3, float(json.loads(done.stdout)) * 1e3


def _wheel(directory: str) -> str:
    """A wheel of two thousand small modules."""
    import zipfile

    path = f"{directory}/many-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = []
        for number in range(2000):
            name = f"many/p{number % 40}/m{number}.py"
            archive.writestr(name, "x = 1\n" * 100)
            record.append(f"{name},,")
        archive.writestr("many-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: many\nVersion: 1.0\n")
        archive.writestr("many-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("many-1.0.dist-info/RECORD", "\n".join([*record, "many-1.0.dist-info/RECORD,,"]) + "\n")
    return path


def measure() -> list[Figure]:
    say("views: a tree of 5,000 files behind 50 rules, beside the same on the host")
    figures = []
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as other:
        make_tree(root, FILES)
        _commit(root)
        with open(f"{root}/big", "wb") as file:
            file.writelines(os.urandom(1 << 16) * 16 for _ in range(BIG >> 20))
        with Sandbox.create(source=root, permissions=rules(), resources={"memory": "2G", "disk": "4G"}) as sandbox:
            for what, words, limit in (
                ("walk", "walk + stat of 5,000 files", 2.0),
                ("read", "reading 5,000 files of 4 KB", 2.0),
                ("git", "git status", 1.5),
                ("grep", "grep -r", 1.5),
                ("sequential", "sequential read of 500 MB", 1.05),
            ):
                figures.append(_beside(sandbox, root, what, words, limit))
            pairs = [_install(sandbox, _wheel(other)) for _ in range(5)]
            host, inside = (median([pair[side] for pair in pairs]) for side in (0, 1))
            figures.append(Figure("pip install of a wheel of 2,000 files", inside, "ms", "on the host", host, 1.5))
            with _fuse(root) as place:
                if place is not None:
                    fuse = _host("walk", place)
                    walk = next(figure.seen for figure in figures if figure.what.startswith("walk"))
                    figures.append(Figure("the same walk", walk, "ms", "FUSE pass-through (bindfs)", fuse, 1 / 20))
        shutil.rmtree(other)
        os.mkdir(other)
        make_tree(other, SET_UP_FILES)
        cold, cached = _set_up(other)
    figures.append(Figure("set-up of a view, 10,000 files x 50 rules", median(cold), "ms", "", None, 300.0))
    figures.append(Figure("the same, kept from before", median(cached), "ms", "", None, 10.0))
    return figures


def _beside(sandbox: Sandbox, root: str, what: str, words: str, limit: float) -> Figure:
    host, inside = interleaved(
        ROUNDS if what != "sequential" else 5, 0.02, lambda: _host(what, root), lambda: _inside(sandbox, what)
    )
    return Figure(words, median(inside), "ms", "on the host", median(host), limit)


def _commit(root: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True, env=env)
