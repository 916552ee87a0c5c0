"""`code`: what a cell sees, says and leaves behind."""

import json
import os
import re
import sys

import pytest
from tests.guest.rawclient import eventually
from tests.guest.support import failure, text


def test_the_last_expression_is_the_result_and_state_stays(client):
    assert text(client.code("x = 41")) is None
    ended = client.code("x + 1")
    assert ended.events == [{"result": {"text/plain": "42"}, "main": True}]
    assert ended.ok["count"] == 2
    assert ended.ok["state_lost"] is False
    assert ended.ok["duration"] >= 0


def test_none_and_statements_have_no_result(client):
    for code in ("None", "x = 1", "", "# only a comment", "def f(): return 1", "pass;"):
        ended = client.code(code)
        assert ended.events == []
        assert failure(ended) is None


def test_several_statements_and_a_docstring(client):
    assert text(client.code("'''doc'''\ny = 2\ny * 3")) == "6"
    assert text(client.code("'just a text'")) == "'just a text'"


def test_the_order_of_the_two_streams_is_exact(client):
    code = "import sys\nfor i in range(50):\n    print('out', i)\n    print('err', i, file=sys.stderr)\n"
    code += "sys.stdout.write('no newline')\nsys.stderr.write('x')\nprint(1)"
    ended = client.code(code)
    joined = b"".join(b"%d:%s" % chunk for chunk in _merged(ended.chunks))
    expected = b"".join(b"1:out %d\n2:err %d\n" % (i, i) for i in range(50)) + b"1:no newline2:x1:1\n"
    assert joined == expected


def _merged(chunks):
    merged = []
    for stream, data in chunks:
        if merged and merged[-1][0] == stream:
            merged[-1] = (stream, merged[-1][1] + data)
        else:
            merged.append((stream, data))
    return merged


def test_output_is_live(client):
    channel = client.open("code", code="import time; print('now'); time.sleep(60)")
    assert client.receive().payload == b"now\n"
    client.cancel(channel)
    client.finish(channel)


def test_a_partial_line_comes_out_at_the_end_of_the_cell_also_after_an_error(client):
    assert client.code("print('half', end='')").stdout == b"half"
    assert client.code("print('half', end=''); 1/0").stdout == b"half"


def test_output_of_processes_of_the_cell_is_all_there(client):
    ended = client.code("import subprocess; subprocess.run('echo sub; echo err >&2', shell=True).returncode")
    assert (ended.stdout, ended.stderr) == (b"sub\n", b"err\n")
    ended = client.code("import os; os.write(1, b'raw' * 100_000); os.system('printf x')")
    assert ended.stdout == b"raw" * 100_000 + b"x"


def test_output_that_is_no_text_comes_through(client):
    code = r"import sys; sys.stdout.buffer.write(b'\xff\x00'); print('\udcfe', 'é', '✓')"
    assert client.code(code).stdout == b"\xff\x00\xfe \xc3\xa9 \xe2\x9c\x93\n"


def test_much_output_comes_through(client):
    ended = client.code("for i in range(20_000): print('line', i)\nprint('x' * 3_000_000)")
    assert ended.stdout == b"".join(b"line %d\n" % i for i in range(20_000)) + b"x" * 3_000_000 + b"\n"


def test_output_beyond_the_limit_is_dropped_and_the_cell_goes_on(client):
    ended = client.code("print('x' * 100_000)\n'finished'", limit=100)
    assert ended.stdout == b"x" * 100
    assert ended.ok["truncated"] is True
    assert text(ended) == "'finished'"


def test_an_error_has_a_name_a_value_and_a_traceback_of_the_cell_only(client):
    client.code("def divide(a):\n    return a / 0")
    error = failure(client.code("y = 1\ndivide(y)"))
    assert error["name"] == "ZeroDivisionError"
    assert error["value"] == "division by zero"
    assert "divide(y)" in error["traceback"]
    assert "return a / 0" in error["traceback"]
    assert '"<cell 1>", line 2, in divide' in error["traceback"]
    assert "atoll" not in error["traceback"]
    assert "guest" not in error["traceback"]


