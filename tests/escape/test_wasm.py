"""Hostile Python in WebAssembly: nothing but its own files can be named, and its host survives what it says.

Each denial has a positive control: the same thing done where it is allowed.
"""

from __future__ import annotations

import collections
import ctypes
import glob
import inspect
import json
import mmap
import os
import random
import signal
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from atoll import FileError, Sandbox, Unsupported, WallUnavailable
from atoll.drivers import wasm_confine, wasm_runtime
from atoll.drivers.wasm_memory import Memory
from atoll.drivers.wasm_table import MOST_OPEN, Table
from atoll.drivers.wasm_wasi import Wasi

from .harness import eventually

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("wasm", lifetime=600) as made:
        yield made


@pytest.fixture
def secret(tmp_path):
    """A file of the host that everybody may read."""
    path = tmp_path / "secret"
    path.write_text("of the host")
    return str(path)


def outcome(sandbox, code):
    """What the code gives, or the name of what it raises."""
    done = sandbox.run_code(code, timeout=60)
    return done.text if done.error is None else done.error.name


def reads(sandbox, path):
    return outcome(sandbox, f"open({path!r}).read()")


@pytest.mark.parametrize("way", ["{path}", "../../../../../../..{path}", "/workspace/../../..{path}", "//..{path}"])
def test_a_file_of_the_host_has_no_path(sandbox, secret, way):
    assert reads(sandbox, way.format(path=secret)) in ("FileNotFoundError", "PermissionError")
    sandbox.files.write("own", "mine")
    assert reads(sandbox, "/workspace/own") == "'mine'"


@pytest.mark.parametrize("target", ["{path}", "../../../../../../..{path}", "/proc/self/root{path}"])
def test_a_link_leads_nowhere_outside(sandbox, secret, target):
    link = "link" + os.urandom(4).hex()
    made = outcome(
        sandbox, f"import os; os.symlink({target.format(path=secret)!r}, {link!r}); os.path.islink({link!r})"
    )
    assert made == "True"
    assert reads(sandbox, link) in ("FileNotFoundError", "PermissionError")
    assert outcome(sandbox, f"open({link!r}, 'w').write('changed')") in ("FileNotFoundError", "PermissionError")
    with pytest.raises(FileError):
        sandbox.files.read(link)
    with open(secret, encoding="utf-8") as file:
        assert file.read() == "of the host"


def test_a_link_inside_leads_where_it_says(sandbox):
    sandbox.files.write("/tmp/target", "through a link")
    assert (
        outcome(sandbox, "import os; os.symlink('/tmp/target', 'inside'); open('inside').read()") == "'through a link'"
    )
    assert sandbox.files.read("inside") == "through a link"


@pytest.mark.parametrize("call", ["os.link({path!r}, 'hard')", "os.rename({path!r}, 'moved')", "os.remove({path!r})"])
def test_a_file_of_the_host_is_neither_linked_nor_moved_nor_removed(sandbox, secret, call):
    assert outcome(sandbox, f"import os; {call.format(path=secret)}") == "FileNotFoundError"
    sandbox.files.write("/tmp/own", "")
    assert outcome(sandbox, f"import os; {call.format(path='/tmp/own')}") is None
    assert os.path.exists(secret)


def test_the_library_is_read_only(sandbox):
    archive = outcome(sandbox, "import sys; next(place for place in sys.path if place.endswith('.zip'))").strip("'")
    assert outcome(sandbox, f"open({archive!r}, 'rb').read(2)") == "b'PK'"
    for call in (f"open({archive!r}, 'r+b')", f"os.remove({archive!r})", f"os.truncate({archive!r}, 0)"):
        assert outcome(sandbox, f"import os; {call}") == "OSError"


def test_what_its_makers_left_is_out_of_reach(sandbox):
    for path in ("/opt/atoll", "/opt/cloudpickle"):
        assert outcome(sandbox, f"import os; os.listdir({path!r})") == "FileNotFoundError"
    assert outcome(sandbox, "import os; os.listdir('/workspace') != []") == "True"


def test_removing_a_sandbox_follows_no_link(tmp_path):
    """Nor does anything else that the guest, which is outside, does with its directories."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("stays")
    with Sandbox.create("wasm", lifetime=600) as sandbox:
        code = """
