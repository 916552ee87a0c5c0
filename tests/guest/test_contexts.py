"""Contexts: apart from each other, one cell at a time, and their ends: interrupts, timeouts, crashes."""

import os
import signal
import time

import pytest
from tests.guest.rawclient import eventually
from tests.guest.support import alive, failure, text

SLEEP = "import time; time.sleep(60)"
STUBBORN = "import time\nwhile True:\n    try: time.sleep(60)\n    except KeyboardInterrupt: pass"


def test_contexts_share_nothing(client):
    client.code("x = 1")
    assert failure(client.code("x", context="other"))["name"] == "NameError"
    assert text(client.code("import os; os.getpid()")) != text(client.code("import os; os.getpid()", context="other"))


def test_a_slow_context_does_not_hold_up_another(client):
    slow = client.open("code", code=SLEEP)
    assert text(client.code("1", context="other")) == "1"
    client.cancel(slow)
    client.finish(slow)


def test_cells_of_one_context_run_one_after_the_other_in_order(guest, client):
    other = guest.connect()
    first = client.open("code", code="import time; order = ['first']; time.sleep(0.3)")
    client.run("true")
    second = other.open("code", code="order.append('second')")
    other.run("true")
    third = client.open("code", code="order.append('third'); order")
    client.finish(first), other.finish(second)
    assert text(client.finish(third)) == "['first', 'second', 'third']"
    other.close()


def test_a_waiting_cell_can_be_cancelled_and_never_runs(client):
    first = client.open("code", code="import time; ran = []; time.sleep(0.3)")
    second = client.open("code", code="ran.append('second')")
    client.cancel(second)
    assert client.finish(second).error["code"] == "cancelled"
    client.finish(first)
    assert text(client.code("ran")) == "[]"


def test_a_timeout_interrupts_the_cell_and_keeps_the_state(client):
    client.code("kept = 1")
    ended = client.code("print('before'); " + SLEEP, timeout=0.3)
    assert ended.ok["timed_out"] is True
    assert ended.ok["state_lost"] is False
    assert failure(ended)["name"] == "KeyboardInterrupt"
    assert "guest" not in failure(ended)["traceback"]
    assert ended.stdout == b"before\n"
    assert text(client.code("kept")) == "1"


def test_a_timeout_that_comes_at_once_still_keeps_the_state(client):
    client.code("kept = 1")
    ended = client.code(SLEEP, timeout=0)
    assert ended.ok["timed_out"] is True
    assert ended.ok["state_lost"] is False


def test_a_stubborn_cell_is_killed_and_the_loss_is_told(client):
    client.code("kept = 1")
    start = time.monotonic()
    ended = client.code(STUBBORN, timeout=0.2)
    assert ended.ok["timed_out"] is True
    assert ended.ok["state_lost"] is True
    assert failure(ended)["name"] == "ContextDied"
    assert "SIGKILL" in failure(ended)["value"]
    assert 1 < time.monotonic() - start < 20
    fresh = client.code("kept")
    assert failure(fresh)["name"] == "NameError"
    assert fresh.ok["state_lost"] is False
    assert fresh.ok["count"] == 1


def test_a_timeout_reaches_an_endless_awaiting_cell(client):
    client.code("import asyncio; kept = 1")
    ended = client.code("await asyncio.sleep(60)", timeout=0.3)
    assert ended.ok["timed_out"] is True
    assert ended.ok["state_lost"] is False
    assert text(client.code("await asyncio.sleep(0, kept)")) == "1"


def test_a_timeout_kills_what_the_cell_has_started_but_not_what_earlier_ones_have(guest, client):
    earlier = int(text(client.code("import subprocess, time\np = subprocess.Popen(['sleep', '60'])\np.pid")))
    # The kernel tells when a process began in hundredths of a second; in doubt it is the later cell's.
    time.sleep(0.05)
    code = "subprocess.Popen('setsid sh -c \"echo $$ > tmp; mv tmp pid; exec sleep 60\"', shell=True); time.sleep(60)"
    ended = client.code(code, timeout=1)
    assert ended.ok["timed_out"] is True
    with open(os.path.join(guest.workspace, "pid")) as file:
        assert not alive(int(file.read()))
    assert alive(earlier)
    assert text(client.code("p.poll()")) is None


def test_closing_the_channel_interrupts_the_cell(client):
    client.code("kept = 1")
    channel = client.open("code", code="import subprocess; print('up'); subprocess.run(['sleep', '60'])")
    client.receive()
    client.cancel(channel)
    assert failure(client.finish(channel))["name"] == "KeyboardInterrupt"
    assert text(client.code("kept")) == "1"
    rows = client.do("processes").ok["processes"]
    assert [row["command"] for row in rows if "sleep" in row["command"]] == []


