"""Many clients of one context, and clients that go away: cells run one after the other, and for the living only."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import anyio
import pytest

from atoll import AsyncSandbox, Sandbox
from atoll.client import contextqueue
from atoll.errors import AtollError, Busy


def fresh():
    return "c" + os.urandom(6).hex()


def client(sandbox, body, **values):
    """Another process with its own connection; `go(path)` waits for a file of the sandbox."""
    program = f"""
import os, signal, sys, time
from atoll import Sandbox
sandbox = Sandbox.connect({sandbox.id!r})
def go(path):
    while not sandbox.files.exists(path): time.sleep(0.01)
{body.format(**values)}
"""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process):
    out, err = process.communicate(timeout=60)
    assert err == ""
    return out


def sleeper(seconds, path=None):
    mark = f"open({path!r}, 'a').write('x')\n" if path else ""
    return f"import subprocess\np = subprocess.Popen(['sleep', '{seconds}'])\n{mark}p.wait()"


def runs(sandbox, word):
    return any(word in each.command for each in sandbox.processes())


def test_cells_of_two_processes_run_one_after_the_other(sandbox):
    context, log = fresh(), fresh()
    body = """
for turn in range(15):
    sandbox.run_code("f = open({log!r}, 'a'); f.write('<'); f.flush(); f.write('>'); f.close()", context={context!r})
"""
    clients = [client(sandbox, body, context=context, log=log) for _ in range(3)]
    for _ in range(15):
        sandbox.run_code(f"f = open({log!r}, 'a'); f.write('<'); f.flush(); f.write('>'); f.close()", context=context)
    assert [said(each) for each in clients] == ["", "", ""]
    assert sandbox.files.read(log) == "<>" * 60


def test_the_time_of_a_queued_cell_begins_when_it_begins(sandbox, eventually):
    context, begun, go, ready = (fresh() for _ in range(4))
    sandbox.run_code("0", context=context)
    waiter = client(
        sandbox,
        """
sandbox.files.write({ready!r}, "")
go({begun!r})
done = sandbox.run_code("'ran'", context={context!r}, timeout=0.4)
print(done.text, done.timed_out, done.success)
""",
        context=context, begun=begun, ready=ready,
    )  # fmt: skip
    eventually(lambda: sandbox.files.exists(ready))
    code = f"import os, time\nopen({begun!r}, 'w')\nwhile not os.path.exists({go!r}): time.sleep(0.01)"
    holder = threading.Thread(target=lambda: sandbox.run_code(code, context=context, timeout=60))
    holder.start()
    eventually(lambda: sandbox.files.exists(begun))
    time.sleep(1.5)
    assert waiter.poll() is None
    sandbox.files.write(go, "")
    assert said(waiter) == "'ran' False True\n"
    holder.join(30)


def test_a_queued_cell_that_takes_too_long_times_out_by_its_own_time(sandbox, eventually):
    context, begun, ready = fresh(), fresh(), fresh()
    sandbox.run_code("kept = 1", context=context)
    waiter = client(
        sandbox,
        """
sandbox.files.write({ready!r}, "")
go({begun!r})
done = sandbox.run_code("while True: pass", context={context!r}, timeout=0.5)
print(done.timed_out, done.state_lost)
""",
        context=context, begun=begun, ready=ready,
    )  # fmt: skip
    eventually(lambda: sandbox.files.exists(ready))
    sandbox.run_code(f"import time\nopen({begun!r}, 'w').close()\ntime.sleep(1.2)", context=context)
    assert said(waiter) == "True False\n"
    assert sandbox.run_code("kept", context=context).text == "1"


def test_a_client_that_is_killed_has_its_cell_stopped(sandbox, eventually):
    context, path = fresh(), fresh()
    sandbox.run_code("kept = 1", context=context)
    body = "sandbox.run_code({code!r}, context={context!r}, timeout=None)"
    caller = client(sandbox, body, context=context, code=sleeper("1051.5", path))
    eventually(lambda: sandbox.files.exists(path))
    caller.kill()
    caller.communicate()
    eventually(lambda: not runs(sandbox, "1051.5"))
    assert sandbox.run_code("kept", context=context, timeout=30).text == "1"
    assert sandbox.files.read(path) == "x"


def test_a_queued_request_of_a_dead_client_never_runs(sandbox, eventually):
    context, begun, sent, ran, go, ready = (fresh() for _ in range(6))
    sandbox.run_code("0", context=context)
    other = client(
        sandbox,
        """