import os, shutil
for place in ("/workspace", "/tmp", "/opt/state", "/state"):
    try:
        shutil.rmtree(place)
    except OSError:
        pass
    try:
        os.symlink({kept!r}, place)
    except OSError:
        pass
x = 1
"""
        assert sandbox.run_code(code.format(kept=str(kept))).success
        assert outcome(sandbox, "import os; os.readlink('/tmp')") == repr(str(kept))
        sandbox.stop()
        sandbox.resume()
        sandbox.contexts.create("fresh", workdir="/")
        assert sandbox.run_code("1 + 1", context="fresh").text == "2"
        with pytest.raises(FileError):
            sandbox.files.write("/tmp/new", "")
    assert [path.name for path in kept.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['true'])",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.kill(1, 9)",
        "import ctypes; ctypes.CDLL(None).getpid()",
        "import threading; threading.Thread(target=print).start()",
        "import socket; socket.socket().connect(('127.0.0.1', 1))",
        "import socket; socket.create_server(('127.0.0.1', 0))",
        "import mmap; mmap.mmap(-1, 4096, prot=7)",
    ],
)
def test_there_are_no_processes_no_sockets_and_no_machine_code(sandbox, code):
    assert not sandbox.run_code(code, timeout=60).success
    assert outcome(sandbox, "1 + 1") == "2"


def test_nothing_of_the_host_is_open_and_nothing_in_its_environment(sandbox, monkeypatch):
    monkeypatch.setenv("ATOLL_TEST_SECRET", "not for you")
    code = """
import os
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
[fd for fd in range(2000) if is_open(fd)]
"""
    numbers = json.loads(outcome(sandbox, code))
    assert set(numbers) <= {*range(10), 100}
    assert {0, 1, 2} <= set(numbers)
    with Sandbox.create("wasm", lifetime=600, env={"GIVEN": "on purpose"}) as own:
        told = outcome(own, "import os; dict(os.environ)")
    assert "not for you" not in told
    assert "on purpose" in told


@pytest.mark.parametrize(
    "message",
    [
        "b''",
        "b'K9'",
        "b'F'",
        "b'F' + bytes((3, 0)) + b'{}'",
        "b'F' + bytes((99, 0))",
        "b'S'",
        "b'?'",
        "b'A' * (2 << 20)",
    ],
)
def test_what_is_said_to_the_host_out_of_turn_harms_the_speaker_only(sandbox, message):
    name = "speaker" + os.urandom(4).hex()
    sandbox.run_code("kept = 1", context="listener")
    code = f"import os\ntry:\n    os.write(100, {message})\nexcept OSError as error:\n    print(type(error))"
    sandbox.run_code(code, context=name, timeout=20)
    assert sandbox.run_code("1 + 1", context=name, timeout=20).text == "2"
    assert sandbox.run_code("kept", context="listener").text == "1"


def test_a_forged_answer_is_the_speakers_own(sandbox):
    name = "forger" + os.urandom(4).hex()
    forged = '{"ok":{"count":1,"error":null,"truncated":false}}'
    done = sandbox.run_code(f"import os\nos.write(100, b'A' + {forged!r}.encode())\nos.read(100, 10)", context=name)
    assert done.text is None
    sandbox.contexts.restart(name)
    assert sandbox.run_code("1 + 1", context=name).text == "2"
    assert outcome(sandbox, "1 + 1") == "2"


def test_an_endless_loop_and_endless_memory_touch_nobody_else(sandbox):
    with Sandbox.create("wasm", lifetime=600, resources={"memory": "160M"}) as other:
        assert other.run_code("while True: pass", timeout=0.5).timed_out
        full = other.run_code("held = []\nwhile True: held.append(bytearray(1 << 20))", timeout=60)
        assert full.error.name in ("MemoryError", "OutOfMemory")
        assert other.run_code("1 + 1", context="fresh").text == "2"
    assert outcome(sandbox, "1 + 1") == "2"


# The second wall, which nothing inside ever meets: a process that closes it and then tries to get out.


def confined(tmp_path, attempt):
    """What an attempt gives in a process behind the wall: True, or the error's name."""
    own, shown = tmp_path / "own", tmp_path / "shown"
    own.mkdir(exist_ok=True)
    shown.mkdir(exist_ok=True)
    (shown / "file").write_text("to be read")
    code = wasm_confine.program(os.uname().machine)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = b"nothing"
        try:
            wasm_confine.confine((str(own),), (str(shown),), code)
            said = repr(attempt(own, shown)).encode()
        except BaseException as error:  # noqa: BLE001 - this is a process of its own
            said = type(error).__name__.encode()
        finally:
            os.write(writer, said)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        told = file.read().decode()
    os.waitpid(pid, 0)
    return told


