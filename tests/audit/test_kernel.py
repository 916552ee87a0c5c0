"""What the kernel denies to the code inside, for sandboxes that root made with `audit=True`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time

import pytest

from atoll import FileDenied, InvalidInput, Sandbox, Unsupported
from atoll.engine import launch
from atoll.engine.denials import bpf, log

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the kernel tells only root")

SHUT = "mkdir -p open shut && echo a > open/f && echo b > shut/f && chmod 000 shut && cd /"

# A program, and what must be heard of it: operation and path.
CALLS = {
    "read": ("open('/workspace/shut/f')", [("read", "shut/f")]),
    "write": ("open('/workspace/shut/f', 'w')", [("write", "shut/f")]),
    "append": ("open('/usr/new', 'a')", [("write", "/usr/new")]),
    "list": ("os.listdir('/workspace/shut')", [("list", "shut")]),
    "info": ("os.stat('/workspace/shut/f')", [("info", "shut/f")]),
    "readlink": ("os.readlink('/workspace/shut/f')", [("info", "shut/f")]),
    "mkdir": ("os.mkdir('/workspace/shut/d')", [("mkdir", "shut/d")]),
    "unlink": ("os.unlink('/workspace/shut/f')", [("remove", "shut/f")]),
    "rmdir": ("os.rmdir('/usr/lib')", [("remove", "/usr/lib")]),
    "rename": ("os.rename('open/f', 'shut/g')", [("move", "open/f"), ("move to", "shut/g")]),
    "link": ("os.link('open/f', 'shut/g')", [("link", "open/f"), ("link to", "shut/g")]),
    "symlink": ("os.symlink('anything', 'shut/g')", [("symlink", "shut/g")]),
    "chmod": ("os.chmod('/usr/lib', 0o777)", [("chmod", "/usr/lib")]),
    "fchmod": ("os.fchmod(os.open('/usr/lib', 0), 0o777)", [("chmod", "/usr/lib")]),
    "chown": ("os.chown('/usr/lib', 0, 0)", [("chown", "/usr/lib")]),
    "utime": ("os.utime('shut/f')", [("utime", "shut/f")]),
    "truncate": ("os.truncate('shut/f', 0)", [("write", "shut/f")]),
    "execute": ("os.execv('open/f', ['f'])", [("execute", "open/f")]),
    "chdir": ("os.chdir('shut')", [("chdir", "shut")]),
    "setxattr": ("os.setxattr('shut/f', 'user.a', b'')", [("setxattr", "shut/f")]),
    "of an open directory": ("os.open('../shut/f', os.O_RDWR, dir_fd=os.open('open', 0))", [("write", "shut/f")]),
    "of another directory": ("os.chdir('/tmp'), open('../workspace/shut/f')", [("read", "shut/f")]),
    "any bytes": ("open(b'shut/\\n\\xff')", [("read", "shut/\n\udcff")]),
    "allowed": ("open('open/f').read(), os.stat('/usr'), os.listdir('open'), open('open/g', 'w')", []),
    "missing": ("open('open/missing')", []),
    "only asked": ("os.access('shut/f', os.R_OK)", []),
}  # fmt: skip


@pytest.fixture
def audited(make):
    """Makes sandboxes to which the kernel is listened."""

    def create(**wishes):
        try:
            return make(audit=True, **wishes)
        except Unsupported as error:
            pytest.skip(str(error))

    return create


def heard(sandbox):
    return [(each.operation, each.path) for each in sandbox.audit(source="kernel")]


@pytest.fixture(scope="module")
def shared_box():
    """One sandbox for all calls."""
    try:
        made = Sandbox.create(audit=True)
    except Unsupported as error:
        pytest.skip(str(error))
    with made:
        made.run(SHUT, check=True)
        yield made


@pytest.mark.parametrize("name", CALLS)
def test_denied_calls_are_heard_and_allowed_ones_are_not(shared_box, name):
    call, expected = CALLS[name]
    before = time.time()
    shared_box.run(["python3", "-S", "-c", f"import os\n{call}"])
    found = [each for each in shared_box.audit(source="kernel", since=before) if each.process.startswith("python3")]
    assert [(each.operation, each.path) for each in found] == expected
    assert all(before <= each.time <= time.time() for each in found)


def test_the_process_is_named_by_its_command_and_its_pid_inside(audited):
    box = audited()
    box.run(SHUT, check=True)
    pid = box.run("sh -c 'echo $$; exec cat shut/f'").stdout.strip()
    assert [each.process for each in box.audit()] == [f"cat ({pid})"]


def test_each_hears_only_of_its_own(audited, make):
    one, other, deaf = audited(), audited(), make()
    for box in (one, other, deaf):
        box.run(SHUT, check=True)
    one.run("cat shut/f")
    deaf.run("cat shut/f")
    assert heard(one) == [("read", "shut/f")]
    assert heard(other) == heard(deaf) == []
    assert one.info.audit == ("files", "gate", "kernel")
    assert deaf.info.audit == Sandbox.connect(deaf.id).info.audit == ("files", "gate")
    assert Sandbox.connect(one.id).info.audit == ("files", "gate", "kernel")


def test_a_refusal_of_the_file_api_is_told_once(audited):
    box = audited()
    box.run(SHUT, check=True)
    with pytest.raises(FileDenied):
        box.files.read("shut/f")
    assert [(each.source, each.path) for each in box.audit()] == [("files", "shut/f")]


def test_cells_are_heard_too(audited):
    box = audited()
    box.run(SHUT, check=True)
    box.run_code("open('/workspace/shut/f')")
    assert heard(box) == [("read", "shut/f")]


def test_rules_that_the_kernel_enforces_are_heard_of(audited, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("x")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("x")
    box = audited(source=tmp_path, permissions="agent-safe")
    box.run("cat src/main.py; echo a > output/fine", check=True)
    assert heard(box) == []
    box.run("echo a > src/main.py; rm -f src/main.py; cat secrets/key")
    assert set(heard(box)) == {("write", "src/main.py"), ("remove", "src/main.py")}, "what is hidden is not there"
    with pytest.raises(FileDenied):
        box.files.write("src/main.py", "y")
    assert ("files", "src/main.py") in [(each.source, each.path) for each in box.audit()]


def test_a_directory_that_lies_too_deep_is_not_told_wrongly(audited):
    box = audited()
    code = "import os\nfor _ in range(40): os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)\nopen('x')"
    box.run(["python3", "-S", "-c", code])
    assert heard(box)[-1] == ("read", "?/x")


def test_a_flood_is_bounded_and_counted(audited):
    box = audited()
    box.run(SHUT, check=True)
    code = "import os\nn = 0\nwhile n < 200000:\n try: os.stat('shut/f')\n except PermissionError: n += 1"
    box.run(["python3", "-S", "-c", code], timeout=300, check=True)
    found = box.audit()
    assert len(found) <= log.MOST
    assert len(found) + found.dropped == 200_000
    where = f"{os.environ['ATOLL_HOME']}/jail/boxes/{box.id}"
    assert sum(os.path.getsize(f"{where}/{name}") for name in os.listdir(where) if name.startswith("denials")) < 9 << 20
    assert box.run("echo fine").stdout == "fine\n"


def test_the_list_outlives_a_stop(audited):
    box = audited()
    box.run(SHUT, check=True)
    box.run("cat shut/f")
    box.stop()
    assert heard(box) == [("read", "shut/f")]
    box.resume()
    assert box.info.audit[-1] == "kernel"
    box.run("cat shut/g")
    assert heard(box) == [("read", "shut/f"), ("read", "shut/g")]


@pytest.fixture
def own_home(monkeypatch):
    """A state directory in which nobody else listens."""
    path = tempfile.mkdtemp(prefix="at-", dir="/tmp")
    monkeypatch.setenv("ATOLL_HOME", path)
    yield path
    launch.shut_down(path)
    shutil.rmtree(path, ignore_errors=True)


def written(home):
    """The numbers of the link and of the map of sandboxes."""
    with open(f"{home}/jail/run/denials-1") as file:
        *_, (link, boxes, _) = json.load(file)
    return link, boxes


def test_keepers_share_one_program_and_leave_nothing(own_home, audited, eventually):
    one, other = audited(), audited()
    link, boxes = written(own_home)
    fd = bpf.map_by_id(boxes)
    try:
        assert set(bpf.keys(fd)) == {each._core._record.handle.data["uid"] for each in (one, other)}
        one.destroy()
        assert bpf.keys(fd) == [other._core._record.handle.data["uid"]]
        os.close(bpf.link_by_id(link))
        os.kill(other._core._record.handle.data["pid"], signal.SIGKILL)
    finally:
        os.close(fd)

    def is_gone():
        try:
            os.close(bpf.link_by_id(link))
        except FileNotFoundError:
            return True
        return False

    eventually(is_gone)
    third = audited()
    third.run(SHUT, check=True)
    third.run("cat shut/f")
    assert heard(third) == [("read", "shut/f")], "a new program takes the place of the one that is gone"
    assert written(own_home)[0] != link


def test_what_a_killed_keeper_left_the_next_one_removes(audited, make, eventually):
    one, other = audited(), audited()
    fd = bpf.map_by_id(written(os.environ["ATOLL_HOME"])[1])
    try:
        data = other._core._record.handle.data
        os.kill(data["pid"], signal.SIGKILL)
        eventually(lambda: not os.path.exists(f"/proc/{data['pid']}"))
        assert data["uid"] in bpf.keys(fd)
        make(audit=True)
        assert data["uid"] not in bpf.keys(fd)
        assert one._core._record.handle.data["uid"] in bpf.keys(fd)
    finally:
        os.close(fd)


def test_a_wall_that_cannot_listen_refuses(make):
    with pytest.raises(Unsupported, match="audit"):
        make("fake", audit=True)
    with pytest.raises(InvalidInput, match="audit is 'yes'; give True or False"):
        make(audit="yes")
