"""The layers are independent: with one of them taken away, the others still hold what they hold."""

import os
import stat

import pytest
from tests.escape.harness import USER, Maker
from tests.escape.prelude import failed, libc, syscall

NO_LANDLOCK = "from atoll.engine import landlock; landlock.version = lambda: 0"
NO_FILTER = """
import struct
from atoll.engine import seccomp
seccomp.program = lambda machine, **_: struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
"""
NO_CAPABILITY_DROP = """
from atoll.engine import kernel
kernel.drop_capabilities = lambda: None
"""
CLOSED = {"EPERM", "EACCES", "EROFS", "ENOENT"}


@pytest.fixture(scope="module", params=["root", "user"])
def weakened(request):
    """Gives makers whose zygote lacks a layer."""
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("needs uid 0, to make sandboxes as root does")
    uid = 0 if request.param == "root" else (USER if os.getuid() == 0 else os.getuid())
    makers = {}

    def get(before):
        if before not in makers:
            makers[before] = Maker(request.param, uid)
            makers[before].call("start_zygote", before=before)
        return makers[before]

    yield get
    for maker in makers.values():
        maker.close()


def write(path):
    with open(path, "w") as file:
        file.write("x")


def open_to_write(path):
    os.close(os.open(path, os.O_WRONLY))


def read(path):
    with open(path) as file:
        return file.read()


def unshare(flags):
    if libc.unshare(flags) != 0:
        raise failed("unshare")


def mount():
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
        raise failed("mount")


def unmount():
    if libc.umount2(b"/usr", 2) != 0:
        raise failed("umount")


def remount():
    if libc.mount(None, b"/usr", None, 0x1020, None) != 0:
        raise failed("remount")


def attach_to_first():
    if libc.ptrace(16, 1, None, None) != 0:
        raise failed("ptrace")


def make_device():
    os.mknod("/workspace/device", stat.S_IFCHR | 0o666, os.makedev(1, 1))


def set_host_name():
    syscall((170, 161), b"changed", 7)


def layers():
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":", 1) for line in file)
    return {name: lines[name].strip() for name in ("Seccomp", "CapEff", "NoNewPrivs")}


def test_without_landlock_the_mounts_and_ids_hold(weakened):
    box = weakened(NO_LANDLOCK).box
    assert not any("Landlock" in wall for wall in box.info["walls"])
    for path in ("/x", "/usr/x", "/etc/x", "/dev/x", "/.host/x", "/proc/sys/kernel/hostname", "/proc/1/oom_score_adj"):
        assert box.try_cell(write, path) in CLOSED
    for path in ("/usr/bin/env", "/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"):
        assert box.try_cell(open_to_write, path) in CLOSED
    assert box.try_cell(write, "/workspace/x") == "ok"


def test_without_the_filter_the_missing_capabilities_hold(weakened):
    box = weakened(NO_FILTER).box
    for attempt in (mount, unmount, remount, attach_to_first, make_device, set_host_name):
        assert box.try_cell(attempt) == "EPERM", attempt.__name__
    for flags in (0x20000, 0x20000000, 0x40000000):
        assert box.try_cell(unshare, flags) == "EPERM"
    # And without a filter a user namespace would give all of them back; there may be none.
    assert box.try_cell(unshare, 0x10000000) == "ENOSPC"
    assert layers_of(box) == ("2", "0", "1")


def test_without_dropped_capabilities_the_filter_holds(weakened):
    box = weakened(NO_CAPABILITY_DROP).box
    assert layers_of(box)[1] != "0"
    for attempt in (mount, unmount, remount, set_host_name):
        assert box.try_cell(attempt) == "EPERM", attempt.__name__
    assert box.try_cell(unshare, 0x10000000) == "EPERM"
    # The capabilities are those of the sandbox's own user namespace, which owns nothing of the host's.
    for path in ("/usr/bin/env", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"):
        assert box.try_cell(open_to_write, path) in CLOSED


def layers_of(box):
    shown = box.try_cell(layers)
    return shown["Seccomp"], shown["CapEff"].lstrip("0") or "0", shown["NoNewPrivs"]