def test_a_client_that_disconnects_frees_the_context(guest, client):
    other = guest.connect()
    channel = other.open("code", code="print('up'); " + SLEEP)
    assert other.receive().channel == channel
    other.close()
    assert text(client.code("1")) == "1"


def test_interrupt(client):
    assert client.do("interrupt").ok == {"interrupted": False}
    assert client.do("interrupt", context="unheard of").ok == {"interrupted": False}
    channel = client.open("code", code="print('up'); " + SLEEP)
    client.receive()
    assert client.do("interrupt", context="main").ok == {"interrupted": True}
    ended = client.finish(channel)
    assert failure(ended)["name"] == "KeyboardInterrupt"
    assert ended.ok["timed_out"] is False
    assert client.do("interrupt").ok == {"interrupted": False}


def test_a_late_interrupt_does_not_hurt_the_next_cell(client):
    pid = int(text(client.code("import os; os.getpid()")))
    for _ in range(5):
        os.kill(pid, signal.SIGINT)
        assert text(client.code("1")) == "1"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; print('last words', flush=True); os._exit(3)", "exited with 3"),
        ("import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("import ctypes; print('last words', flush=True); ctypes.string_at(0)", "SIGSEGV"),
        ("import os; print('last words', flush=True); os.abort()", "SIGABRT"),
    ],
)
def test_a_context_that_dies_is_told_with_its_last_words(client, code, said):
    client.code("kept = 1")
    ended = client.code(code)
    assert failure(ended)["name"] == "ContextDied"
    assert said in failure(ended)["value"]
    assert ended.ok["state_lost"] is True
    assert ended.ok["count"] == 2
    assert b"last words\n" in ended.stdout
    assert failure(client.code("kept"))["name"] == "NameError"


def test_a_death_between_cells_is_told_with_the_next(client):
    pid = int(text(client.code("import os; os.getpid()")))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    ended = client.code("'fresh'")
    assert text(ended) == "'fresh'"
    assert ended.ok["state_lost"] is True
    assert client.code("1").ok["state_lost"] is False


def test_a_context_dies_with_cells_waiting_and_the_next_runs_in_a_fresh_one(client):
    first = client.open("code", code="import os, time; time.sleep(0.2); os._exit(1)")
    second = client.open("code", code="'alive'")
    assert failure(client.finish(first))["name"] == "ContextDied"
    assert text(client.finish(second)) == "'alive'"


def test_a_slow_client_does_not_lose_the_state_at_a_timeout(client):
    """The cell waits for a client that does not read; its time is up; it must still be able to end."""
    client.code("kept = 1")
    channel = client.open("code", code="while True: print('x' * 1000)", timeout=0.5)
    time.sleep(2)
    ended = client.finish(channel)
    assert ended.ok["timed_out"] is True
    assert ended.ok["state_lost"] is False
    assert text(client.code("kept")) == "1"


def test_a_context_that_talks_nonsense_to_its_guest_dies(client):
    code = "import os, socket\nfor f in os.listdir('/proc/self/fd'):\n"
    code += "    try: s = socket.socket(fileno=os.dup(int(f)))\n    except OSError: continue\n    s.send(b'nonsense')\n"
    ended = client.code(code + SLEEP)
    assert failure(ended)["name"] == "ContextDied"
    assert text(client.code("1")) == "1"


def test_a_context_that_forges_its_end_is_believed_but_hurts_nobody(client):
    code = "import os, socket, json, struct\nfor f in os.listdir('/proc/self/fd'):\n"
    code += "    try: s = socket.socket(fileno=os.dup(int(f)))\n    except OSError: continue\n"
    code += "    for answer in (b'{', b'[]', json.dumps({'error': {'name': 'x' * 60000}, 'truncated': 5}).encode()):\n"
    code += "        s.send(struct.pack('<IIBB', len(answer), 1, 8, 0) + answer)\n"
    ended = client.code(code, context="its first request has the number 1")
    assert failure(ended)["name"] == "ContextBroken"
    assert ended.ok["truncated"] is False
    assert text(client.code("1", context="other")) == "1"


def test_the_number_of_contexts_is_limited(client):
    for number in range(64):
        channel = client.open("code", code=SLEEP if number else "1", context=f"c{number}")
        client.cancel(channel)
        client.finish(channel)
    assert client.code("1", context="one more").error["code"] == "busy"


def test_contexts_are_listed_among_the_processes(client):
    pid = int(text(client.code("import os; os.getpid()")))
    row = next(row for row in client.do("processes").ok["processes"] if row["pid"] == pid)
    assert row["started_by_api"] is True