sandbox.files.write({ready!r}, "")
go({begun!r})
sandbox.files.write({sent!r}, "")
sandbox.run_code("open({ran!r}, 'w')", context={context!r}, timeout=None)
""",
        context=context, begun=begun, ready=ready, sent=sent, ran=ran,
    )  # fmt: skip
    eventually(lambda: sandbox.files.exists(ready))
    code = f"import os, time\nopen({begun!r}, 'w')\nwhile not os.path.exists({go!r}): time.sleep(0.01)\n'over'"
    outcome = []
    holder = threading.Thread(target=lambda: outcome.append(sandbox.run_code(code, context=context, timeout=60).text))
    holder.start()
    eventually(lambda: sandbox.files.exists(sent))
    time.sleep(0.3)
    other.kill()
    other.communicate()
    sandbox.files.write(go, "")
    holder.join(60)
    assert outcome == ["'over'"]
    assert sandbox.run_code("2", context=context).text == "2"
    assert not sandbox.files.exists(ran)


def test_ctrl_c_stops_the_cell_and_the_sandbox_goes_on(sandbox, eventually):
    context, path = fresh(), fresh()
    caller = client(
        sandbox,
        """
try:
    sandbox.run_code({code!r}, context={context!r}, timeout=None)
except KeyboardInterrupt:
    print("interrupted", sandbox.run_code("6 * 7", context={context!r}).text)
""",
        context=context, code=sleeper("1052.5", path),
    )  # fmt: skip
    eventually(lambda: sandbox.files.exists(path))
    caller.send_signal(signal.SIGINT)
    assert said(caller) == "interrupted 42\n"
    eventually(lambda: not runs(sandbox, "1052.5"))


def test_both_sides_of_a_fork_go_on(sandbox):
    context = fresh()
    body = """
