"""What a cell prints and shows, from wherever it comes: complete, in order, attributed."""

from __future__ import annotations

import os
import time

import pytest

SUBPROCESS = "import subprocess, sys\n"


@pytest.fixture
def run(sandbox):
    """Runs cells in a fresh context."""
    context = "c" + os.urandom(6).hex()

    def cell(code, **options):
        return sandbox.run_code(code, context=context, **options)

    yield cell
    sandbox.contexts.delete(context)


def listening():
    heard = []
    return heard, {
        "on_stdout": lambda text: heard.append(("out", text)),
        "on_stderr": lambda text: heard.append(("err", text)),
        "on_result": lambda result: heard.append(("result", result.text)),
        "on_error": lambda error: heard.append(("error", error.name)),
    }


def merged(heard):
    """Neighbours of one kind as one: where a text is cut is nobody's business."""
    whole = []
    for kind, text in heard:
        if whole and whole[-1][0] == kind and kind in ("out", "err"):
            whole[-1] = (kind, whole[-1][1] + text)
        else:
            whole.append((kind, text))
    return whole


def test_the_order_of_prints_displays_results_and_the_error_is_that_of_the_cell(run):
    heard, listeners = listening()
    code = """
import sys
for turn in range(40):
    print('o', turn)
    print('e', turn, file=sys.stderr)
    if turn % 10 == 0:
        display(turn)
print('partial', end='')
1 / 0
"""
    done = run(code, **listeners)
    expected = []
    for turn in range(40):
        expected += [("out", f"o {turn}\n"), ("err", f"e {turn}\n")]
        if turn % 10 == 0:
            expected.append(("result", str(turn)))
    assert merged(heard) == [*expected, ("out", "partial"), ("error", "ZeroDivisionError")]
    assert done.stdout.endswith("o 39\npartial")


def test_lines_in_a_hurry_keep_their_order_with_errors_and_displays(run):
    """Whoever prints fast takes a short cut; the slow things in between wait for it."""
    heard, listeners = listening()
    done = run(
        "import sys\nfor i in range(3000):\n    print(i)\n    if i % 500 == 499: print('mark', i, file=sys.stderr)\n"
        "    if i % 1000 == 999: display(i)\n'end'",
        **listeners,
    )
    expected = []
    for start in range(0, 3000, 500):
        expected += [
            ("out", "".join(f"{i}\n" for i in range(start, start + 500))),
            ("err", f"mark {start + 499}\n"),
        ]
        if start % 1000 == 500:
            expected.append(("result", str(start + 499)))
    assert merged(heard) == [*expected, ("result", "'end'")]
    assert (done.truncated, done.success) == (False, True)


def test_output_of_every_kind_reaches_its_stream(run):
    code = """
import ctypes, os, subprocess, sys
os.write(1, b'raw out\\n'); os.write(2, b'raw err\\n')
libc = ctypes.CDLL(None)
libc.puts(b'from C'); libc.fflush(None)
subprocess.run(['sh', '-c', 'echo child out; echo child err >&2'])
os.system('echo system')
sys.__stdout__.write('dunder\\n')
sys.stdout.buffer.write(b'buffer\\n'); sys.stdout.flush()
"""
    done = run(code)
    assert sorted(done.stdout.splitlines()) == ["buffer", "child out", "dunder", "from C", "raw out", "system"]
    assert sorted(done.stderr.splitlines()) == ["child err", "raw err"]


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import os\nos.close(1)\nprint('after')", "after\n"),
        ("import os\nos.dup2(os.open('/dev/null', 1), 1)\nprint('after')\nos.system('echo hidden')", "after\n"),
        ("import io, sys\nsys.stdout = io.StringIO()\nprint('hidden')\nsys.stdout = sys.__stdout__\nprint('s')", "s\n"),
        ("import contextlib as c, io\nwith c.redirect_stdout(io.StringIO()): print('x')\nprint('y')", "y\n"),
        ("import os, sys\nos.dup2(2, 1)\nos.system('echo moved')", ""),
    ],
    ids=["closed", "another file", "replaced", "redirected", "stderr"],
)  # fmt: skip
def test_a_cell_may_do_what_it_likes_to_its_output(run, code, printed):
    done = run(code)
    assert (done.stdout, done.error) == (printed, None)
    again = run("import sys\nsys.stdout = sys.__stdout__\nprint('still here')\n6 * 7")
    assert (again.stdout, again.text) == ("still here\n", "42")


