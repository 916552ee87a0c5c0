"""Whatever a guest says, every operation ends with a typed error or a proper value: no hang, no other exception."""

from __future__ import annotations

import json
import os
import threading
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.sandbox import hostile
from tests.sandbox.hostile import (
    DIRECTORY,
    EXIT,
    FIRST,
    HELLO_FRAME,
    INFO,
    OPERATIONS,
    data,
    end,
    event,
    ok,
    sandbox_that,
    says,
)

from atoll import AtollError, Busy, FileError, ProtocolError, SandboxGone, Unresponsive
from atoll.client import files, landing, links, running, transfer
from atoll.errors import TimedOut
from atoll.io import drive
from atoll.wire import frames
from atoll.wire.frames import CLOSE, CREDIT, DATA, END, EOF, EVENT, HEADER, HELLO, OPEN, WINDOW
from atoll.wire.tree import Entry, Writer


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """What the client waits for, it waits for briefly."""
    monkeypatch.setattr(links, "_SETTLE", 0.0)
    monkeypatch.setitem(links.Links.open.__kwdefaults__, "quiet", 0.3)
    monkeypatch.setitem(links.Links.ask.__kwdefaults__, "quiet", 0.3)
    for module in (files, transfer):
        monkeypatch.setattr(module, "PATIENT", 0.3)
    monkeypatch.setattr(running, "GRACE", 0.1)


@pytest.fixture
def scripted(tmp_path):
    """Makes sandboxes with a scripted guest, which must have ended when the test has."""
    made = []

    def make(speak):
        made.append(sandbox_that(speak, tmp_path))
        return made[-1]

    yield make
    for sandbox, driver in made:
        sandbox._core._links.drop()
        driver.join()


def attempt(operation, script, tmp_path, **how):
    """The value or the typed error with which an operation ends; anything else fails the test."""
    sandbox, driver = sandbox_that(says(script, **how), tmp_path)
    target = tmp_path / f"local-{len(os.listdir(tmp_path))}"
    target.mkdir()
    try:
        return operation(sandbox, target)
    except AtollError as error:
        return error
    finally:
        sandbox._core._links.drop()
        driver.join()
        assert [name for name in os.listdir(target) if name.startswith(".")] == []


def attempt_named(name, script, tmp_path, **how):
    return attempt(OPERATIONS[name][0], script, tmp_path, first=FIRST.get(name, b""), **how)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_honest_answer_gives_a_value(name, tmp_path):
    """The control for all below: the scripts are right, so what fails there fails for what was changed."""
    outcome = attempt_named(name, HELLO_FRAME + b"".join(OPERATIONS[name][1]), tmp_path)
    assert not isinstance(outcome, AtollError), outcome


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_end_anywhere_in_the_answer_is_an_error(name, tmp_path):
    whole = HELLO_FRAME + b"".join(OPERATIONS[name][1])
    least = len(HELLO_FRAME)
    for cut in sorted({least, least + 3, (least + len(whole)) // 2, len(whole) - 1}):
        outcome = attempt_named(name, whole[:cut], tmp_path)
        assert isinstance(outcome, ProtocolError), (cut, outcome)


# Such a command may be silent for ever.
WITHOUT_TIMEOUT = {"run", "run with input", "run with callbacks", "stream", "run_code", "a cell that fails"}


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in WITHOUT_TIMEOUT])
def test_silence_is_noticed(name, tmp_path):
    script = HELLO_FRAME + b"".join(OPERATIONS[name][1][:-1])
    outcome = attempt_named(name, script, tmp_path, then_silence=True)
    assert isinstance(outcome, Unresponsive | TimedOut), outcome


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["file", "directory", "/workspace/x", "\udcff", "\ud800", "created", "../../etc/passwd"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "ok", "error", "pid", "exit_code", "timed_out", "truncated", "duration", "result", "main", "count", "state_lost",
    "info", "entries", "matches", "events", "ready", "size", "processes", "interrupted", "code", "message", "errno",
    "path", "version", "text/plain", "name", "type", "mode", "modified", "target", "line", "text", "traceback", "value",
]  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)
ANSWERS = OBJECTS | OBJECTS.map(lambda value: {"ok": value}) | OBJECTS.map(lambda value: {"error": value})
PAYLOADS = (
    st.binary(max_size=100)
    | (ANSWERS | JSON).map(lambda value: json.dumps(value).encode())
    | st.integers(0, 2**32 - 1).map(lambda count: count.to_bytes(4, "little"))
    | st.sampled_from([b"[" * 100_000, b"1" * 10_000, b'{"ok":' * 1000, b"", b"\xff" * 65536])
)
FRAMES = st.builds(
    lambda channel, kind, stream, payload: HEADER.pack(len(payload), channel, kind, stream) + payload,
    st.sampled_from([1, 1, 1, 1, 0, 2, 3, 2**32 - 1]),
    st.sampled_from([DATA, EVENT, END, END, CREDIT, EOF, HELLO, OPEN, CLOSE, 0, 10, 255]),
    st.sampled_from([1, 1, 2, 0, 3, 255]),
    PAYLOADS,
)
HEADERS = st.builds(HEADER.pack, st.integers(0, 2**32 - 1), st.integers(0, 2), st.integers(0, 12), st.integers(0, 3))
SCRIPTS = (
    st.binary(max_size=300)
    | st.lists(FRAMES, max_size=6).map(lambda script: HELLO_FRAME + b"".join(script))
    | st.lists(FRAMES, max_size=4).map(b"".join)
    | st.tuples(st.just(HELLO_FRAME), HEADERS, st.binary(max_size=50)).map(b"".join)
)
FUZZ = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.parametrize("name", OPERATIONS)
@FUZZ
@given(script=SCRIPTS)
def test_nonsense_ends_in_a_typed_error_or_a_value(name, script, tmp_path):
    attempt_named(name, script, tmp_path)