def test_chained_and_grouped_errors_are_told_without_our_frames(client):
    error = failure(client.code("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('outer') from e"))
    assert error["traceback"].count("Traceback") == 2
    assert "direct cause" in error["traceback"]
    assert "atoll" not in error["traceback"]
    error = failure(client.code("raise ExceptionGroup('several', [ValueError(1), KeyError(2)])"))
    assert "KeyError: 2" in error["traceback"]


def test_a_cell_that_raises_in_its_last_expression_ran_once(client):
    client.code("runs = 0\ndef step():\n    global runs\n    runs += 1\n    raise ValueError('no')")
    assert failure(client.code("step()"))["name"] == "ValueError"
    assert text(client.code("runs")) == "1"


def test_a_syntax_error_is_told_and_nothing_ran(client):
    client.code("ran = False")
    error = failure(client.code("ran = True\nif if"))
    assert error["name"] == "SyntaxError"
    assert "if if" in error["traceback"]
    assert "Traceback" not in error["traceback"]
    assert text(client.code("ran")) == "False"


@pytest.mark.parametrize("code", ["\0", "\ud800", "(" * 1000, "x = '\\ud800'; print(x)", "\tx = 1\n  y = 2"])
def test_code_that_cannot_be_compiled_or_shown_is_an_error_and_no_more(client, code):
    assert failure(client.code(code)) is not None
    assert text(client.code("1")) == "1"


def test_a_repr_that_fails_or_is_huge_is_handled(client):
    client.code("class Bad:\n    def __repr__(self): raise ValueError('not today')")
    assert "not today" in text(client.code("Bad()"))
    ended = client.code("'x' * 5_000_000")
    assert ended.ok["truncated"] is True
    assert 300_000 < len(text(ended)) < 1 << 20
    ended = client.code("'\u2713' * 5_000_000")
    assert ended.ok["truncated"] is True
    assert len(text(ended)) > 50_000
    assert len(json.dumps(ended.events[0])) <= 1 << 19


def test_an_error_that_cannot_be_shown_or_is_huge_is_handled(client):
    client.code("class Bad(Exception):\n    def __str__(self): raise ValueError('not today')")
    assert failure(client.code("raise Bad"))["name"] == "Bad"
    ended = client.code("raise ValueError('x' * 5_000_000)")
    assert ended.ok["truncated"] is True
    assert len(failure(ended)["value"]) == 1 << 16
    assert failure(client.code("def f(): f()\nf()"))["name"] == "RecursionError"


METACLASS = "class M(type):\n    %s\nclass E(Exception, metaclass=M): pass\nraise E('why')"
BROKEN = {
    "a name that raises": METACLASS % "__name__ = property(lambda self: 1 / 0)",
    "a name that is a number": METACLASS % "__name__ = property(lambda self: 5)",
    "a name that is huge": METACLASS % "__name__ = property(lambda self: 'x' * 5_000_000)",
    "a class without members": METACLASS % "def __getattribute__(self, name): raise KeyboardInterrupt",
    "a module that exits": METACLASS % "__module__ = property(lambda self: exit(3))",
    "no members": "class E(Exception):\n    def __getattribute__(self, name): raise KeyboardInterrupt\nraise E('why')",
    "no class": "class E(Exception):\n    __class__ = property(lambda self: 1 / 0)\nraise E('why')",
    "no traceback": "class E(Exception):\n    __traceback__ = property(lambda self: 5)\nraise E('why')",
    "no cause": "class E(Exception):\n    __cause__ = property(lambda self: 1 / 0)\nraise E('why')",
    "a text that exits": "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E('why')",
    "a text that interrupts": "class E(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise E('why')",
    "a text of its own kind": (
        "class S(str):\n    def __len__(self): raise SystemExit\n    __getitem__ = __len__\n"
        "class E(Exception):\n    def __str__(self): return S('why')\nraise E"
    ),
    "an exit code that fails": "class E(SystemExit):\n    code = property(lambda self: [].x)\nraise E('why')",
    "a place that is none": "class E(SyntaxError):\n    lineno = text = offset = object()\nraise E('why')",
    "many causes": (
        "class E(Exception): pass\ne = E('why')\n"
        "for _ in range(3000):\n    n = E('why')\n    n.__cause__ = e\n    e = n\nraise e"
    ),
}


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
def test_whatever_the_class_of_an_error_does_the_error_is_told_and_the_context_lives(client, code):
    client.code("kept = 41")
    ended = client.code(code)
    assert failure(ended)["name"] == "E"
    assert 'File "<cell 2>"' in failure(ended)["traceback"]
    assert failure(ended)["value"] in ("why", "<its text cannot be shown>")
    assert (ended.ok["state_lost"], ended.stderr) == (False, b"")
    assert text(client.code("kept + 1")) == "42"


