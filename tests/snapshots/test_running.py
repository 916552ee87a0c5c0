"""Snapshots while code runs: what works goes on and notices nothing, and what would be torn in two is refused."""

from __future__ import annotations

import re
import threading
import time

import pytest
from tests import thorough

from atoll import Busy
from atoll.client import contextqueue
from atoll.io import drive

WRITER = r"""
import os, sys, time
count = 0
while not os.path.exists("/tmp/enough"):
    count += 1
    for name in (f"work-{count % 50}", f"/tmp/file-{count % 50}"):
        with open(name, "w") as file:
            file.write(str(count))
        os.rename(name, name + ".done")
        assert open(name + ".done").read() == str(count)
    os.makedirs(f"tree/{count % 7}", exist_ok=True)
    os.chdir(f"/workspace/tree/{count % 7}"), os.chdir("/workspace")
    if count % 10 == 0:
        print(count, flush=True)
print("no error", flush=True)
"""

ROUNDS = thorough.amount(12, 5)

HOLDER = """
import sys, time
file = open(sys.argv[1], sys.argv[2])
print("open", flush=True)
time.sleep(1000)
"""

MAPPER = """
import mmap, time
with open("mapped", "w+b") as file:
    file.write(bytes(4096)), file.flush()
    memory = mmap.mmap(file.fileno(), 4096)
print("open", flush=True)
time.sleep(1000)
"""


def started(box, program, *arguments):
    """A program that has said its first word."""
    process = box.start(["python3", "-u", "-c", program, *arguments])
    assert next(iter(process)).text
    return process


def test_a_loop_that_writes_and_closes_files_goes_on(make):
    box = make()
    process = started(box, WRITER)
    taken, refused = 0, 0
    while taken < ROUNDS:
        try:
            box.snapshot(f"s{taken}")
            taken += 1
        except Busy:
            refused += 1  # just then one was open
        assert refused < 400
    box.files.write("/tmp/enough", "")
    ended = process.wait(timeout=60)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.endswith("no error\n")
    counts = []
    for number in range(ROUNDS):
        one = make(snapshot=f"s{number}")
        done = one.run("cat work-*.done", check=True).stdout
        counts.append(max(map(int, re.findall(r"\d+", done.replace("\n", " "))), default=0))
        one.destroy()
    assert counts == sorted(counts), "each has at least what the one before has"


def test_processes_go_on_in_their_directories_and_with_what_they_read(make):
    box = make()
    box.run("mkdir -p d/e && echo one > d/e/f && echo from > d/here", check=True)
    with box.session() as shell:
        shell.run("cd d/e && exec 5< f")
        box.snapshot("then")
        assert shell.run("pwd -P").stdout == "/workspace/d/e\n"
        assert shell.run("cat <&5").stdout == "one\n"
        assert shell.run("echo two > f && cat f ../here").stdout == "two\nfrom\n"
    assert make(snapshot="then").files.read("d/e/f") == "one\n"


@pytest.mark.parametrize("path", ["/workspace/held", "/tmp/held", "/home/user/held"])
def test_who_holds_a_file_open_to_write_to_is_named(make, path):
    box = make()
    holder = started(box, HOLDER, path, "w")
    with pytest.raises(Busy, match=rf"Process {holder.pid} \(python3.*\) has {path} open to write to.*force=True"):
        box.snapshot("then")
    box.files.write("a", "it still works")
    holder.kill()
    holder.wait()
    box.snapshot("then")


def test_who_only_reads_holds_nothing_up(make):
    box = make()
    box.files.write("held", "x")
    holder = started(box, HOLDER, "held", "r")
    box.snapshot("then")
    assert box.run(f"kill -0 {holder.pid}").success
    holder.kill()


def test_memory_that_is_shared_with_a_file_counts_as_open(make):
    box = make()
    started(box, MAPPER)
    with pytest.raises(Busy, match="/workspace/mapped"):
        box.snapshot("then")
    box.snapshot("then", force=True)


def test_with_force_the_holder_is_ended_and_nobody_else(make):
    box = make()
    holder = started(box, HOLDER, "held", "w")
    reader = started(box, HOLDER, "/etc/passwd", "r")
    box.snapshot("then", force=True)
    assert holder.wait(timeout=20).exit_code == 137
    assert box.run(f"kill -0 {reader.pid}").success
    reader.kill()


def test_after_a_refusal_all_is_as_it_was(make, snapshots):
    box = make()
    box.files.write("a", "1")
    box.snapshot("first")
    holder = started(box, HOLDER, "held", "w")
    for _ in range(3):
        with pytest.raises(Busy):
            box.snapshot("then")
    assert [each.name for each in snapshots.list()] == ["first"]
    box.files.write("b", "2")
    holder.kill()
    holder.wait()
    box.stop()
    box.resume()
    assert (box.files.read("a"), box.files.read("b")) == ("1", "2")
    box.rollback("first")
    assert not box.files.exists("b")


def test_the_variables_of_a_running_cell_are_told_as_lost(make):
    box = make()
    box.run_code("x = 1")
    box.checkpoint()
    box.run_code("x = 2")
    wait = "import os, time\nwhile not os.path.exists('/tmp/enough'): time.sleep(0.01)"
    ended = []
    thread = threading.Thread(target=lambda: ended.append(box.run_code(wait, timeout=30)))
    thread.start()
    try:
        made = None
        while made is None or "main" not in made.lost:
            if made is not None:
                assert thread.is_alive(), (ended, made)
            made = box.snapshot(wait=0)
    finally:
        box.files.write("/tmp/enough", "")
        thread.join()
    assert "still running" in made.lost["main"]
    assert make(snapshot=made.name).run_code("x").text == "1"


ENDLESS = """
import os, time
class Endless:
    def __reduce__(self):
        %s
hang = [Endless() for _ in range(40)]
for number in range(40):
    globals()[f"hang{number}"] = Endless()
"""


@pytest.mark.parametrize("what", ["time.sleep(1000)", "while True: pass", "os.execv('/bin/sleep', ['sleep', '1000'])"])
def test_variables_that_are_never_done_do_not_hold_up_a_snapshot(make, what):
    """Of a sandbox of 64M all variables together have some six seconds."""
    box = make(resources={"memory": "64M"})
    box.run_code("kept = 41", context="honest")
    box.run_code(ENDLESS % what, context="zealous")
    began = time.monotonic()
    made = box.snapshot(wait=0)
    assert time.monotonic() - began < 25
    assert [name for name in made.lost if name.startswith("zealous")], made.lost
    twin = make(snapshot=made.name)
    assert twin.run_code("kept + 1", context="honest").text == "42"


def test_a_cell_that_begins_meanwhile_does_not_hold_up_a_snapshot(make):
    box = make()
    box.run_code("x = 1", context="c")
    began = threading.Event()
    thread = threading.Thread(
        target=lambda: box.run_code("print(1, flush=True)\nimport time; time.sleep(30)", context="c", timeout=40,
                                    on_stdout=lambda _: began.set())
    )  # fmt: skip
    thread.start()
    assert began.wait(20)
    start = time.monotonic()
    # It is asked as if it had been seen free a moment before.
    freeze = {"do": "freeze", "file": "x", "seconds": 1.0}
    with pytest.raises(Busy):
        drive(contextqueue.ask(box._core._links, "c", freeze, timeout=2.0, wait=0.0))
    assert time.monotonic() - start < 10
    box.contexts.interrupt("c")
    thread.join()