def test_a_closed_stdout_is_an_error_of_that_cell_and_no_end_of_the_context(run):
    done = run("import sys\nkept = 1\nsys.stdout.close()\nprint('x')")
    assert done.error is not None
    assert run("kept").text == "1"


def test_threads_print_whole_lines_and_lose_none(run):
    code = """
import threading
def speak(name):
    for turn in range(500): print(f'{name}:{turn}' + 'x' * 20 + '\\n', end='')
threads = [threading.Thread(target=speak, args=(name,)) for name in 'abcd']
[thread.start() for thread in threads]; [thread.join() for thread in threads]; None
"""
    lines = run(code).stdout.splitlines()
    assert sorted(lines) == sorted(f"{name}:{turn}{'x' * 20}" for name in "abcd" for turn in range(500))
    for name in "abcd":
        own = [line for line in lines if line.startswith(name)]
        assert own == [f"{name}:{turn}{'x' * 20}" for turn in range(500)]


def test_threads_of_both_streams_and_with_displays_tear_nothing(run):
    """Displays of more than a frame go out in pieces, which must not be mixed with those of another thread."""
    code = """
import sys, threading
def out():
    for turn in range(300): print('o' * 100)
def err():
    for turn in range(300): print('e' * 100, file=sys.stderr)
def show(letter):
    for turn in range(8): display(letter * 100_000)
threads = [threading.Thread(target=out), threading.Thread(target=err)]
threads += [threading.Thread(target=show, args=(letter,)) for letter in 'pq']
[thread.start() for thread in threads]; [thread.join() for thread in threads]; None
"""
    done = run(code)
    assert done.error is None
    assert done.stdout == ("o" * 100 + "\n") * 300
    assert done.stderr == ("e" * 100 + "\n") * 300
    shown = sorted(result.text for result in done.results)
    assert shown == [repr("p" * 100_000)] * 8 + [repr("q" * 100_000)] * 8


def test_a_thread_that_goes_on_printing_never_breaks_a_later_cell(run):
    """It prints at each moment, also between the last word of a cell and its end."""
    code = """
import sys, threading
going = True
def speak():
    while going:
        print('out'); print('err', file=sys.stderr)
threads = [threading.Thread(target=speak, daemon=True) for _ in range(2)]
[thread.start() for thread in threads]
"""
    assert run(code).error is None
    for turn in range(60):
        done = run(f"display('d'); {turn}", timeout=60)
        assert (done.text, done.error, done.timed_out) == (str(turn), None, False)
        assert set(done.stdout) <= set("out\n")
        assert set(done.stderr) <= set("err\n")
    assert run("going = False\n[thread.join() for thread in threads]\n'quiet'").text == "'quiet'"
    run("0")
    assert run("1").stdout == ""


def test_a_process_that_goes_on_writing_never_breaks_a_later_cell(run):
    run(SUBPROCESS + "yes = subprocess.Popen(['yes', 'background'])")
    heard = 0
    for turn in range(40):
        done = run(f"{turn}", timeout=60)
        assert (done.text, done.error, done.timed_out, done.stderr) == (str(turn), None, False, "")
        assert set(done.stdout) <= set("background\n")
        heard += len(done.stdout)
    assert heard > 0
    assert run("yes.kill(); yes.wait()").text == "-9"


def test_what_is_dropped_between_two_cells_is_said_to_be(run, eventually, sandbox):
    name = os.urandom(4).hex()
    run(SUBPROCESS + f"p = subprocess.Popen('head -c 5000000 /dev/zero | tr \"\\\\0\" x; touch {name}', shell=True)")
    eventually(lambda: sandbox.files.exists(name))
    done = run("p.wait()")
    whole = run("'and that is all'")
    assert (done.truncated or whole.truncated) == (len(done.stdout) + len(whole.stdout) < 5_000_000)
    assert run("1").truncated is False


def test_output_between_two_cells_comes_with_the_next(run, eventually, sandbox):
    go, ready = os.urandom(4).hex(), os.urandom(4).hex()
    wait = f"while ! test -e {go}; do sleep 0.01; done; echo late; touch {ready}"
    run(SUBPROCESS + f"p = subprocess.Popen({wait!r}, shell=True)")
    sandbox.files.write(go, "")
    eventually(lambda: sandbox.files.exists(ready))
    done = run("p.wait()\nprint('now')")
    assert done.stdout == "late\nnow\n"


def test_five_megabytes_of_a_process_arrive_with_prints_between(run):
    code = SUBPROCESS + (
        "for turn in range(5):\n    print('P' * 10)\n"
        "    subprocess.run('head -c 1000000 /dev/zero | tr \"\\\\0\" x', shell=True)\nprint('end')"
    )
    done = run(code)
    assert (done.stdout.count("x"), done.stdout.count("P"), done.truncated) == (5_000_000, 50, False)
    assert len(done.stdout) == 5_000_000 + 55 + 4


