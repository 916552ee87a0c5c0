"""Sandboxes with packages: forked from a nursery that has run code of packages, and walled like any other.

The probes of other modules run here once more, on such sandboxes. Then packages that are hostile when imported.
"""

import json
import os
import pathlib
import re
import time

import pytest
from tests import thorough
from tests.escape import residue
from tests.escape.harness import USER, Maker, Refused, eventually

# What is imported here is run here, with the fixtures of this module.
from tests.escape.test_calls import *  # noqa: F403
from tests.escape.test_neighbours import *  # noqa: F403
from tests.escape.test_privileges import *  # noqa: F403

from atoll.testing import wheels

pytestmark = pytest.mark.timeout(180)

ATTEMPTS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
FOUND = {}
def attempt(name, function, *arguments):
    ctypes.set_errno(0)
    try:
        got = function(*arguments)
        FOUND[name] = os.strerror(ctypes.get_errno()) if got == -1 else repr(got)
    except OSError as error:
        FOUND[name] = os.strerror(error.errno or 0)
def call(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
def clone(flags):
    pid = call(56, flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid
def write(path):
    with open(path, "w") as file:
        file.write("x")
def connect(address):
    with socket.socket() as sock:
        sock.settimeout(2)
        sock.connect(address)
attempt("shadow", open, "/etc/shadow")
attempt("home", os.listdir, "HOME_OF_THE_MAKER")
attempt("processes", lambda: sorted(int(n) for n in os.listdir("/proc") if n.isdigit()))
attempt("packages", write, "/packages/x")
attempt("tmp", write, "/tmp/x")
attempt("usr", write, "/usr/x")
attempt("network", connect, ("1.1.1.1", 80))
attempt("mount", libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
attempt("unshare user", libc.unshare, 0x10000000)
attempt("unshare mount", libc.unshare, 0x20000)
attempt("clone user", clone, 0x10000000)
attempt("clone mount", clone, 0x20000)
attempt("clone3", call, 435, None, 0)
attempt("setns", call, 308, 0, 0)
attempt("ptrace", call, 101, 16, 1, 0, 0)
attempt("chroot", os.chroot, "/tmp")
attempt("setuid", os.setuid, 0)
attempt("setuid of a sandbox", os.setuid, (1 << 20) + 5)
attempt("hostname", socket.sethostname, "x")
attempt("environment", lambda: sorted(os.environ))
attempt("descriptors", lambda: len(os.listdir("/proc/self/fd")))
wanted = ("Cap", "NoNew", "Secc")
attempt("status", lambda: [line.split() for line in open("/proc/self/status") if line.startswith(wanted)])
attempt("ids", lambda: (os.getuid(), os.getgid(), os.getpid(), os.getgroups()))
def links():
    names = os.listdir("/proc/self/fd")
    return [os.readlink(f"/proc/self/fd/{n}") for n in names if os.path.lexists(f"/proc/self/fd/{n}")]
attempt("links", links)
"""

# Packages that change the trusted code in their own memory, and what the log says of it: as root, and as a user.
# Where it is None the attempt is refused by the kernel, or gains nothing: the sandboxes are looked at.
FORKS = """
import os
from atoll.engine import first
real = first.live_nursed
def live(*args):
    try:
        if os.fork() == 0:
            import time
            time.sleep(1000)
    except OSError:
        pass
    real(*args)
first.live_nursed = live
"""
STAYS = """
import os, time
if os.fork() == 0:
    time.sleep(1000)
    os._exit(0)
"""
# In the nursery, with the order for a sandbox, when it was looked at already.
WITH_THE_ORDER = """
import mmap, os, time
from atoll.engine import nursery
real, kept = nursery.kernel.clone, []
def clone(flags):
    BEFORE
    pid = real(flags)
    if pid:
        AFTER
    return pid
nursery.kernel.clone = clone
"""
FORKS_LATER = """
        for _ in range(20):
            try:
                if os.fork() == 0:
                    time.sleep(1000)
                break
            except OSError:
                time.sleep(0.01)
"""
RAISES = """
from atoll.engine import kernel, seccomp
real, raised = kernel.drop_capabilities, []
def drop():
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("1000")
    with open("/proc/sys/user/max_user_namespaces") as file:
        raised.append(file.read().strip())
    real()
kernel.drop_capabilities = drop
install = seccomp.install
seccomp.install = lambda code: install(bytes.fromhex("060000000000ff7f"))
"""
PATCHED_CLOSING = "from atoll.engine import kernel; kernel.close_from = lambda *args: None; "
TAMPERED = {
    "keeps-capabilities": (
        "from atoll.engine import kernel; kernel.drop_capabilities = lambda: None",
        "CapEff",
        "CapEff",
    ),
    "has-no-filter": (
        "from atoll.engine import seccomp; seccomp.install = lambda code: None",
        "Seccomp_filters",
        "Seccomp_filters",
    ),
    "keeps-its-id": ("import os; os.setresuid = os.setresgid = lambda *ids: None", "Uid, Gid", None),
    "only-forks": (
        "import os; from atoll.engine import nursery; nursery.kernel.clone = lambda flags: os.fork()",
        "have left",
        "have left",
    ),
    "forks-before-its-wall": (FORKS, None, "has made 1 others"),
    "leaves-a-process": (STAYS, "have left 1 processes", "have left 1 processes"),
    "leaves-a-process-later": (
        WITH_THE_ORDER.replace("BEFORE", "").replace("AFTER", FORKS_LATER.strip()),
        None,
        "have left",
    ),
    "shares-memory": ("import mmap; M = mmap.mmap(-1, 4096)", "processes share", "processes share"),
    "shares-memory-later": (
        WITH_THE_ORDER.replace("BEFORE", "kept.append(mmap.mmap(-1, 4096))").replace("AFTER", "pass"),
        "processes share",
        "processes share",
    ),
    "keeps-a-channel": ("import os; os.close = lambda fd: None", "keeps socket", "keeps socket"),
    "keeps-proc-open": (PATCHED_CLOSING + "import os; D = os.open('/proc', 0)", "keeps /proc open", "keeps /proc open"),
    "stands-in-proc": ("import os; os.chdir('/proc/self')", "hold on to /proc", "hold on to /proc"),
}  # fmt: skip


def give(maker, *names):
    for name in names:
        wheels.make(maker.wheels, name, {f"{name.replace('-', '_')}.py": TAMPERED[name][0]})


class PackagesMaker(Maker):
    """Every sandbox that it makes has a package, imported ahead."""

    packages = ("probe",)

    def __init__(self, name, uid):
        super().__init__(name, uid)
        self.wheels = pathlib.Path(self.home, "wheels")
        self.wheels.mkdir(mode=0o755)
        config = pathlib.Path(self.home, ".config", "pip")
        config.mkdir(parents=True)
        (config / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {self.wheels}\n")
        for path in (self.wheels, config, config.parent):
            os.chown(path, uid, uid)
        wheels.make(self.wheels, "probe", {"probe.py": "A = 1\n"})
        text = ATTEMPTS.replace("HOME_OF_THE_MAKER", self.home)
        wheels.make(self.wheels, "hostile", {"hostile.py": text})
        give(self, *TAMPERED)
        self.create().destroy()

    def create(self, **wishes):
        """Wait until it comes from the nursery: what can be seen of that is that the package is imported."""
        packages = wishes.setdefault("packages", list(self.packages))
        if wishes.get("network", "none") != "none" or "workdir" in wishes or "image" in wishes:
            return super().create(**wishes)
        module = packages[0].replace("-", "_")
        deadline = time.monotonic() + 60
        while True:
            box = super().create(**wishes)
            if box.code(f"import sys; {module!r} in sys.modules")["results"][0]["data"]["text/plain"] == "True":
                return box
            box.destroy()
            assert time.monotonic() < deadline, "it is never imported ahead"
            time.sleep(0.05)

    def close(self):
        """Nurseries and parked sandboxes go by themselves, a little after their zygote."""
        self.call("end")
        places = (f"{self.state}/jail/run", f"{self.state}/jail/boxes")
        eventually(
            lambda: not [name for place in places for name in os.listdir(place) if name.startswith("sb-")],
            "all are gone",
        )
        super().close()


@pytest.fixture(scope="module")
def root_maker():
    if os.getuid() != 0:
        pytest.skip("needs uid 0, to make sandboxes as root does")
    maker = PackagesMaker("root", 0)
    yield maker
    maker.close()


@pytest.fixture(scope="module")
def user_maker():
    maker = PackagesMaker("user", USER if os.getuid() == 0 else os.getuid())
    yield maker
    maker.close()


@pytest.fixture(scope="module", params=["root", "user"])
def maker(request):
    return request.getfixturevalue(f"{request.param}_maker")


def test_a_package_that_is_hostile_when_it_is_imported_gets_nowhere(maker):
    box = maker.create(packages=["hostile"])
    done = box.code("import hostile, json; print(json.dumps(hostile.FOUND))")
    found = json.loads(done["stdout"])
    refused = {name: found[name] for name in found if name not in ("processes", "environment", "descriptors", "status",
               "ids", "links")}  # fmt: skip
    allowed = {name: said for name, said in refused.items() if said in ("0", "None") or said.startswith(("<", "["))}
    assert allowed == {}, refused
    assert found["processes"] in ("[1]", "[1, 2]"), "it sees itself and nobody else"
    assert found["ids"] == "(1000, 1000, 1, [])"
    capabilities = [line for line in eval(found["status"]) if line[0].startswith("Cap")]
    assert {int(value, 16) for _, value in capabilities} == {0}
    assert ["NoNewPrivs:", "1"] in eval(found["status"])
    assert ["Seccomp:", "2"] in eval(found["status"])
    assert "PATH" in found["environment"]
    assert "ATOLL" not in found["environment"]
    assert {link.partition(":")[0] for link in eval(found["links"])} <= {"/null", "/dev/null", "socket"}, (
        "nothing of the host's"
    )
    # The controls: the same attempts are no mistakes of ours.
    assert box.run("echo x > /tmp/x && cat /tmp/x")["stdout"] == "x\n"
    box.destroy()


def tamperings():
    """Each of them as root and as a user; unless all is wanted, one as root and the next as a user."""
    for number, name in enumerate(TAMPERED):
        for maker in thorough.turns(("root", "user"), number):
            yield name, maker


@pytest.mark.parametrize(("name", "maker"), list(tamperings()), indirect=["maker"])
def test_a_nursery_that_was_tampered_with_gives_no_weaker_sandbox(maker, name):
    """Whoever comes from it is looked at from outside: it is walled as ever, or there is no sandbox of it."""
    reason = TAMPERED[name][1 if maker.name == "root" else 2]
    module = name.replace("-", "_")
    log = pathlib.Path(maker.state, "jail", "run", "zygote.log")
    start = log.stat().st_size
    deadline = time.monotonic() + 60
    refused, nursed = set(), False
    while True:
        try:
            box = Maker.create(maker, packages=[name])
        except Refused as refusal:
            refused.add(refusal.type)
        else:
            _check_walls(box)
            nursed = _text(box, f"import sys; {module!r} in sys.modules") == "True"
            box.destroy()
        said = log.read_text()[start:]
        # Of births at once each finds what it finds; one of them is the first to end the nursery.
        told = "not imported ahead" in said and re.search(reason or "", said)
        if told or (nursed and not reason):
            break
        assert time.monotonic() < deadline, said
        time.sleep(0.05)
    assert refused <= {"CreateFailed"}
    # Now there is none, and sandboxes are made without.
    box = Maker.create(maker, packages=[name])
    _check_walls(box)
    if told:
        assert _text(box, f"import sys; {module!r} in sys.modules") == "False"
    box.destroy()
    assert maker.create(packages=["probe"]).destroy() is None, "others are not concerned"


def test_a_sandbox_whose_filter_is_weaker_makes_no_namespaces(maker):
    """It has raised the limit while it could; that is set when it cannot any more."""
    wheels.make(maker.wheels, "raises-limits", {"raises_limits.py": RAISES})
    box = maker.create(packages=["raises-limits"])
    assert _text(box, "import raises_limits; raises_limits.raised") == "['1000']", "the control: it was raised"
    assert box.run("cat /proc/sys/user/max_user_namespaces")["stdout"] == "0\n"
    assert box.run("echo 5 > /proc/sys/user/max_user_namespaces")["exit_code"] != 0
    clone = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); pid = libc.syscall(56, {} | 17, 0, 0, 0, 0)\n"
    clone += "if pid == 0: os._exit(0)\nos.strerror(ctypes.get_errno()) if pid < 0 else 'made'"
    assert _text(box, clone.format(0)) == "'made'", "the control: the call is right"
    assert _text(box, clone.format(0x7C020000)) == "'No space left on device'"
    _check_walls(box)
    box.destroy()


def test_a_nursery_sees_none_of_its_sandboxes(maker):
    box = maker.create()
    nursery = _nursery_of(box)
    assert not os.path.exists(f"/proc/{nursery}/root/proc/self/status")
    assert os.path.exists(f"/proc/{_first_of(box)}/root/proc/1"), "the control: a sandbox has one"
    with open(f"/proc/{nursery}/mounts") as file:
        assert not [line for line in file if line.split()[2] == "proc"]
    if maker.name == "root":
        with open(f"/proc/{nursery}/cgroup") as file:
            path = next(
                line.split(":", 2)[2].strip() for line in file if ":pids:" in line or line.startswith("0::/atoll")
            )
        places = [f"/sys/fs/cgroup/pids{path}", f"/sys/fs/cgroup{path}"]
        place = next(place for place in places if os.path.exists(f"{place}/pids.max"))
        assert int(pathlib.Path(place, "pids.max").read_text()) <= 2, "no more than itself and who is being born"
    box.destroy()


def _text(box, code):
    return box.code(code)["results"][0]["data"]["text/plain"]


def _check_walls(box):
    """Of each process that it sees, and of each that is below its first one."""
    first = _first_of(box)
    pids = [pid for pid, _ in residue.descendants(first)]
    assert first in pids
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
        except (FileNotFoundError, ProcessLookupError):
            continue
        for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
            assert int(lines[name], 16) == 0, (pid, name)
        assert (lines["Seccomp"].strip(), lines["NoNewPrivs"].strip()) == ("2", "1")
        with open(f"/proc/{pid}/cgroup") as mine, open(f"/proc/{first}/cgroup") as its:
            assert mine.read() == its.read(), "all in one group"
    inside = box.run("cat /proc/[0-9]*/status | grep ^Cap | sort -u")["stdout"]
    assert {int(line.split()[1], 16) for line in inside.splitlines()} == {0}
    assert set(box.run("grep ^Uid: /proc/1/status")["stdout"].split()[1:]) == {"1000"}


@pytest.mark.parametrize("packages", [[], ["probe"]], ids=["plain", "nursed"])
def test_the_first_process_has_nothing_of_the_zygote_s(root_maker, packages):
    """Whoever takes the guest over finds no channel of the engine's in it."""
    box = root_maker.create(packages=packages) if packages else Maker.create(root_maker, packages=[])
    first = _first_of(box)
    links = {int(fd): os.readlink(f"/proc/{first}/fd/{fd}") for fd in os.listdir(f"/proc/{first}/fd")}
    assert all(links[fd].endswith("/null") for fd in (0, 1, 2))
    peers = {link for link in links.values() if link.startswith(("socket:", "pipe:"))}
    zygote = root_maker.zygote()
    for pid in residue.siblings(zygote):
        if pid != box.handle["pid"]:
            theirs = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            assert not peers & theirs
    box.destroy()


def test_the_death_of_the_nursery_ends_its_sandboxes_and_a_new_one_comes(root_maker):
    box = root_maker.create()
    other = Maker.create(root_maker, packages=[])
    nursery = _nursery_of(box)
    os.kill(nursery, 9)
    eventually(lambda: _gone(root_maker, box), "its sandboxes are gone")
    assert other.run("echo lives")["stdout"] == "lives\n"
    other.destroy()
    root_maker.create().destroy()


def test_the_death_of_the_zygote_and_of_a_keeper_leave_nothing(root_maker):
    box = root_maker.create()
    first = residue.descendants(_first_of(box))
    assert first
    os.kill(box.handle["pid"], 9)
    eventually(lambda: not [each for each in first if residue.is_alive(each)], "what was behind the wall is gone")
    eventually(lambda: _gone(root_maker, box), "and told to be")


def test_the_nursery_ends_when_nobody_needs_it(root_maker):
    box = root_maker.create()
    nursery = _nursery_of(box)
    root_maker.call("shut_down")
    assert residue.start_time(nursery) is not None, "a sandbox lives in it"
    assert box.run("echo lives")["stdout"] == "lives\n"
    box.destroy()
    eventually(lambda: residue.start_time(nursery) is None, "the nursery is gone with its last sandbox")


def _gone(maker, box):
    return box.id not in {info["id"] for info in maker.list() if info["status"] != "gone"}


def _first_of(box):
    """The process that is process 1 of the sandbox's own namespace."""
    namespace = box.run("readlink /proc/self/ns/pid")["stdout"].strip()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status") as file:
                    lines = dict(line.split(":", 1) for line in file)
                if lines["NSpid"].split()[-1] == "1" and os.readlink(f"/proc/{name}/ns/pid") == namespace:
                    return int(name)
            except OSError:
                continue
    raise AssertionError("the sandbox has no first process")


def _nursery_of(box):
    with open(f"/proc/{_first_of(box)}/status") as file:
        return int(next(line for line in file if line.startswith("PPid:")).split()[1])
