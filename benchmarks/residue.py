"""Thousands of sandboxes come and go: what is left is counted by another process, before and after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from atoll import Sandbox
from atoll.home import state_dir

from .measure import Figure, say

CYCLES = 5000
_SETTLE = 30.0
_COUNT = """
import glob, json, os, sys
home = sys.argv[1]
def lines(path):
    return sum(1 for _ in open(path))
zombies = 0
for stat in glob.glob("/proc/[0-9]*/stat"):
    try:
        zombies += open(stat).read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        pass
print(json.dumps({
    "processes": len(glob.glob("/proc/[0-9]*")),
    "zombies": zombies,
    "mounts": lines("/proc/self/mountinfo"),
    "cgroups": sum(len(d) for top in glob.glob("/sys/fs/cgroup/**/atoll", recursive=True) for _, d, _ in os.walk(top)),
    "files": sum(len(d) + len(f) for _, d, f in os.walk(home + "/jail")),
    "loops": len(glob.glob("/sys/block/loop*/loop")),
}))
"""


def _count() -> dict[str, int]:
    done = subprocess.run([sys.executable, "-c", _COUNT, state_dir()], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def _zygote() -> int:
    with Sandbox.create() as sandbox:
        from .memory import _keeper

        return int(Path(f"/proc/{_keeper(sandbox)}/stat").read_text().rpartition(")")[2].split()[1])


def measure(cycles: int = CYCLES) -> list[Figure]:
    say(f"residue: {cycles} cycles")
    zygote = _zygote()
    for _ in range(50):
        Sandbox.create().destroy()
    time.sleep(2)
    before, descriptors = _count(), len(os.listdir("/proc/self/fd"))
    ours, theirs = _resident(os.getpid()), _resident(zygote)
    for number in range(cycles):
        sandbox = Sandbox.create()
        if number % 10 == 0:
            sandbox.run("echo x > file")
        sandbox.destroy()
        if number % 500 == 499:
            say(f"  {number + 1} cycles")
    deadline = time.monotonic() + _SETTLE
    while (after := _count()) != before and time.monotonic() < deadline:
        time.sleep(0.5)
    left = sum(max(0, after[name] - before[name]) for name in before) + len(os.listdir("/proc/self/fd")) - descriptors
    if left:
        say(f"  before {before}, after {after}")
    return [
        Figure(f"left after {cycles} cycles", float(left), "things", "", None, 0.0),
        Figure("growth of the client", float(_resident(os.getpid()) - ours), "KiB", "", None, 1024.0),
        Figure("growth of the zygote", float(_resident(zygote) - theirs), "KiB", "", None, 1024.0),
    ]
