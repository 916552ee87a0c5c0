"""Contexts go on in other sandboxes with all that they have in memory, and know nothing of each other."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import time

import pytest
from tests.engine.twins import (
    all_live,
    context_process,
    driver_of,
    fork,
    handle_of,
    held,
    members,
    new,
    text,
    traces,
    transplant,
)

from atoll.engine import tracing
from atoll.errors import Busy, InvalidInput
from atoll.io import drive

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not tracing.available(), reason="needs root on x86-64")


@pytest.fixture
def make():
    with contextlib.ExitStack() as stack:
        yield lambda **wishes: new(stack, **wishes)


@contextlib.contextmanager
def running(box, code):
    """While a cell runs."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        cell = pool.submit(box.run_code, code)
        while not box.contexts.list()[0].busy:
            time.sleep(0.005)
        yield
        cell.result()


@pytest.fixture
def pair(make):
    return make(), make()


def test_a_twin_has_variables_functions_classes_and_imports(pair):
    box, twin = pair
    text(
        box,
        "import json, math\nclass A:\n    def __init__(self, x): self.x = x\na = A([1, 2])\ndef f(y): return a.x + [y]",
    )
    assert all_live(fork(box, twin))
    assert text(twin, "f(3), json.dumps(a.x), math.pi > 3, type(a).__name__") == "([1, 2, 3], '[1, 2]', True, 'A')"


def test_what_one_changes_the_other_does_not_see(pair):
    box, twin = pair
    text(box, "x = [1]; big = bytearray(1 << 20)")
    fork(box, twin)
    assert text(twin, "x.append('twin'); big[:4] = b'twin'; x") == "[1, 'twin']"
    assert text(box, "x.append('parent'); x, bytes(big[:4])") == "([1, 'parent'], b'\\x00\\x00\\x00\\x00')"
    assert text(twin, "x") == "[1, 'twin']"


def test_a_twin_is_a_process_of_its_own_sandbox(pair):
    box, twin = pair
    show = (
        "import os; [os.readlink(f'/proc/self/ns/{n}') for n in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup')]"
    )
    parent = eval(text(box, show))
    fork(box, twin)
    twins = eval(text(twin, show))
    assert len(twins) == 7
    assert set(parent) & set(twins) == set()
    assert text(twin, "os.getpid(), os.getppid()") == f"({twin.contexts.list()[0].pid}, 0)"
    assert sorted(os.listdir(f"/proc/{context_process(twin)}/fd"), key=int)[:6] == list("012345")


def test_its_wall_is_the_one_of_any_context(pair, make):
    box, twin = pair
    show = (
        "[line for line in open('/proc/self/status') if line.split(':')[0] in "
        "('Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', "
        "'Seccomp_filters', 'SigBlk', 'SigIgn', 'Cpus_allowed')] + "
        "[line for line in open('/proc/self/limits') if 'locks' not in line] + "
        "[open('/proc/self/oom_score_adj').read()]"
    )
    text(box, "1")
    fork(box, twin)
    assert text(twin, show) == text(make(), show)


def test_numbering_of_cells_and_compiler_flags_go_on(pair):
    box, twin = pair
    text(box, "from __future__ import annotations")
    text(box, "1")
    fork(box, twin)
    done = twin.run_code("def f(x: nowhere): pass\nf.__annotations__")
    assert done.count == 3
    assert done.text == "{'x': 'nowhere'}"
    assert box.run_code("1").count == 3


def test_an_event_loop_goes_on_with_its_tasks(pair):
    box, twin = pair
    text(
        box,
        "import asyncio\nheard = []\nasync def tell():\n    for n in range(100):\n        heard.append(n)\n"
        "        await asyncio.sleep(0.001)\ntask = asyncio.ensure_future(tell())\nawait asyncio.sleep(0)",
    )
    fork(box, twin)
    for each in (twin, box):
        assert text(each, "await asyncio.wait_for(task, 20)\nlen(heard)") == "100"
        assert text(each, "await asyncio.to_thread(len, 'abc')") == "3"


def test_twins_draw_different_numbers(make):
    box, *twins = make(), make(), make()
    text(box, "import random, os")
    fork(box, *twins)
    drawn = {text(each, "random.random(), os.urandom(4)") for each in (box, *twins)}
    assert len(drawn) == 3


def test_a_twin_works_in_its_own_files(pair):
    box, twin = pair
    text(
        box, "import os; os.makedirs('deep/er', exist_ok=True); os.chdir('deep/er'); open('here', 'w').write('parent')"
    )
    twin.run("mkdir -p deep/er", check=True)
    fork(box, twin)
    assert text(twin, "os.getcwd(), os.path.exists('here')") == "('/workspace/deep/er', False)"
    text(twin, "open('here', 'w').write('twin')")
    assert twin.run("cat deep/er/here").stdout == "twin"
    assert box.run("cat deep/er/here").stdout == "parent"


