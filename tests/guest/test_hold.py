"""Held processes outlive their client and can be attached to again."""

import os
import signal
import sys

from tests.guest.rawclient import eventually

from atoll.wire.frames import DATA, END

RING = 1 << 20
ECHO = "while read line; do echo got $line; done; echo bye; exit 6"


def hold(guest, *argv, **arguments):
    """Start a held process and let its client go."""
    client = guest.connect()
    pid = client.event(client.open("exec", argv=list(argv), hold=True, **arguments))["pid"]
    client.close()
    return pid


def alone(guest, client, script):
    """A held process that does nothing before its client has certainly gone."""
    pid = hold(guest, "/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; " + script)
    client.run("touch", "go")
    return pid


def ended(client, pid):
    return all(row["pid"] != pid for row in client.do("processes").ok["processes"])


def test_it_survives_its_client_and_answers_the_next(guest, client):
    pid = hold(guest, "/bin/sh", "-c", ECHO, stdin=True)
    channel = client.open("attach", pid=pid)
    assert client.event(channel) == {"pid": pid}
    client.data(channel, b"one\n")
    assert client.receive().payload == b"got one\n"
    client.eof(channel)
    rest = client.finish(channel)
    assert rest.stdout == b"bye\n"
    assert rest.ok["exit_code"] == 6


def test_what_nobody_has_read_is_replayed_in_its_order(guest, client):
    pid = alone(guest, client, "echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c; touch said; sleep 60")
    eventually(lambda: os.path.exists(os.path.join(guest.workspace, "said")))
    channel = client.open("attach", pid=pid)
    client.event(channel)
    said = [client.receive() for _ in range(3)]
    assert [(frame.stream, frame.payload) for frame in said] == [(1, b"a\n"), (2, b"b\n"), (1, b"c\n")]
    client.call(channel, signal=signal.SIGKILL, tree=True)
    assert client.finish(channel).ok["exit_code"] == 137


def test_of_too_much_unread_output_the_end_is_kept(guest, client):
    pid = alone(guest, client, f"{sys.executable} -c \"import sys; sys.stdout.write('x' * 3_000_000 + 'THE END')\"")
    eventually(lambda: ended(client, pid))
    result = client.do("attach", pid=pid)
    assert RING // 2 < len(result.stdout) <= RING
    assert result.stdout.endswith(b"THE END")
    assert result.ok["truncated"] is True
    assert result.ok["exit_code"] == 0


def test_its_end_can_be_asked_for_later_and_again(guest, client):
    pid = alone(guest, client, "echo last words; exit 7")
    eventually(lambda: ended(client, pid))
    first = client.do("attach", pid=pid)
    assert (first.stdout, first.ok["exit_code"]) == (b"last words\n", 7)
    again = client.do("attach", pid=pid)
    assert (again.stdout, again.ok["exit_code"]) == (b"", 7)


def test_the_ends_of_the_last_64_are_kept(guest, client):
    pids = []
    for _ in range(66):
        channel = client.open("exec", argv=["true"], hold=True)
        pids.append(client.event(channel)["pid"])
        client.finish(channel)
    assert client.do("attach", pid=pids[0]).error["code"] == "invalid_input"
    assert client.do("attach", pid=pids[2]).ok["exit_code"] == 0


def test_close_detaches(guest, client):
    channel = client.open("exec", argv=["sleep", "60"], hold=True)
    pid = client.event(channel)["pid"]
    client.cancel(channel)
    assert client.finish(channel).ok == {}
    again = client.open("attach", pid=pid)
    assert client.event(again) == {"pid": pid}
    client.call(again, signal=signal.SIGTERM)
    assert client.finish(again).ok["exit_code"] == 143


def test_the_newest_client_is_the_one_that_is_attached(guest, client):
    channel = client.open("exec", argv=["/bin/sh", "-c", ECHO], hold=True, stdin=True)
    pid = client.event(channel)["pid"]
    other = guest.connect()
    second = other.open("attach", pid=pid)
    assert client.finish(channel).error["code"] == "busy"
    client.data(channel, b"too late\n")
    client.close()
    assert other.event(second) == {"pid": pid}
    other.data(second, b"hello\n")
    assert other.receive().payload == b"got hello\n"
    other.close()


def test_only_held_processes_can_be_attached_to(client):
    channel = client.open("exec", argv=["sleep", "60"])
    pid = client.event(channel)["pid"]
    assert client.do("attach", pid=pid).error["code"] == "invalid_input"
    assert client.do("attach", pid=999_999_999).error["code"] == "invalid_input"
    assert client.do("attach").error["code"] == "invalid_input"


def test_a_client_that_is_attached_but_slow_loses_nothing(guest, client):
    """It gets what was kept and what comes, at its own pace."""
    script = "import sys, time; sys.stdout.write('a' * 500_000); sys.stdout.flush(); time.sleep(0.3)"
    pid = alone(guest, client, f"{sys.executable} -c \"{script}; sys.stdout.write('b' * 5_000_000)\"")
    channel = client.open("attach", pid=pid)
    assert client.event(channel) == {"pid": pid}
    received, credit = bytearray(), 0
    while True:
        frame = client.receive()
        if frame.kind == END:
            break
        credit += len(frame.payload)
        received += frame.payload if frame.kind == DATA else b""
        if credit > 700_000:
            client.give(channel, credit)
            credit = 0
    assert bytes(received) == b"a" * 500_000 + b"b" * 5_000_000
    assert frame.json()["ok"]["truncated"] is False


def test_input_that_one_client_left_behind_gives_no_credit_to_the_next(guest, client):
    first = guest.connect()
    channel = first.open(
        "exec", argv=["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; wc -c"], hold=True, stdin=True
    )
    pid = first.event(channel)["pid"]
    first.data(channel, bytes(900_000))
    first.close()
    second = client.open("attach", pid=pid)
    client.event(second)
    with open(os.path.join(guest.workspace, "go"), "w"):
        pass
    client.eof(second)
    assert int(client.finish(second).stdout) == 900_000