@pytest.mark.parametrize("name", OPERATIONS)
@FUZZ
@given(choice=st.data())
def test_an_answer_with_one_thing_wrong_ends_in_a_typed_error_or_a_value(name, choice, tmp_path):
    mangled = list(OPERATIONS[name][1])
    place = choice.draw(st.integers(0, len(mangled) - 1))
    decoded = frames.Decoder().feed(mangled[place])[0]
    if decoded.kind == DATA:
        mangled[place] = choice.draw(FRAMES)
    else:
        value = json.loads(decoded.payload)
        spoil(value, choice)
        mangled[place] = frames.encode(decoded.channel, decoded.kind, json.dumps(value).encode())
    attempt_named(name, HELLO_FRAME + b"".join(mangled), tmp_path)


def spoil(value, choice):
    """Change one thing, somewhere."""
    while isinstance(value, dict) and value:
        key = choice.draw(st.sampled_from(sorted(value)))
        if (
            isinstance(value[key], list)
            and value[key]
            and isinstance(value[key][0], dict)
            and choice.draw(st.booleans())
        ):
            value = value[key][0]
        elif isinstance(value[key], dict) and value[key] and choice.draw(st.booleans()):
            value = value[key]
        elif choice.draw(st.booleans()):
            value[key] = choice.draw(JSON)
            return
        else:
            del value[key]
            return


def tree(*entries):
    writer = Writer()
    stream = b"".join(writer.entry(entry) + writer.data(b"x" * entry.size) for entry in entries)
    return stream + writer.end()


ENTRIES = st.lists(
    st.builds(
        lambda path, kind, size, mode, target: Entry(
            path, kind, mode, 1.0, size if kind == "file" else 0, target if kind == "symlink" else None
        ),
        st.sampled_from(["a", "a/b", "a/b/c", "d", "d/x", "link", "link/x", ".atoll-x", "a/../b"]),
        st.sampled_from(["file", "directory", "symlink"]),
        st.integers(0, 10),
        st.integers(0, 0o777),
        st.sampled_from(["a", "/etc", "..", "../outside", "/etc/passwd", "d"]),
    ).filter(lambda entry: ".." not in entry.path),
    max_size=8,
)


@FUZZ
@given(entries=ENTRIES, symlinks=st.booleans(), overwrite=st.booleans())
def test_a_hostile_tree_never_leaves_its_directory(entries, symlinks, overwrite, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "x").write_text("safe")

    def download(sandbox, target):
        inside = target / "inside"
        if overwrite:
            inside.mkdir()
            (inside / "d").symlink_to(outside)
            (inside / "link").symlink_to(outside / "x")
        (target / "outside").symlink_to(outside)
        return sandbox.files.download("x", inside, symlinks=symlinks, overwrite=overwrite)

    script = data(tree(*entries), channel=2) + end({"ok": {"entries": 1}}, channel=2)
    attempt(download, script, tmp_path, first=ok(info=DIRECTORY))
    assert os.listdir(outside) == ["x"]
    assert (outside / "x").read_text() == "safe"