def test_where_its_directory_is_not_there_it_is_in_the_workspace(pair):
    box, twin = pair
    text(box, "import os; os.mkdir('/tmp/only-here'); os.chdir('/tmp/only-here')")
    fork(box, twin)
    assert text(twin, "os.getcwd()") == "'/workspace'"


def test_output_of_every_kind_comes_from_a_twin(pair):
    box, twin = pair
    text(box, "import os, sys, subprocess, threading")
    fork(box, twin)
    for each in (twin, box, twin):
        done = each.run_code(
            "print('a'); print('b', file=sys.stderr); os.system('echo c'); subprocess.run(['sh', '-c', 'echo d >&2'])\n"
            "t = threading.Thread(target=print, args=('e',)); t.start(); t.join()\nfor n in range(2000): print(n)\n'f'"
        )
        assert done.stdout == "a\nc\ne\n" + "".join(f"{n}\n" for n in range(2000))
        assert done.stderr == "b\nd\n"
        assert "f" in done.text
        assert text(each, "open('/dev/stdout', 'w').write('x')") == "1"


def test_a_twin_can_be_interrupted_and_has_an_end_like_any_other(pair):
    box, twin = pair
    text(box, "import time, os, signal; x = 1")
    fork(box, twin)
    assert twin.run_code("time.sleep(60)", timeout=0.3).timed_out
    assert text(twin, "x") == "1"
    assert "SIGKILL" in twin.run_code("os.kill(os.getpid(), 9)").error.value
    after = twin.run_code("'x' in globals()")
    assert (after.text, after.count) == ("False", 1)
    assert "exited with 7" in twin.run_code("import os; os._exit(7)").error.value
    assert text(box, "x") == "1"


def test_a_twin_that_takes_too_much_memory_is_told_so_and_its_parent_goes_on(make):
    box, twin = make(), make(resources={"memory": "128M"})
    text(box, "x = bytearray(50 << 20)")
    fork(box, twin)
    assert twin.run_code("y = bytearray(300 << 20)").error.name == "OutOfMemory"
    assert text(box, "len(x)") == str(50 << 20)
    assert text(twin, "1") == "1"


def test_memory_of_a_twin_counts_for_the_twin(pair):
    box, twin = pair
    text(box, "x = bytearray(100 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1")
    before = box.metrics().memory
    fork(box, twin)
    assert twin.metrics().memory < 40 << 20
    text(twin, "for i in range(0, len(x), 4096): x[i] = 2")
    assert twin.metrics().memory > 95 << 20
    assert box.metrics().memory < before + (20 << 20)


def test_twins_of_twins_live_on_when_those_before_them_are_gone(make):
    first, second, third = make(), make(), make()
    text(first, "x = ['first']")
    fork(first, second)
    text(second, "x.append('second')")
    fork(second, third)
    first.destroy()
    assert text(second, "x") == "['first', 'second']"
    second.destroy()
    assert text(third, "x.append('third'); x") == "['first', 'second', 'third']"
    assert "SIGKILL" in third.run_code("import os; os.kill(os.getpid(), 9)").error.value
    assert text(third, "1") == "1"


def test_nothing_is_left_of_those_that_were_destroyed(make):
    box, twin, other = make(), make(), make()
    text(box, "x = 1")
    fork(box, twin, other)
    processes = {each: members(each) for each in (box, twin, other)}
    for each in (twin, box, other):
        each.destroy()
        assert traces(each) == []
        deadline = time.monotonic() + 20
        while left := [pid for pid in processes[each] if os.path.exists(f"/proc/{pid}")]:
            assert time.monotonic() < deadline, left
            time.sleep(0.01)


def test_one_context_can_be_forked_many_times(make):
    box = make()
    text(box, "x = 0")
    for turn in range(5):
        twin = make()
        text(box, "x += 1")
        assert all_live(fork(box, twin))
        assert text(twin, "x") == str(turn + 1)


def test_one_hold_can_make_twins_more_than_once(make):
    box, *twins = (make() for _ in range(5))
    text(box, "x = 'here'")
    with held(box):
        for some in (twins[:1], twins[1:]):
            assert all(each["live"] for made in transplant(box, *some) for each in made["contexts"])
    assert {text(each, "x") for each in (box, *twins)} == {"'here'"}


def test_every_context_that_has_run_something_is_forked(pair):
    box, twin = pair
    box.contexts.create("other", env={"A": "b"}, workdir="/tmp")
    text(box, "import os; y = 'other'", context="other")
    box.contexts.create("unused")
    box.contexts.create("shell", language="bash")
    box.run_code("z=1", context="shell")
    text(box, "x = 'main'")
    session = box.session()
    with held(box) as contexts:
        told = {each["name"]: each for each in contexts}
        transplant(box, twin)
    assert {name: each["live"] for name, each in told.items()} == {
        "main": True, "other": True, "unused": False, "shell": False, session.id: False,
    }  # fmt: skip
    assert told["unused"]["used"] is False
    assert told["shell"]["used"] is True
    assert text(twin, "x") == "'main'"
    assert text(twin, "y, os.environ['A'], os.getcwd()", context="other") == "('other', 'b', '/tmp')"
    assert {each.name for each in twin.contexts.list()} == {"main", "other"}