def allowed_opens(own, shown):
    fd = os.open(own / "new", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"written")
    os.close(fd)
    return os.read(os.open(shown / "file", os.O_RDONLY), 100) == b"to be read"


def test_behind_the_second_wall_the_sandbox_s_own_files_are_there(tmp_path):
    assert confined(tmp_path, allowed_opens) == "True"


ESCAPES = {
    "reads a file of the host": lambda _own, _shown: os.open("/etc/passwd", os.O_RDONLY) > 0,
    "lists the host's root": lambda _own, _shown: os.listdir("/"),
    "writes where it may only read": lambda _own, shown: os.open(shown / "file", os.O_RDWR) > 0,
    "makes a socket": lambda _own, _shown: socket.socket(),
    "starts a program": lambda _own, _shown: os.execv("/bin/true", ["true"]),
    "signals another process": lambda _own, _shown: os.kill(os.getppid(), 0),
    "makes memory to run": lambda _own, _shown: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    "changes its limits": lambda _own, _shown: os.nice(1) and os.setpriority(os.PRIO_PROCESS, 0, -5),
    "takes another identity": lambda _own, _shown: os.setuid(12345),
    "changes its root": lambda own, _shown: os.chroot(own),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_behind_the_second_wall_nobody(tmp_path, name):
    assert confined(tmp_path, ESCAPES[name]) in ("PermissionError", "OSError")


def test_behind_the_second_wall_nobody_traces(tmp_path):
    libc = ctypes.CDLL(None, use_errno=True)
    seize = 0x4206
    assert confined(tmp_path, lambda _own, _shown: libc.ptrace(seize, os.getppid(), 0, 0) == -1) == "True"


def test_without_the_second_wall_each_of_them_does(tmp_path):
    """The positive control: what was refused there is nothing that this machine refuses anyway."""
    for name in ("reads a file of the host", "lists the host's root", "makes memory to run"):
        assert ESCAPES[name](tmp_path, tmp_path)
    with ESCAPES["makes a socket"](tmp_path, tmp_path) as made:
        assert made.fileno() > 0
    os.kill(os.getppid(), signal.SIG_DFL)


@pytest.mark.parametrize("language", ["bash", "restricted", "jupyter:python3"])
def test_what_is_written_for_the_next_life_starts_nothing_outside(tmp_path, language):
    """Its guest is outside of the wall, and reads after a stop which contexts there were: from files of the code."""
    with Sandbox.create("wasm", lifetime=600) as sandbox:
        assert sandbox.run_code("kept = 1").error is None
        sandbox.stop()
        sandbox.resume()
        assert outcome(sandbox, "kept") == "1"
        entry = {"name": "main", "language": language, "cwd": "/", "env": {}, "file": ""}
        done = sandbox.run_code(
            "import json, os\n"
            f"json.dump([{entry!r}], open('/opt/state/contexts.json', 'w'))\n"
            "os.mkdir('/opt/state/contexts.json.new')  # so that no other list is written\n"
        )
        assert done.error is None
        sandbox.stop()
        sandbox.resume()
        with pytest.raises(Unsupported, match="Python only"):
            sandbox.run_code(f"echo > {tmp_path}/touched")
        assert not os.listdir(tmp_path)


# What memory that hostile code has written to its own liking makes an instance say to the host.


# Of arguments, in bits; wasmtime gives no more.
_LONG = ["offset", "size", "accessed", "modified", "cookie", "rights", "_inherited", "_offset", "_length", "_precision"]
_SIZES = dict.fromkeys(_LONG, 64)


@pytest.fixture
def told(tmp_path):
    """The functions of an instance with a directory of its own, and its memory; 64 KB with a fence behind."""
    root, fence = tmp_path / "root", 4096
    (root / "in" / "ner").mkdir(parents=True)
    (root / "file").write_text("content")
    (tmp_path / "secret").write_text("of the host")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("../secret")
    table = Table()
    table.begin_with("/", writable=True)
    table.begin_with("/library", writable=False)
    for inside, path in (("/", root), ("/library", tmp_path)):
        table.give(inside, os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    wasi = Wasi(table, ["python"])
    block = (ctypes.c_ubyte * ((1 << 16) + fence))(*([0] * (1 << 16) + [0xA5] * fence))
    wasi.memory = Memory(lambda: (ctypes.addressof(block), 1 << 16))
    wasi.wake, ready = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    wasi.is_interrupted = lambda: True
    yield wasi, block, root
    for fd in (wasi.wake, ready, *{each.fd for each in table._opened.values() if each.fd > 2}):
        os.close(fd)


def test_forged_addresses_lengths_numbers_and_names_lead_nowhere(told, tmp_path):
    wasi, block, _root = told
    chance = random.Random(7)
    calls = {
        name: [_SIZES.get(each, 32) for each in inspect.signature(function).parameters]
        for name, function in inspect.getmembers(wasi, inspect.ismethod)
        # All but the one that may fill the disk of who runs this.
        if name.startswith(("fd_", "path_", "clock_", "args_", "environ_", "poll_", "random_"))
        and name != "fd_allocate"
    }
    names = [b"file", b"link", b"up", b"in/../../secret", b"/../secret", b"in/ner/../../..", b"dev/null", b"new", b"",
             b"\0", b"in", b"x" * 5000, os.fsencode(tmp_path / "secret"), b"..", b"."]  # fmt: skip
    odd = [
        0,
        1,
        2,
        3,
        4,
        5,
        100,
        255,
        4096,
        65535,
        65536,
        65537,
        (1 << 31) - 1,
        (1 << 32) - 1,
        (1 << 63),
        (1 << 64) - 1,
    ]
    worked = collections.Counter()
    for turn in range(6_000):
        name = chance.choice(names)
        ctypes.memmove(ctypes.addressof(block) + 1024, name + bytes(8), len(name) + 8)
        if turn % 7 == 0:  # a list of addresses and lengths
            struct.pack_into("<4I", block, 64, *(chance.choice(odd) & 0xFFFFFFFF for _ in range(4)))
        which = chance.choice(list(calls))
        words = [chance.choice([*odd, 1024, len(name), 64]) & ((1 << size) - 1) for size in calls[which]]
        if which.startswith("path_") and chance.random() < 0.7:  # for most to come further than the first check
            words[0] = chance.choice([3, 4])
            for place in range(1, len(words) - 1):
                if chance.random() < 0.5:
                    words[place : place + 2] = [1024, len(name)]
        try:
            getattr(wasi, which)(*words)
            worked[which] += 1
        except (OSError, ValueError, OverflowError):
            continue
    assert bytes(block[1 << 16 :]) == b"\xa5" * 4096
    assert (tmp_path / "secret").read_text() == "of the host"
    assert sorted(os.listdir(tmp_path)) == ["root", "secret"]
    assert b"of the host" not in bytes(block)
    assert len(worked) > 20, "the control: many of them do something"
    assert len(wasi.table._opened) <= MOST_OPEN


def test_a_name_that_changes_while_it_is_looked_up_leads_nowhere_outside(sandbox, secret):
    """Two contexts at once: one exchanges a directory for a link and moves it, the other opens files below it."""
    moving = f"""
import os, time
os.makedirs("/workspace/race/a/b", exist_ok=True)
end = time.monotonic() + 3
moves = 0
while time.monotonic() < end:
    for call in (lambda: os.rename("/workspace/race/a/b", "/workspace/race/b"),
                 lambda: os.symlink({"/".join([".."] * 12)!r}, "/workspace/race/a/b"),
                 lambda: os.unlink("/workspace/race/a/b"),
                 lambda: os.rename("/workspace/race/b", "/workspace/race/a/b")):
        try:
            call()
            moves += 1
        except OSError:
            pass
moves
"""
    opening = f"""
import os, time
read, tries = set(), 0
held = os.open("/workspace/race/a", os.O_RDONLY) if os.path.isdir("/workspace/race/a") else 3
end = time.monotonic() + 2.5
while time.monotonic() < end:
    for way in ("/workspace/race/a/b" + {secret!r}, "/workspace/race/a/b/../../../../../../../.." + {secret!r}):
        tries += 1
        try:
            read.add(open(way).read())
        except OSError:
            pass
    try:
        os.close(os.open("b/../../../../../../../.." + {secret!r}, os.O_RDONLY, dir_fd=held))
        read.add("below a directory")
    except (OSError, NotImplementedError):
        pass
read, tries > 100
"""
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(sandbox.run_code, moving, context="mover", timeout=60)
        eventually(lambda: sandbox.files.exists("/workspace/race/a"), "it is being moved")
        found = sandbox.run_code(opening, context="opener", timeout=60)
        assert int(moved.result().text) > 100
    assert found.text == "(set(), True)"


@pytest.mark.parametrize(
    "code",
    [
        "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
        "9 ** (10 ** 8)",
        "list(map(str, iter(int, 1)))",
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "import time; time.sleep(1e6)",
        "import os\nwhile True: os.listdir('/usr/local/lib')",
    ],
)
def test_what_heeds_no_interrupt_is_ended_in_time(sandbox, code):
    name = "spinner" + os.urandom(4).hex()
    sandbox.run_code("kept = 1", context="beside")
    began = time.monotonic()
    done = sandbox.run_code(code, context=name, timeout=0.5)
    assert not done.success
    assert time.monotonic() - began < 15
    assert sandbox.run_code("1 + 1", context=name, timeout=20).text == "2"
    assert sandbox.run_code("kept", context="beside").text == "1"


def test_code_that_is_run_as_it_is_found_is_taken_from_nobody_else(tmp_path, monkeypatch):
    cache = tmp_path / "atoll" / "wasm"
    cache.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.chmod(0o700)
    assert wasm_runtime._cache() == str(cache)
    for mode in (0o720, 0o702, 0o777):
        cache.chmod(mode)
        with pytest.raises(WallUnavailable, match="others can write"):
            wasm_runtime._cache()
    cache.chmod(0o700)
    tmp_path.chmod(0o777)
    with pytest.raises(WallUnavailable, match=f"exchange it: others can write to {tmp_path}"):
        wasm_runtime._cache()
    tmp_path.chmod(0o1777)
    assert wasm_runtime._cache() == str(cache)
    monkeypatch.undo()
    wasm_runtime.find.cache_clear()
    found = wasm_runtime.find()
    for path in (found.home, found.module, found.words, found.lib, *glob.glob(f"{found.lib}/*")):
        assert not os.stat(path).st_mode & 0o022, path
        assert os.stat(path).st_uid == os.geteuid()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("is_there", [True, False])
def test_code_below_another_user_s_directory_is_not_run(tmp_path, monkeypatch, is_there):
    """As with `sudo`, where it leaves HOME as it is: that user could put a directory of its own there."""
    base = tmp_path / "cache"
    base.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    wasm_runtime.find.cache_clear()
    try:
        if is_there:
            (base / "atoll" / "wasm").mkdir(mode=0o700, parents=True)
        runtime = wasm_runtime.find()
        os.chown(base, 12345, -1)
        with pytest.raises(WallUnavailable, match=f"exchange it: {base} belongs to user 12345"):
            wasm_runtime.open_lock(runtime)
        wasm_runtime.find.cache_clear()
        with pytest.raises(WallUnavailable, match=f"{base} belongs to user 12345"):
            wasm_runtime.find()
    finally:
        wasm_runtime.find.cache_clear()


def test_a_cache_by_a_relative_path_is_refused(monkeypatch):
    """Where somebody stands may be a repository that was cloned, and the machine code with it."""
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    with pytest.raises(WallUnavailable, match="'cache', which is relative"):
        wasm_runtime._cache()
