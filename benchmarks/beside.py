"""This atoll beside an older one, in one run: `python -m benchmarks.beside REVISION [TURNS]`.

Create, first cell, destroy, a burst and memory, measured by turns in processes of their own, each over its own source
and state directory. The table's ratios are this one's to the older one's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile

from .measure import Figure, clean_environment, median, say, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TURNS = 5
_WORK = """
import json, os, threading, time
from atoll import Sandbox
from atoll.engine import launch
from benchmarks import memory

def milliseconds(action):
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3

Sandbox.create().destroy()
time.sleep(1.0)
seen = {"create": [], "create and a cell": [], "destroy": []}
for _ in range(15):
    made = []
    seen["create"].append(milliseconds(lambda: made.append(Sandbox.create())))
    seen["create and a cell"].append(seen["create"][-1] + milliseconds(lambda: made[0].run_code("1")))
    seen["destroy"].append(milliseconds(made[0].destroy))
    time.sleep(0.15)
told = {name: sorted(values)[len(values) // 2] for name, values in seen.items()}
held = [Sandbox.create() for _ in range(10)]
time.sleep(memory.SETTLED)
told["memory (PSS) of an idle one"] = memory._average(held)
for each in held:
    each.destroy()
time.sleep(1.0)

def one():
    made = Sandbox.create()
    made.run_code("1")
    made.destroy()

threads = [threading.Thread(target=one) for _ in range(50)]
def burst():
    for each in threads:
        each.start()
    for each in threads:
        each.join()
told["50 at once, from create to destroy"] = milliseconds(burst)
launch.shut_down(os.environ["ATOLL_HOME"])
print(json.dumps(told))
"""


def _measure(source: str) -> dict[str, float]:
    home = tempfile.mkdtemp(prefix="atoll-bench-")
    environment = {**clean_environment(), "PYTHONPATH": f"{source}/src:{ROOT}", "ATOLL_HOME": home}
    try:
        done = subprocess.run([sys.executable, "-c", _WORK], env=environment, check=True, stdout=subprocess.PIPE)
        seen: dict[str, float] = json.loads(done.stdout)
        return seen
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(revision: str, turns: int) -> int:
    older = tempfile.mkdtemp(prefix="atoll-older-")
    try:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", older], input=archive.stdout, check=True)
        runs = []
        for turn in range(turns):
            say(f"turn {turn + 1} of {turns}")
            runs.append((_measure(ROOT), _measure(older)))
    finally:
        shutil.rmtree(older, ignore_errors=True)
    figures = []
    for name in runs[0][0]:
        ours, theirs = (median([run[side][name] for run in runs]) for side in (0, 1))
        figures.append(Figure(name, ours, "MB" if "memory" in name else "ms", revision, theirs, None))
    sys.stdout.write(table(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else TURNS))