def test_a_context_of_a_twin_is_made_anew_with_its_own_settings(pair):
    box, twin = pair
    box.contexts.create("other", env={"A": "b"})
    text(box, "y = 1", context="other")
    fork(box, twin)
    twin.contexts.restart("other")
    assert text(twin, "import os; os.environ['A'], 'y' in globals()", context="other") == "('b', False)"
    twin.contexts.delete("other")
    assert "other" not in {each.name for each in twin.contexts.list()}


def test_what_a_twin_loses_is_named(pair):
    box, twin = pair
    text(
        box,
        "import threading, subprocess\nfile = open('/workspace/open', 'w')\nstop = threading.Event()\n"
        "thread = threading.Thread(target=stop.wait)\nthread.start()\nchild = subprocess.Popen(['sleep', '1000'])",
    )
    with held(box) as contexts:
        assert contexts[0]["loses"]["files"] == ["/workspace/open"]
        assert len(contexts[0]["loses"]["threads"]) == 1
        assert contexts[0]["loses"]["children"] == ["sleep 1000"]
        transplant(box, twin)
    assert text(twin, "thread.is_alive()") == "False"
    assert "Bad file descriptor" in twin.run_code("file.write('x'); file.flush()").error.value
    assert text(box, "stop.set(); thread.join(); file.write('x'); file.flush(); child.kill(); child.wait()") == "-9"


def test_a_context_that_runs_a_cell_is_waited_for_and_named_when_it_takes_too_long(pair):
    box, twin = pair
    text(box, "import time; x = 1")
    with running(box, "time.sleep(0.5); x = 2"):
        assert all_live(fork(box, twin))
    assert text(twin, "x") == "2"
    with running(box, "time.sleep(60)"):
        with pytest.raises(Busy, match="'main'"), held(box, wait=0.2):
            pass
        box.contexts.interrupt()
    assert text(box, "x") == "2"


def test_who_holds_and_goes_lets_the_contexts_go_on(pair):
    box, _ = pair
    text(box, "x = 1")
    drive(driver_of(box).hold(handle_of(box), 5))
    with pytest.raises(Busy), held(box):
        pass
    drive(driver_of(box).release(handle_of(box)))
    assert text(box, "x") == "1"
    with pytest.raises(InvalidInput):
        transplant(box)


def test_a_cell_that_comes_while_the_contexts_stand_runs_afterwards(pair):
    box, twin = pair
    text(box, "x = 1")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with held(box):
            later = pool.submit(text, box, "x += 1; x")
            transplant(box, twin)
        assert later.result() == "2"
    assert text(twin, "x") == "1"


def test_memory_that_was_shared_on_purpose_is_a_twins_own(pair):
    box, twin = pair
    text(box, "import mmap; m = mmap.mmap(-1, 1 << 20); m[:5] = b'hello'; m[-3:] = b'end'")
    fork(box, twin)
    assert text(twin, "m[:5], m[-3:]") == "(b'hello', b'end')"
    text(twin, "m[:5] = b'twins'")
    assert text(box, "m[:5]") == "b'hello'"
    text(box, "m[:5] = b'other'")
    assert text(twin, "m[:5]") == "b'twins'"


def test_a_twin_can_fork_and_start_processes_as_any_context_can(pair):
    box, twin = pair
    text(box, "import os, multiprocessing, concurrent.futures")
    fork(box, twin)
    assert text(twin, "pid = os.fork()\nif pid == 0: os._exit(5)\nos.waitpid(pid, 0)[1] >> 8") == "5"
    code = "with concurrent.futures.ProcessPoolExecutor(2) as pool: found = list(pool.map(abs, [-1, -2]))\nfound"
    assert text(twin, code) == "[1, 2]"


def test_a_sandbox_that_is_gone_gets_no_twin_and_the_others_do(make):
    box, gone, twin = make(), make(), make()
    text(box, "x = 1")
    gone.destroy()
    outcome = fork(box, gone, twin)
    assert not outcome[gone.id]["main"]["live"]
    assert outcome[twin.id]["main"]["live"]
    assert text(twin, "x") == "1"


def test_numpy_goes_on_and_draws_anew(make):
    box, twin = make(), make()
    if box.run_code("import numpy").error is not None:
        pytest.skip("there is no numpy in this sandbox")
    text(box, "numpy.random.seed(1); a = numpy.arange(6).reshape(2, 3); a @ a.T")
    fork(box, twin)
    assert text(twin, "(a @ a.T).tolist()") == "[[5, 14], [14, 50]]"
    assert text(twin, "numpy.random.random()") != text(box, "numpy.random.random()")
