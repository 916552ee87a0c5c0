"""No capability, no gain by set-uid, no new namespace, no way to undo a mount."""

import os
import shutil
import signal
import struct
import subprocess

import pytest
from tests.escape.harness import USER
from tests.escape.prelude import ctypes, failed, libc, syscall

_CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_NAMESPACES = {
    "mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000, "time": 0x00000080,
}  # fmt: skip


def status():
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":", 1) for line in file)
    return {name: value.split() for name, value in lines.items()}


def become_root():
    os.setuid(0)


def take_all_capabilities():
    header, data = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0xFFFFFFFF] * 6)
    syscall((126, 91), header, data)


def raise_ambient():
    if libc.prctl(47, 2, 0, 0, 0) != 0:
        raise failed("prctl")


def drop_no_new_privs():
    if libc.prctl(38, 0, 0, 0, 0) != 0:
        raise failed("prctl")


def drop_filter():
    if libc.prctl(22, 0, 0, 0, 0) != 0:
        raise failed("prctl")


def unshare(flags):
    if libc.unshare(ctypes.c_int(flags)) != 0:
        raise failed("unshare")


def clone(flags):
    pid = syscall((56, 220), flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def clone3(flags):
    arguments = struct.pack("11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    pid = syscall(435, arguments, len(arguments))
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def enter_namespace(kind):
    fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    if libc.setns(fd, 0) != 0:
        raise failed("setns")


def mount_tmpfs(first):
    if first:
        assert libc.unshare(0x10020000) == 0
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
        raise failed("mount")


def remount_writable(first, path):
    if first:
        assert libc.unshare(0x10020000) == 0
        assert libc.mount(path.encode(), path.encode(), None, 0x1000, None) == 0
    if libc.mount(None, path.encode(), None, 0x1020, None) != 0:
        raise failed("remount")


def unmount(first, path):
    if first:
        assert libc.unshare(0x10020000) == 0
        assert libc.mount(b"none", path.encode(), b"tmpfs", 0, None) == 0
    if libc.umount2(path.encode(), 2) != 0:
        raise failed("umount")


def clone_tree(first):
    if first:
        assert libc.unshare(0x10020000) == 0
    syscall(428, -100, b"/usr", 0x8001)


def new_file_system(first):
    if first:
        assert libc.unshare(0x10020000) == 0
    syscall(430, b"tmpfs", 0)


def change_root(first):
    if first:
        assert libc.unshare(0x10020000) == 0
    os.chroot("/usr")


def fork_plainly():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("place", ["try_cell", "try_command"])
def test_every_capability_set_is_empty_and_the_locks_are_on(maker, place):
    found = getattr(maker.box, place)(status)
    assert {name: int(found[name][0], 16) for name in _CAPABILITY_SETS} == dict.fromkeys(_CAPABILITY_SETS, 0)
    assert (found["NoNewPrivs"], found["Seccomp"]) == (["1"], ["2"])
    assert set(found["Uid"] + found["Gid"]) == {"1000"}
    assert found["Groups"] == []
    outside = maker.try_outside(status)
    assert int(outside["CapBnd"][0], 16) != 0
    assert (outside["NoNewPrivs"], outside["Seccomp"]) == (["0"], ["0"])


def test_no_lost_privilege_comes_back(maker):
    assert maker.box.try_cell(become_root) in ("EPERM", "EINVAL")
    assert maker.box.try_cell(take_all_capabilities) == "EPERM"
    assert maker.box.try_cell(raise_ambient) == "EPERM"
    assert maker.box.try_cell(drop_no_new_privs) == "EINVAL"
    assert maker.box.try_cell(drop_filter) == "EINVAL"


def test_root_outside_can_do_what_is_refused_inside(root_maker):
    assert root_maker.try_outside(become_root) == "ok"


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to make a set-uid program of root's")
def test_a_set_uid_program_gives_nothing(maker):
    tree = f"{maker.top}/set-uid"
    os.makedirs(tree, exist_ok=True)
    program = shutil.copy("/usr/bin/id", f"{tree}/id")
    os.chown(program, 0, 0)
    os.chmod(program, 0o4755)
    control = subprocess.run(
        [program, "-u"], user=USER, group=USER, extra_groups=[], capture_output=True, text=True, check=True
    )
    assert control.stdout.strip() == "0"
    with maker.create(source=tree, preset="full-access") as box:
        assert box.run(["/workspace/id", "-u"])["stdout"].strip() == "1000"
        assert box.run(["sh", "-c", "cp id own; chmod 4755 own; ./own -u"])["stdout"].strip() == "1000"
        script = "import os; print([l for l in open('/proc/self/status') if l.startswith('Cap')])"
        shown = box.run(["python3", "-c", script])["stdout"]
        assert shown.count("0000000000000000") == 5


@pytest.mark.parametrize("kind", sorted(_NAMESPACES))
def test_no_new_namespace_by_any_call(maker, kind):
    flags = _NAMESPACES[kind]
    assert maker.box.try_cell(unshare, flags) == "EPERM"
    assert maker.box.try_cell(enter_namespace, "mnt" if kind == "mount" else kind) == "EPERM"
    # libc falls back from ENOSYS to clone, whose flags the filter can see.
    assert maker.box.try_cell(clone3, flags) == "ENOSYS"
    if kind != "time":
        assert maker.box.try_cell(clone, flags) == "EPERM"


def test_outside_the_same_calls_make_namespaces_and_inside_a_plain_fork_works(maker):
    assert maker.try_outside(unshare, _NAMESPACES["user"]) == "ok"
    assert maker.try_outside(clone, _NAMESPACES["user"]) == 7
    assert maker.try_outside(clone3, _NAMESPACES["user"]) == 7
    assert maker.box.try_command(fork_plainly) == 7
    assert maker.box.try_command(clone, 0) == 7


@pytest.mark.parametrize(
    ("attempt", "arguments"),
    [
        (mount_tmpfs, ()),
        (remount_writable, ("/usr",)),
        (unmount, ("/usr",)),
        (clone_tree, ()),
        (new_file_system, ()),
        (change_root, ()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_mount_can_be_made_changed_or_undone(maker, attempt, arguments):
    assert maker.box.try_cell(attempt, False, *arguments) == "EPERM"
    assert maker.try_outside(attempt, True, *arguments) in ("ok", 3, 4, 5)