def test_a_slow_listener_loses_nothing(run):
    pauses = iter([0.15] * 4)

    def slowly(_text):
        time.sleep(next(pauses, 0))

    code = SUBPROCESS + (
        "print('a' * 1_000_000)\nsubprocess.run('head -c 3000000 /dev/zero | tr \"\\\\0\" x', shell=True)\n"
        "print('b' * 1_000_000)\n'result'"
    )
    done = run(code, on_stdout=slowly)
    counts = tuple(done.stdout.count(letter) for letter in "axb")
    assert (counts, done.text, done.truncated) == ((1_000_000, 3_000_000, 1_000_000), "'result'", False)


def test_frames_are_never_torn_when_many_write_at_once(run):
    """The context and its guest write to the same stream; the kernel keeps their sends whole."""
    code = """
import subprocess, sys, threading
writers = [subprocess.Popen(f'head -c 1500000 /dev/zero | tr "\\\\0" {letter} >&{fd}', shell=True)
           for letter, fd in (('a', 1), ('b', 2), ('c', 1))]
def fill(stream, letter):
    for turn in range(25): stream.write(letter * 32_000 + '\\n')
threads = [threading.Thread(target=fill, args=(sys.stdout, 'p')), threading.Thread(target=fill, args=(sys.stderr, 'q'))]
[thread.start() for thread in threads]
for turn in range(25): sys.stdout.write('m' * 32_700 + '\\n')
[thread.join() for thread in threads]
[writer.wait() for writer in writers]
"""
    done = run(code)
    assert done.error is None
    out = {letter: done.stdout.count(letter) for letter in "abcpqm\n"}
    err = {letter: done.stderr.count(letter) for letter in "abcpqm\n"}
    assert out == {"a": 1_500_000, "b": 0, "c": 1_500_000, "p": 800_000, "q": 0, "m": 817_500, "\n": 50}
    assert err == {"a": 0, "b": 1_500_000, "c": 0, "p": 0, "q": 800_000, "m": 0, "\n": 25}


def test_a_result_of_five_megabytes_arrives_whole(run):
    done = run("class Big:\n    def _repr_html_(self): return '<b>' + 'h' * 5_000_000\nBig()", max_output=20 << 20)
    assert len(done.results[0].data["text/html"]) == 5_000_003
    assert not done.truncated


def test_a_result_of_thirty_megabytes_arrives_if_it_is_asked_for(run):
    code = "class Big:\n    def _repr_html_(self): return 'h' * 30_000_000\n    def __repr__(self): return 'big'\nBig()"
    done = run(code, max_output=40 << 20)
    assert (len(done.results[0].data["text/html"]), done.truncated) == (30_000_000, False)
    less = run(code, max_output=1 << 20)
    assert (dict(less.results[0].data), less.truncated) == ({"text/plain": "big"}, True)


def test_results_are_bounded_together_and_the_cut_is_said(run):
    done = run("for turn in range(1000): display('d' * 10_000)\n'last'", max_output=1_000_000)
    assert done.truncated
    assert 90 <= len(done.results) <= 101
    assert run("len('x')").text == "1"


def test_many_small_displays_come_in_order(run):
    done = run("for turn in range(2000): display(turn)")
    assert [result.text for result in done.results] == [str(turn) for turn in range(2000)]


@pytest.mark.parametrize("limit", [1, 10, 1000])
def test_a_small_limit_cuts_and_says_so_and_keeps_a_short_result(run, limit):
    done = run("print('x' * 5000)", max_output=limit)
    assert (len(done.stdout), done.truncated) == (limit, True)
    assert run("7", max_output=1000)[0][0].text == "7"


def test_the_iterator_gives_pieces_while_the_cell_runs(sandbox):
    for context in ("piecewise", "piecewise"):
        wait = "import os, time\nprint('one')\nwhile not os.path.exists('go on'): time.sleep(0.01)\n"
        code = wait + "print('two')\ndisplay(3)\n4"
        pieces = sandbox.stream_code(code, context=context, timeout=30)
        assert pieces.execution is None
        assert next(pieces).text == "one\n"
        sandbox.files.write("go on", "")
        assert [piece.text for piece in pieces] == ["two\n", "3", "4"]
        assert pieces.execution.text == "4"
        assert pieces.execution.stdout == "one\ntwo\n"
        sandbox.files.remove("go on")