@pytest.mark.parametrize(
    "header",
    [
        {"path": "../x"}, {"path": "/x"}, {"path": "a//b"}, {"path": "a/./b"}, {"path": ""}, {"path": "a\0b"},
        {"path": "x" * 300}, {"type": "device"}, {"mode": 0o4755}, {"size": -1}, {"size": 2**63},
        {"mtime": float("nan")}, {"target": "/etc"}, {"extra": 1},
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_is_refused(header, tmp_path):
    entry = json.dumps({**Entry("x", "file", 0o644, 1.0, 0)._asdict(), **header}).encode()
    stream = len(entry).to_bytes(4, "little") + entry
    script = data(stream, channel=2) + end({"ok": {"entries": 1}}, channel=2)
    outcome = attempt_named("download a tree", script, tmp_path)
    assert isinstance(outcome, ProtocolError)


def test_links_that_are_left_out_cannot_fill_the_memory(tmp_path, monkeypatch):
    """A million of them, each with a path of 4,000 bytes, took 4 GB here and nothing of what `max_size` says."""
    monkeypatch.setattr(landing, "_MOST_SKIPPED", 1000)
    many = [Entry(f"{number:0100}", "symlink", 0o777, 1.0, 0, "x") for number in range(11)]
    for number in (10, 11):
        script = data(tree(*many[:number]), channel=2) + end({"ok": {"skipped": 0}}, channel=2)
        outcome = attempt_named("download a tree", script, tmp_path)
        if number == 10:
            assert len(outcome.skipped) == 10, "the control"
        else:
            assert isinstance(outcome, FileError), outcome


def flood(frame, count):
    def speak(sock, listener):
        sock.sendall(HELLO_FRAME)
        for _ in range(count):
            sock.sendall(frame)

    return speak


def test_a_guest_that_overdraws_its_window_is_cut_off(scripted):
    """Nothing is consumed, so no credit is given; a guest that goes on is no honest one."""
    sandbox, _ = scripted(flood(data(b"x" * 65536), 10_000))
    operation = drive(sandbox._core._links.open({"op": "read"}))
    with pytest.raises(ProtocolError, match="more than it was allowed"):
        drive(operation._guarded(operation._until(lambda: False, None)))
    assert operation.closed


@pytest.mark.parametrize(
    "frame",
    [frames.encode(1, EVENT), data(b""), event({}), data(b"x"), data(b"x") + data(b"y", 2)],
    ids=["empty events", "empty data", "objects without anything", "single bytes", "single bytes of both streams"],
)
def test_tiny_frames_do_not_pile_up_while_input_waits_for_credit(frame, scripted):
    """The guest gives no credit, so what it says is kept and not looked at."""
    sandbox, _ = scripted(flood(frame * 1000, 100_000))
    operation = drive(sandbox._core._links.open({"op": "exec"}, quiet=60.0))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            drive(operation.send(bytes(WINDOW + 1)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert operation.closed
    assert peak < 40 << 20, peak


def test_memory_stays_bounded_by_what_was_asked_for(scripted):
    """An object for each of these tiny pieces would cost twenty times what they hold."""
    most = 200_000
    sandbox, _ = scripted(flood(data(b"xy") * 5000, 10_000))
    tracemalloc.start()
    try:
        with pytest.raises(AtollError, match="more than 200000 bytes"):
            sandbox.files.read_bytes("x", max_size=most)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One read takes at most 256 KiB, which is 22,000 of these.
    assert peak < 6 << 20, peak


@pytest.mark.parametrize(
    "frame",
    [
        event({"entries": []}),
        frames.encode(1, EOF, b"", 1),
        frames.encode_credit(1, 1),
        frames.encode_credit(1, 0),
        data(b"", 1),
        event({"pid": 7}),
    ],
    ids=["empty events", "ends of streams", "credit", "no credit", "empty data", "pids"],
)
@pytest.mark.parametrize("name", ["list", "search", "info", "run", "read", "write"])
def test_an_endless_row_of_frames_that_say_nothing_is_cut_off(name, frame, tmp_path, scripted):
    sandbox, _ = scripted(flood(frame * 1000, 100_000))
    with pytest.raises(AtollError):
        OPERATIONS[name][0](sandbox, tmp_path)


def test_a_guest_that_takes_nothing_is_noticed(scripted, monkeypatch):
    """Its window says that it reads, and it does not."""
    monkeypatch.setattr("atoll.io.SEND_TIMEOUT", 0.2)
    done = threading.Event()
    monkeypatch.setattr(hostile.Listener, "run", lambda self: done.wait(60))
    sandbox, _ = scripted(lambda sock, listener: done.wait(60))
    try:
        with pytest.raises(Unresponsive):
            sandbox.run("x", stdin=b"x" * 900_000)
        with pytest.raises(Unresponsive):
            sandbox.files.write("x", iter([b"x" * 900_000]))
    finally:
        done.set()


@pytest.mark.parametrize(
    ("verdict", "error"),
    [("gone", SandboxGone), ("paused", Busy), ("stopped", Busy), ("running", ProtocolError)],
)
def test_the_end_of_a_stream_means_what_the_driver_says(verdict, error, scripted):
    sandbox, driver = scripted(says(HELLO_FRAME))
    driver.verdict = verdict
    with pytest.raises(error):
        sandbox.run("x")


def test_another_version_is_told_with_what_to_do(scripted):
    script = frames.encode_json(0, HELLO, {"version": 2}) + ok(**EXIT)
    sandbox, _ = scripted(says(script))
    with pytest.raises(ProtocolError, match=r"version 2 .* make it anew"):
        sandbox.run("x")


def test_the_reason_of_a_guest_that_hangs_up_is_told(scripted):
    reason = frames.encode_json(0, END, {"error": {"code": "unsupported", "message": "I do not like you."}})
    sandbox, _ = scripted(says(HELLO_FRAME + reason))
    with pytest.raises(ProtocolError, match="I do not like you"):
        sandbox.run("x")


def test_frames_for_an_operation_that_has_ended_are_ignored(scripted):
    late = data(b"late") + frames.encode_credit(1, 5)
    answer = end({"ok": {"info": DIRECTORY}}, channel=2)
    sandbox, _ = scripted(says(late + answer, first=ok(info=INFO)))
    assert sandbox.files.info("x").type == "file"
    assert sandbox.files.info("x").type == "directory"


def test_an_idle_link_that_says_something_is_given_up(scripted, eventually):
    idle = threading.Event()

    def speak(sock, listener):
        sock.sendall(HELLO_FRAME + ok(info=INFO))
        idle.wait(20)
        sock.sendall(data(b"late"))

    sandbox, _ = scripted(speak)
    assert sandbox.files.info("x").type == "file"
    (link,) = sandbox._core._links._idle
    assert not link.stale()
    idle.set()
    eventually(link.stale)
    assert sandbox.files.info("x").type == "file"
    assert link.closed


def test_a_link_that_was_lied_on_is_never_used_again(scripted):
    script = HELLO_FRAME + end({"ok": 5})
    sandbox, _ = scripted(says(script, then_silence=True))
    with pytest.raises(ProtocolError):
        sandbox.files.mkdir("x")
    assert sandbox._core._links._idle == []


def test_an_error_of_the_guest_can_only_be_one_of_a_closed_table(scripted):
    for code in ("SystemExit", "builtins.KeyboardInterrupt", "os.system", None, 5, ["x"]):
        script = HELLO_FRAME + end({"error": {"code": code, "message": "\ud800 evil", "path": 5}})
        sandbox, _ = scripted(says(script))
        with pytest.raises(AtollError) as caught:
            sandbox.files.mkdir("x")
        str(caught.value).encode("utf-8")


def test_the_window_of_the_client_is_kept_to(scripted):
    """The client sends no more than its credit, however much it has."""
    listeners = []

    def speak(sock, listener):
        sock.sendall(HELLO_FRAME)
        listeners.append(listener)

    sandbox, _ = scripted(speak)
    with pytest.raises(Unresponsive):
        sandbox.files.write("x", iter([b"x" * 700_000] * 5))
    assert [listener.input for listener in listeners] == [WINDOW]
