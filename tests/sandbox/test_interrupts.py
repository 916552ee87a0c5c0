"""Ctrl-C, the end of the interpreter, and fork: each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest


def start(program):
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(program):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_ctrl_c_kills_what_runs_and_reaches_the_caller(sandbox, eventually):
    program = f"""
from atoll import Sandbox
sandbox = Sandbox.connect({sandbox.id!r})
try:
    sandbox.run("touch here; sleep 1030.5 & sleep 1030.5", timeout=None)
except KeyboardInterrupt:
    print("interrupted", sandbox.run("echo alive").stdout.strip())
"""
    caller = start(program)
    eventually(lambda: sandbox.files.exists("here"))
    caller.send_signal(signal.SIGINT)
    out, err = caller.communicate(timeout=60)
    assert (out, err) == ("interrupted alive\n", "")
    eventually(lambda: not any("1030.5" in process.command for process in sandbox.processes()))


def test_ctrl_c_in_run_many_ends_every_sandbox(tmp_path, eventually):
    program = f"""
from atoll import Sandbox, run_many
try:
    run_many(["touch {tmp_path}/$$; sleep 1031.5"] * 4, "fake", max_workers=3, timeout=None, labels={{"kind": "many"}})
except KeyboardInterrupt:
    print("interrupted", Sandbox.list({{"kind": "many"}}))
"""
    caller = start(program)
    eventually(lambda: len(os.listdir(tmp_path)) == 3)
    caller.send_signal(signal.SIGINT)
    out, err = caller.communicate(timeout=60)
    assert (out, err) == ("interrupted []\n", "")


def test_ctrl_c_in_the_asynchronous_form_kills_what_runs(sandbox, eventually):
    program = f"""
import anyio
from atoll import AsyncSandbox
async def main():
    sandbox = await AsyncSandbox.connect({sandbox.id!r})
    await sandbox.run("touch there; sleep 1032.5", timeout=None)
try:
    anyio.run(main)
except KeyboardInterrupt:
    print("interrupted")
"""
    caller = start(program)
    eventually(lambda: sandbox.files.exists("there"))
    caller.send_signal(signal.SIGINT)
    out, _ = caller.communicate(timeout=60)
    assert out == "interrupted\n"
    eventually(lambda: not any("1032.5" in process.command for process in sandbox.processes()))


@pytest.mark.parametrize(
    "left_open",
    [
        "sandbox.run('true')",
        "output = sandbox.stream('echo x; sleep 1033.5'); next(output)",
        "process = sandbox.start('sleep 1034.5')",
        "watch = sandbox.files.watch()",
        "import threading; threading.Thread(target=sandbox.run, args=('sleep 0.2',)).start()",
    ],
)
def test_the_interpreter_ends_with_an_open_sandbox_and_says_nothing(sandbox, left_open):
    program = f"from atoll import Sandbox\nsandbox = Sandbox.connect({sandbox.id!r})\n{left_open}\nprint('end')"
    assert run(program) == (0, "end\n", "")


def test_a_forked_child_uses_links_of_its_own(sandbox):
    program = f"""
import os
from atoll import Sandbox
sandbox = Sandbox.connect({sandbox.id!r})
sandbox.run("true")
inherited = list(sandbox._core._links._idle)
assert inherited
child = os.fork()
for turn in range(20):
    word = f"{{'child' if child == 0 else 'parent'}} {{turn}}"
    assert sandbox.run(["echo", word]).stdout == word + "\\n"
    assert sandbox.files.write(word, word) == len(word)
    assert sandbox.files.read(word) == word
if child == 0:
    assert not set(inherited) & set(sandbox._core._links._idle)
    os._exit(0)
assert inherited == sandbox._core._links._idle
assert os.waitpid(child, 0)[1] == 0
print("both")
"""
    assert run(program) == (0, "both\n", "")


def test_a_fork_in_the_middle_of_a_stream_leaves_it_to_the_parent(sandbox):
    program = f"""
import os
from atoll import Sandbox
sandbox = Sandbox.connect({sandbox.id!r})
output = sandbox.stream("echo one; while [ ! -e go2 ]; do sleep 0.01; done; echo two")
assert next(output).text == "one\\n"
child = os.fork()
if child == 0:
    del output
    os._exit(0)
os.waitpid(child, 0)
sandbox.files.write("go2", "")
print("".join(chunk.text for chunk in output), end="")
"""
    assert run(program) == (0, "two\n", "")


def test_the_synchronous_form_loads_no_event_loop_and_starts_no_thread(sandbox):
    program = f"""
import sys, threading
from atoll import Sandbox
sandbox = Sandbox.connect({sandbox.id!r})
sandbox.run("cat", stdin="x")
sandbox.run_code("1")
sandbox.files.write("x", "y")
list(sandbox.stream("echo x"))
sandbox.start("true").wait()
assert threading.active_count() == 1
heavy = set(sys.modules) & {{
    "anyio", "asyncio", "trio", "concurrent.futures", "subprocess", "dataclasses", "inspect", "pathlib",
    "logging", "tempfile", "shutil", "ctypes",
}}
print(sorted(heavy))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )  # without -X dev, which itself loads more
    assert (done.stdout, done.stderr) == ("[]\n", "")