context = {context!r}
sandbox.run_code("total = 0", context=context)
sandbox.run_code("total += 1", context=context)
child = os.fork()
for turn in range(20):
    done = sandbox.run_code("total += 1\\nprint('said')\\n'ok'", context=context)
    assert (done.text, done.stdout, done.error) == ("'ok'", "said\\n", None), done
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(sandbox.run_code("total", context=context).text)
"""
    assert said(client(sandbox, body, context=context)) == "41\n"


def test_threads_of_one_client_take_turns(sandbox):
    context = fresh()
    sandbox.run_code("seen = []", context=context)
    outcome = []

    def work(number):
        code = "seen.append({}); {}"
        outcome.extend(
            sandbox.run_code(code.format(number, number * 100 + turn), context=context).text for turn in range(10)
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcome) == sorted(str(number * 100 + turn) for number in range(4) for turn in range(10))
    assert sandbox.run_code("len(seen)", context=context).text == "40"


@pytest.mark.parametrize("leave", ["break", "close", "with", "del", "error"])
def test_an_iterator_that_is_left_early_stops_the_cell(sandbox, eventually, leave):
    context = fresh()
    word = f"1053.{os.getpid()}"
    pieces = sandbox.stream_code("print('begun')\n" + sleeper(word), context=context, timeout=None)
    if leave == "with":
        with pieces:
            assert next(pieces).text == "begun\n"
            eventually(lambda: runs(sandbox, word))
    else:
        assert next(pieces).text == "begun\n"
        eventually(lambda: runs(sandbox, word))
        if leave == "close":
            pieces.close()
            assert list(pieces) == []
        elif leave == "error":
            with pytest.raises(ValueError, match="mine"):
                raise_in_a_loop(pieces)
        del pieces
    gc.collect()
    eventually(lambda: not runs(sandbox, word))
    done = sandbox.run_code("1", context=context, timeout=30)
    assert (done.text, done.state_lost) == ("1", False)


def raise_in_a_loop(pieces):
    with pieces:
        raise ValueError("mine")


def test_a_listener_that_raises_stops_the_cell(sandbox, eventually):
    context = fresh()

    def refuse(_text):
        raise LookupError("mine")

    for _turn in range(2):
        with pytest.raises(LookupError, match="mine"):
            sandbox.run_code("print('x')\n" + sleeper("1054.5"), context=context, on_stdout=refuse, timeout=None)
        eventually(lambda: not runs(sandbox, "1054.5"))
    assert sandbox.run_code("1", context=context).text == "1"


def test_the_interpreter_ends_with_a_warm_context_and_says_nothing(sandbox):
    body = "for turn in range(3): sandbox.run_code('1')\npieces = sandbox.stream_code('print(1)\\nwhile True: pass')\n"
    body += "next(pieces)"
    assert said(client(sandbox, body)) == ""


def test_a_sandbox_that_ends_under_a_cell_is_told(make, eventually):
    for warm_up in (False, True):
        sandbox = make()
        if warm_up:
            sandbox.run_code("1")
        outcome = []

        def cell(sandbox=sandbox, outcome=outcome):
            try:
                sandbox.run_code("open('begun', 'w')\nwhile True: pass", timeout=None)
            except AtollError as error:
                outcome.append(type(error).__name__)

        thread = threading.Thread(target=cell)
        thread.start()
        eventually(lambda sandbox=sandbox: sandbox.files.exists("begun"))
        Sandbox.connect(sandbox.id).destroy()
        thread.join(60)
        assert outcome == ["SandboxGone"]


def test_no_descriptor_is_left_when_a_sandbox_object_is_done_with(make):
    sandbox = make()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        other = Sandbox.connect(sandbox.id)
        for context in ("a", "b"):
            for _turn in range(3):
                other.run_code("1", context=context)
        del other
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def gone(sandbox, word):
    with anyio.fail_after(30):
        while any(word in each.command for each in await sandbox.processes()):  # noqa: ASYNC110  # no event tells it
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_a_cancelled_cell_is_stopped_and_its_context_lives(aio_sandbox):
    for _turn in range(2):
        done = None
        with anyio.move_on_after(0.7) as scope:
            done = await aio_sandbox.run_code("kept = 1\n" + sleeper("1055.5"), timeout=None)
        assert scope.cancelled_caught, done
        await gone(aio_sandbox, "1055.5")
        assert (await aio_sandbox.run_code("kept", timeout=30)).text == "1"


@pytest.mark.anyio
async def test_tasks_share_a_context_and_contexts_run_at_once(aio_sandbox):
    texts = []

    async def cell(context, number):
        texts.append((await aio_sandbox.run_code(f"{number}", context=context)).text)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(cell, f"c{number % 3}", number)
    assert sorted(map(int, texts)) == list(range(20))


@pytest.mark.anyio
async def test_an_iterator_may_be_closed_by_another_task(aio_sandbox):
    """Then its context is free again, for whoever comes next."""
    for _turn in range(2):
        pieces = aio_sandbox.stream_code("print('begun')\nwhile True: pass", timeout=None)
        first = []

        async def begin(pieces=pieces, first=first):
            first.append((await anext(pieces)).text)

        async with anyio.create_task_group() as group:
            group.start_soon(begin)
        assert first == ["begun\n"]
        pieces.close()
        with anyio.fail_after(30):
            assert (await aio_sandbox.run_code("1")).text == "1"


@pytest.mark.anyio
async def test_an_iterator_that_is_dropped_frees_its_context(aio_sandbox):
    for _turn in range(2):
        pieces = aio_sandbox.stream_code("print('begun')\nwhile True: pass", timeout=None)
        assert (await anext(pieces)).text == "begun\n"
        del pieces
        gc.collect()
        with anyio.fail_after(30):
            assert (await aio_sandbox.run_code("1")).text == "1"


def test_an_asynchronous_sandbox_may_be_used_from_one_event_loop_after_another(make):
    sandbox = make()
    texts = []

    async def use(existing=None):
        other = existing or await AsyncSandbox.connect(sandbox.id)
        texts.extend([(await other.run_code("1")).text for _ in range(3)])
        return other

    other = anyio.run(use)
    anyio.run(use, other)
    assert texts == ["1"] * 6


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("os.write(1, b'a\\n'); print('b')", "a\nb\n"),
        ("_ = subprocess.run(['echo', 'a']); print('b')", "a\nb\n"),
        ("print('x'); _ = os.system('echo a'); print('b')", "x\na\nb\n"),
        ("_ = subprocess.run(['echo', 'a']); display('shown'); print('b')", "a\nb\n"),
    ],
    ids=["own descriptor", "subprocess", "system", "before a display"],
)
def test_output_of_processes_comes_before_what_is_printed_after_it(make, code, expected):
    sandbox = make()
    sandbox.run_code("import os, subprocess")
    for _ in range(20):
        assert sandbox.run_code(code + "\nNone").stdout == expected


def test_a_callback_cannot_wait_for_its_own_cell(make):
    sandbox = make()
    refusals = []

    def reenter(_text):
        with pytest.raises(Busy, match="another context"):
            sandbox.run_code("1")
        refusals.append(sandbox.run_code("2", context="other").text)

    for _ in range(2):
        assert sandbox.run_code("print('x')", on_stdout=reenter, timeout=20).success
    assert refusals == ["2", "2"]


def test_a_context_that_takes_no_request_is_ended_in_time(make):
    sandbox = make()
    pid = int(sandbox.run_code("import os\nos.getpid()").text)
    sandbox.signal(pid, signal.SIGSTOP)
    started = time.monotonic()
    done = sandbox.run_code("#" * 900_000, timeout=1)
    assert (done.timed_out, done.state_lost) == (True, True)
    assert time.monotonic() - started < 15
    assert sandbox.run_code("'alive'").text == "'alive'"


def test_a_context_without_descriptors_serves_all_its_clients(make):
    sandbox = make()
    sandbox.run_code("import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))")
    sandbox.run_code(
        "x = 41\nfds = []\ntry:\n    while True: fds.append(os.open('/dev/null', 0))\nexcept OSError: pass"
    )
    other = Sandbox.connect(sandbox.id)
    for _ in range(2):
        assert other.run_code("x + 1", timeout=20).text == "42"
        assert sandbox.run_code("x + 1", timeout=20).text == "42"


def test_who_waits_for_others_longer_than_for_an_answer_still_gets_its_turn(sandbox, eventually, monkeypatch):
    """The time within which a guest has to answer begins with the turn, which the guest tells."""
    monkeypatch.setattr(contextqueue, "GRACE", 0.3)
    context, begun, go = fresh(), fresh(), fresh()
    code = f"import os, time\nopen({begun!r}, 'w')\nwhile not os.path.exists({go!r}): time.sleep(0.01)"
    holder = client(sandbox, "sandbox.run_code({code!r}, context={context!r}, timeout=60)", code=code, context=context)
    eventually(lambda: sandbox.files.exists(begun))
    outcome = []
    waiter = threading.Thread(target=lambda: outcome.append(sandbox.run_code("'ran'", context=context, timeout=0.2)))
    waiter.start()
    waiter.join(1.5)
    assert waiter.is_alive(), outcome
    sandbox.files.write(go, "")
    waiter.join(30)
    assert (outcome[0].text, outcome[0].timed_out, said(holder)) == ("'ran'", False, "")


def test_who_waits_for_others_for_too_long_is_told_that_they_are_busy(sandbox, eventually, monkeypatch):
    monkeypatch.setattr(contextqueue, "GRACE", 0.3)
    monkeypatch.setattr(contextqueue, "_PATIENCE", 0.3)
    context, begun = fresh(), fresh()
    code = f"open({begun!r}, 'w')\nwhile True: pass"
    holder = client(sandbox, "sandbox.run_code({code!r}, context={context!r}, timeout=60)", code=code, context=context)
    eventually(lambda: sandbox.files.exists(begun))
    with pytest.raises(Busy, match="did not get to the request"):
        sandbox.run_code("1", context=context, timeout=0.2)
    assert sandbox.interrupt(context)
    assert said(holder) == ""
    assert sandbox.run_code("1", context=context).text == "1"