def test_top_level_await(client):
    assert text(client.code("import asyncio\nawait asyncio.sleep(0.01, 'slept')")) == "'slept'"
    assert text(client.code("async def f(): return 5\nr = await f()\nr")) == "5"
    error = failure(client.code("await asyncio.wait_for(asyncio.sleep(5), 0.01)"))
    assert error["name"] == "TimeoutError"


def test_a_task_made_in_an_awaiting_cell_goes_on_in_the_next(client):
    client.code("import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    print('later')")
    client.code("task = asyncio.ensure_future(later())\nawait asyncio.sleep(0)")
    assert client.code("await task").stdout == b"later\n"


@pytest.mark.parametrize(
    ("code", "value"), [("import sys; sys.exit(3)", "3"), ("raise SystemExit", "0"), ("exit()", "0")]
)
def test_sys_exit_is_told_and_the_context_lives(client, code, value):
    client.code("kept = 1")
    ended = client.code(code)
    assert failure(ended)["name"] == "SystemExit"
    assert failure(ended)["value"] == value
    assert ended.ok["state_lost"] is False
    assert text(client.code("kept")) == "1"


def test_input_has_nobody_to_ask(client):
    error = failure(client.code("input('name? ')"))
    assert "nobody to ask" in error["value"]
    assert text(client.code("import sys; sys.stdin.read()")) == "''"


def test_the_context_looks_like_plain_python(guest, client):
    assert text(client.code("__name__")) == "'__main__'"
    assert text(client.code("import sys; sys.argv")) == "['']"
    assert text(client.code("sys.path[0]")) == "''"
    assert text(client.code("sys.executable")) == repr(sys.executable)
    assert text(client.code("import os; os.getcwd()")) == repr(guest.workspace)
    assert text(client.code("sorted(os.environ)")) == "['HOME', 'LANG', 'MPLBACKEND', 'PATH']"
    assert text(client.code("import gc; gc.isenabled()")) == "True"
    assert text(client.code("sys.modules['__main__'].__dict__ is globals()")) == "True"
    assert text(client.code("import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))) is C")) == "True"
    assert (
        text(client.code("sorted(k for k in globals() if not k.startswith('__'))"))
        == "['C', 'gc', 'os', 'pickle', 'sys']"
    )
    assert text(client.code("[name for name in sys.modules if 'atoll' in name]")) == "[]"
    assert text(client.code("open('made', 'w').close(); os.path.exists('made')")) == "True"
    assert os.path.exists(os.path.join(guest.workspace, "made"))


def test_nothing_of_the_guest_is_open_in_it(guest, client):
    other = guest.connect()
    held = client.open("exec", argv=["cat"], stdin=True)
    script = "import os; [os.path.realpath(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd') if int(f) > 2]"
    listed = text(client.code(script))
    assert listed.count("socket:") == 1
    assert "epoll" not in listed
    own = text(client.code("[os.readlink(f'/proc/self/fd/{f}') for f in (1, 2)]"))
    # It keeps both ends of its own pipes, for cells that close or replace those, and one on which it hears its guest.
    others = set(re.findall(r"pipe:\[\d+\]", listed)) - set(re.findall(r"pipe:\[\d+\]", own))
    assert (len(others), listed.count("pipe:")) == (1, 4)
    ended = client.code("import subprocess; print(subprocess.run(['ls', '/proc/self/fd'], capture_output=True).stdout)")
    assert ended.stdout == b"b'0\\n1\\n2\\n3\\n'\n"
    client.cancel(held)
    client.finish(held)
    other.close()


