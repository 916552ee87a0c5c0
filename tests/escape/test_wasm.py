"""Hostile Python in WebAssembly: nothing but its own files can be named, and its host survives what it says.

Each denial has a positive control: the same thing done where it is allowed.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket

import pytest

from atoll import FileError, Sandbox, Unsupported
from atoll.drivers import wasm_confine

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