def test_variables_and_a_directory_can_be_given_for_one_cell(guest, client):
    os.mkdir(os.path.join(guest.workspace, "there"))
    client.code("import os; os.environ['KEPT'] = 'before'")
    code = "(os.environ['KEPT'], os.environ.get('NEW'), os.path.basename(os.getcwd()))"
    assert text(client.code(code, env={"KEPT": "now", "NEW": "yes"}, cwd="there")) == "('now', 'yes', 'there')"
    assert text(client.code(code)) == "('before', None, 'workspace')"
    assert client.code("1", cwd="nowhere").error["errno"] == 2
    assert client.code("1", env={"A=": "x"}).error["code"] == "invalid_input"


def test_future_statements_last(client):
    client.code("from __future__ import annotations")
    assert text(client.code("def f(a: undefined): pass\nf.__annotations__")) == "{'a': 'undefined'}"
    assert failure(client.code("def g(a: undefined): pass", context="other"))["name"] == "NameError"


def test_a_large_cell_runs(client):
    code = "x = %r\nlen(x)" % ("y" * 900_000)
    assert text(client.code(code)) == "900000"


def test_forks_of_a_cell_do_not_answer_for_it(client):
    ended = client.code(
        "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\nif pid: os.waitpid(pid, 0)\n'end'"
    )
    assert ended.stdout.count(b"parent") == 1
    assert len(ended.events) == 1
    assert text(client.code("'still here'")) == "'still here'"
    code = "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: r = p.map(abs, [-1, -2])\nr"
    assert text(client.code(code)) == "[1, 2]"


def test_random_numbers_differ_between_contexts(client):
    draw = "import random; random.random()"
    assert text(client.code(draw, context="a")) != text(client.code(draw, context="b"))


def test_threads_may_print_at_any_time(client):
    code = "import threading\ndef talk():\n    for _ in range(100): print('word', flush=True)\n"
    code += "ts = [threading.Thread(target=talk) for _ in range(5)]\nfor t in ts: t.start()\nfor t in ts: t.join()"
    ended = client.code(code)
    assert len(ended.stdout.splitlines()) == 500


def test_what_is_printed_between_two_cells_comes_with_the_second(client):
    wait = "while not os.path.exists('go'): time.sleep(0.01)"
    code = f"import os, subprocess, threading, time\ndef later():\n    {wait}\n    print('from a thread')\n"
    client.code(code + "    open('done', 'w').close()")
    client.code("threading.Thread(target=later).start()")
    other = "while ! test -e go; do sleep 0.01; done; echo from a process; touch done2"
    client.code(f"p = subprocess.Popen({other!r}, shell=True)")
    client.run("/bin/sh", "-c", "touch go")
    eventually(lambda: client.run("/bin/sh", "-c", "test -e done && test -e done2").ok["exit_code"] == 0)
    assert sorted(client.code("'now'").stdout.splitlines()) == [b"from a process", b"from a thread"]


@pytest.mark.parametrize("bad", [{"code": 1}, {}, {"code": "1", "timeout": "x"}, {"code": "1", "context": ""}])
def test_bad_arguments_are_refused(client, bad):
    assert client.do("code", **bad).error["code"] == "invalid_input"


def test_a_process_that_the_cell_starts_has_default_signals(client):
    grep = ["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"]
    code = f"import subprocess; subprocess.run({grep}, capture_output=True).stdout"
    lines = eval(text(client.code(code))).splitlines()
    libc_own = 1 << 31 | 1 << 32
    assert [int(line.split()[1], 16) & ~libc_own for line in lines] == [0, 0]
    assert text(client.code("import signal; signal.getsignal(signal.SIGTERM) == signal.SIG_DFL")) == "True"


def test_code_that_is_indented_as_a_whole_is_taken_as_it_is_meant(client):
    assert text(client.code("    x = 1\n    if x:\n        x += 1\n    x")) == "2"
    assert text(client.code("\n\t\n\ty = '''\n\ta'''\n\ty")) == "'\\na'"
    assert text(client.code("   40 + 2")) == "42"
    assert text(client.code("# first\n7")) == "7"
    assert failure(client.code("x = 1\n  y = 2"))["name"] == "IndentationError"
    assert failure(client.code("  x = 1\n 1 / 0"))["name"] == "IndentationError"
    error = failure(client.code("    z = 1\n    1 / 0"))
    assert "line 2" in error["traceback"]
    assert "1 / 0" in error["traceback"]


def test_a_semicolon_hides_the_value_and_nothing_else(client):
    for code in ("1;", "1 ; # why", "print('out')\n1;\n", "x = 5; x;"):
        assert text(client.code(code)) is None, code
    for code in ("x = 1; x", "'a;'", "x # a;"):
        assert text(client.code(code)) is not None, code
    assert failure(client.code("1 / 0;"))["name"] == "ZeroDivisionError"


def test_the_last_three_values_have_names(client):
    client.code("20")
    assert text(client.code("_ + 1")) == "21"
    client.code("None")
    assert text(client.code("_, __")) == "(21, 20)"
    assert text(client.code("len(Out), list(Out.values())")) == "(3, [20, 21, (21, 20)])"
    client.code("'four'")
    assert text(client.code("___, 20 in Out.values()")) == "((21, 20), False)"
    assert text(client.code("for _ in range(3): pass\n_")) == "2"
    assert text(client.code("del _\n_")) == "2"
    listed = client.do("ask", context="main", request={"do": "variables"})
    assert {"_", "__", "Out"}.isdisjoint(json.dumps(listed.ok).replace('"', " ").split())


@pytest.mark.parametrize(
    "code", ["%prun 1", "x = 1\n%load_ext y", "%%perl\nls", "files = %sx ls", "print?", "?print", "!", "!ls\n%who"]
)
def test_what_only_ipython_knows_is_told_with_where_to_go(client, code):
    error = failure(client.code(code))
    assert error["name"] == "SyntaxError"
    assert "language='jupyter:python3', or sb.run" in error["value"]


def test_what_is_only_wrong_is_told_plainly(client):
    assert "sb.install" in failure(client.code("pip install six"))["value"]
    for code in ("1 +", "print('?'", "x = = 2", "a % % b"):
        assert "jupyter" not in failure(client.code(code))["value"]


def test_a_task_of_one_cell_is_awaited_in_the_next(client):
    client.code("async def f():\n    await asyncio.sleep(0)\n    return 5")
    client.code("import asyncio\nt = asyncio.ensure_future(f())")
    assert text(client.code("await t")) == "5"
    assert text(client.code("import asyncio\nasyncio.run(f())")) == "5"
    client.code("t = asyncio.ensure_future(f())")
    assert text(client.code("await t")) == "5"
    assert client.code("asyncio.get_event_loop()").stderr == b""


def test_a_print_on_stderr_is_one_piece_and_the_order_is_exact(client):
    ended = client.code("import sys\nfor n in range(5): print(n, file=sys.stderr)")
    assert [bytes(data) for _, data in ended.chunks] == [b"%d\n" % n for n in range(5)]
    ended = client.code(
        "print('a', end=''); print('b', end='', file=sys.stderr); print('c', end=''); print('d')\n"
        "print('e', end='', file=sys.stderr); print('f'); print('g', file=sys.stderr); sys.stderr.write('h')"
    )
    assert b"".join(bytes(data) for _, data in ended.chunks) == b"abcd\nef\ng\nh"
    assert ended.stderr == b"beg\nh"
