"""No read and no write of host files outside the view, by any road."""

import os
import socket
import stat
import struct
import threading

import pytest
from tests.escape.harness import Refused
from tests.escape.prelude import ctypes, syscall

SECRET = "the host's own words"
# What a root may hold; everything else of the host would be a leak.
VIEW = {
    ".host", "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "tmp",
    "packages", "usr", "var", "workspace",
}  # fmt: skip
DEVICES = {
    "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
}  # fmt: skip
CLOSED = {"EACCES", "EPERM", "EROFS", "ENOENT", "ENXIO", "ELOOP", "ENOTDIR"}


@pytest.fixture(scope="module")
def secret(maker):
    return maker.give_file("secret.txt", SECRET)


def read(path):
    with open(path, "rb") as file:
        return file.read(4096).decode(errors="replace")


def read_through_link(path):
    link = f"/tmp/link-{os.getuid()}-{os.getpid()}"
    os.symlink(path, link)
    try:
        with open(link) as file:
            return file.read()
    finally:
        os.unlink(link)


def read_through_hard_link(path, link):
    os.link(path, link)
    try:
        with open(link) as file:
            return file.read()
    finally:
        os.unlink(link)


def read_by_handle(path):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    syscall((303, 264), -100, path.encode(), handle, ctypes.byref(mount), 0)
    where = os.open(os.path.dirname(path), os.O_RDONLY)
    fd = syscall((304, 265), where, handle, os.O_RDONLY)
    return os.read(fd, 4096).decode()


def climb(start, path):
    """From a descriptor or link of the kernel's, up to the top and down to the path."""
    with open(start + "/" + "../" * 40 + path.lstrip("/")) as file:
        return file.read()


def climb_from_descriptors(path):
    """Through every descriptor that is open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            with open(f"/proc/self/fd/{name}/" + "../" * 40 + path.lstrip("/")) as file:
                found.append(file.read())
        except OSError:
            continue
    return found


def write(path):
    with open(path, "w") as file:
        file.write("x")


def make_and_remove(directory):
    path = directory + "/made-inside"
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)


def change(how, path):
    {
        "append": lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)),
        "truncate": lambda: os.truncate(path, 0),
        "remove": lambda: os.unlink(path),
        "rename": lambda: os.rename(path, path + ".old"),
        "chmod": lambda: os.chmod(path, 0o777),
        "chown": lambda: os.chown(path, 1000, 1000),
        "utime": lambda: os.utime(path, (0, 0)),
        "xattr": lambda: os.setxattr(path, "user.mark", b"x"),
        "link": lambda: os.link(path, path + ".link"),
    }[how]()


def names(path):
    return sorted(os.listdir(path))


def make_device(path, kind, major, minor):
    os.mknod(path, kind | 0o666, os.makedev(major, minor))


def open_device(path):
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def connect(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        return sock.recv(64).decode()


def open_pipe_to_write(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


ROADS = [
    ("the plain path", read, ""),
    ("/proc/self/root", read, "/proc/self/root"),
    ("/proc/1/root", read, "/proc/1/root"),
    ("the old root", read, "/.host"),
    ("/proc/thread-self/root", read, "/proc/thread-self/root"),
    ("a symlink", read_through_link, ""),
    ("a handle", read_by_handle, ""),
]


@pytest.mark.parametrize(("attempt", "prefix"), [road[1:] for road in ROADS], ids=[road[0] for road in ROADS])
def test_a_host_file_cannot_be_read(maker, secret, attempt, prefix):
    assert maker.box.try_cell(attempt, prefix + secret) in CLOSED
    assert maker.box.try_command(attempt, prefix + secret) in CLOSED
    # Handles need a capability, and the old root and the first process have a meaning only inside.
    if prefix in ("/.host", "/proc/1/root") or (attempt is read_by_handle and maker.name == "user"):
        attempt, prefix = read, ""
    assert maker.try_outside(attempt, prefix + secret) == SECRET


def test_the_same_roads_lead_to_the_sandboxs_own_files(maker):
    maker.box.call("files.write", "/workspace/own.txt", "mine")
    for prefix in ("", "/proc/self/root", "/proc/thread-self/root"):
        assert maker.box.try_cell(read, f"{prefix}/workspace/own.txt") == "mine"
    assert maker.box.try_cell(read_through_link, "/workspace/own.txt") == "mine"
    assert maker.box.try_cell(climb, "/proc/self/cwd", "/workspace/own.txt") == "mine"


@pytest.mark.parametrize("start", ["/", "/workspace", "/proc/self/cwd", "/proc/1/cwd", "/.host", "/dev/shm"])
def test_climbing_up_ends_at_the_sandboxs_own_root(maker, secret, start):
    assert maker.box.try_cell(climb, start, secret) in CLOSED
    assert maker.try_outside(climb, maker.home, secret) == SECRET


@pytest.mark.parametrize("place", ["try_cell", "try_command"])
def test_no_open_descriptor_leads_out(maker, secret, place):
    assert getattr(maker.box, place)(climb_from_descriptors, secret) == []


def test_a_hard_link_to_a_host_file_cannot_be_made(maker, secret):
    assert maker.box.try_cell(read_through_hard_link, secret, "/workspace/hard") in CLOSED
    assert maker.try_outside(read_through_hard_link, secret, f"{maker.home}/hard") == SECRET


def test_the_root_shows_the_view_and_nothing_else(maker):
    shown = set(maker.box.try_cell(names, "/"))
    # The interpreter is shown at its own place, and nothing beside it.
    _, first, second, *_ = [*maker.prefix.split("/"), ""]
    assert shown <= VIEW | {first}
    if first not in ("usr", "home"):
        assert maker.box.try_cell(names, f"/{first}") == [second]
    assert {"usr", "proc", "workspace"} <= shown
    assert maker.box.try_cell(names, "/.host") == []
    assert maker.box.try_cell(names, "/run") == []
    assert maker.box.try_cell(names, "/home") == ["user"]
    assert set(maker.box.try_cell(names, "/dev")) <= DEVICES
    assert maker.box.try_cell(names, "/sys") == "ENOENT"


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "/etc/machine-id", "/etc/ssh", "/etc/sudoers", "/root/.bashrc", "/root/.ssh", "/var/lib", "/boot"],
)
def test_private_places_of_the_host_do_not_exist(maker, path):
    assert maker.box.try_cell(read, path) == "ENOENT"


def test_the_makers_home_and_state_are_out_of_sight(maker):
    for path in (maker.home, maker.state, f"{maker.state}/registry.db", f"{maker.state}/jail"):
        assert os.path.exists(path)
        assert maker.box.try_cell(names, path) == "ENOENT"


@pytest.mark.parametrize("path", ["/x", "/usr/x", "/usr/bin/x", "/etc/x", "/dev/x", "/run/x", "/.host/x", "/proc/x"])
def test_nothing_can_be_made_outside_the_writable_places(maker, path):
    assert maker.box.try_cell(write, path) in CLOSED
    assert not os.path.exists(path)


@pytest.mark.parametrize("directory", ["/workspace", "/tmp", "/home/user", "/dev/shm"])
def test_the_writable_places_are_writable(maker, directory):
    assert maker.box.try_cell(make_and_remove, directory) == "ok"


@pytest.mark.parametrize("how", ["append", "truncate", "remove", "rename", "chmod", "chown", "utime", "xattr", "link"])
def test_host_files_in_view_cannot_be_changed(maker, how):
    before = os.stat("/usr/bin/env")
    assert maker.box.try_cell(change, how, "/usr/bin/env") in CLOSED
    after = os.stat("/usr/bin/env")
    assert (before.st_size, before.st_mode, before.st_mtime, before.st_nlink) == (
        after.st_size, after.st_mode, after.st_mtime, after.st_nlink
    )  # fmt: skip
    if how in ("append", "truncate", "rename", "chmod", "utime"):
        maker.box.call("files.write", "/workspace/env", "x")
        assert maker.box.try_cell(change, how, "/workspace/env") == "ok"


@pytest.mark.parametrize(
    "path",
    ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger",
     "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/1/oom_score_adj",
     "/proc/self/uid_map", "/proc/sys/kernel/modprobe", "/proc/bus/pci/devices"],
)  # fmt: skip
def test_the_kernels_switches_cannot_be_turned(maker, path):
    assert maker.box.try_cell(write, path) in CLOSED


def test_root_outside_can_open_those_switches(root_maker):
    def open_to_write(path):
        os.close(os.open(path, os.O_WRONLY))

    for path in ("/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"):
        assert root_maker.try_outside(open_to_write, path) == "ok"


@pytest.mark.parametrize(
    "path", ["/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/slabinfo", "/proc/vmallocinfo"]
)
def test_kernel_memory_and_messages_stay_hidden(maker, path):
    assert maker.box.try_cell(open_device, path) in CLOSED


def test_root_outside_can_open_those(root_maker):
    for path in ("/proc/kmsg", "/proc/slabinfo", "/proc/vmallocinfo"):
        assert root_maker.try_outside(open_device, path) == "ok"


def test_kernel_addresses_are_not_told(maker):
    first = maker.box.try_cell(read, "/proc/kallsyms")
    assert first in CLOSED or set(first.split()[0]) == {"0"}


@pytest.mark.parametrize(
    "path",
    ["/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/loop0", "/dev/fuse", "/dev/kvm", "/dev/net/tun",
     "/dev/userfaultfd", "/dev/vsock", "/dev/loop-control", "/dev/console"],
)  # fmt: skip
def test_devices_of_the_host_do_not_exist(maker, path):
    assert maker.box.try_cell(open_device, path) == "ENOENT"


def test_the_few_harmless_devices_work(maker):
    for name in ("null", "zero", "full", "random", "urandom"):
        assert maker.box.try_cell(open_device, f"/dev/{name}") == "ok"


def test_no_device_can_be_made(maker):
    for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 3), (stat.S_IFBLK, 7, 0)):
        assert maker.box.try_cell(make_device, "/workspace/device", kind, major, minor) == "EPERM"
    assert maker.box.try_cell(make_device, "/workspace/pipe", stat.S_IFIFO, 0, 0) == "ok"
    maker.box.call("files.remove", "/workspace/pipe")


@pytest.mark.parametrize("operation", ["read", "list", "info"])
def test_the_file_api_reaches_no_further_than_the_sandbox(maker, secret, operation):
    maker.box.run(["ln", "-sfn", secret, "/workspace/file-link"], check=True)
    maker.box.run(["ln", "-sfn", "/proc/self/root", "/workspace/root-link"], check=True)
    for path in (secret, "/workspace/file-link", f"/workspace/../../../..{secret}", f"/workspace/root-link{secret}"):
        error = _error_of(maker.box, f"files.{operation}", path)
        assert error in ("FileMissing", "FileError", "FileDenied", "NotDirectory"), path


def _error_of(box, name, path):
    try:
        said = box.call(name, path)
    except Refused as refusal:
        return refusal.type
    # A link itself may be described; what it points to may not.
    return "FileMissing" if isinstance(said, dict) and said.get("type") == "symlink" else repr(said)


@pytest.fixture(scope="module")
def planted(maker, secret):
    """A source tree with everything in it that could lead out."""
    tree = f"{maker.home}/planted"
    os.mkdir(tree, 0o755)
    with open(f"{tree}/file.txt", "w") as file:
        file.write("original")
    os.symlink(secret, f"{tree}/link")
    os.symlink("/proc/self/root" + secret, f"{tree}/magic")
    os.mkfifo(f"{tree}/fifo", 0o666)
    os.chmod(f"{tree}/fifo", 0o666)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{tree}/socket")
    os.chmod(f"{tree}/socket", 0o777)
    listener.listen()
    if os.getuid() == 0:
        os.mknod(f"{tree}/device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        os.chmod(f"{tree}/device", 0o666)
    for name in (".", "file.txt", "link", "magic", "fifo", "socket", "device"):
        if os.path.lexists(f"{tree}/{name}"):
            os.lchown(f"{tree}/{name}", maker.uid, maker.uid)
    threading.Thread(target=_greet, args=(listener,), daemon=True).start()
    box = maker.create(source=tree, preset="full-access")
    yield tree, box
    box.destroy()
    listener.close()


def _greet(listener):
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        client.sendall(b"hello")
        client.close()


def test_links_in_a_source_tree_do_not_lead_to_the_host(maker, planted):
    tree, box = planted
    for name in ("link", "magic"):
        assert maker.try_outside(read, f"{tree}/{name}") == SECRET
        assert box.try_cell(read, f"/workspace/{name}") in CLOSED
    assert box.try_cell(read, "/workspace/file.txt") == "original"


def test_a_socket_in_a_source_tree_is_not_the_hosts(maker, planted):
    tree, box = planted
    assert maker.try_outside(connect, f"{tree}/socket") == "hello"
    assert box.try_cell(connect, "/workspace/socket") in ("ECONNREFUSED", "EPERM", "EACCES")


def test_a_pipe_in_a_source_tree_is_not_the_hosts(maker, planted):
    tree, box = planted
    reader = os.open(f"{tree}/fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert maker.try_outside(open_pipe_to_write, f"{tree}/fifo") == "ok"
        assert box.try_cell(open_pipe_to_write, "/workspace/fifo") == "ENXIO"
    finally:
        os.close(reader)


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to make a device")
def test_a_device_in_a_source_tree_cannot_be_opened(maker, planted):
    tree, box = planted
    assert maker.try_outside(open_device, f"{tree}/device") == "ok"
    assert box.try_cell(open_device, "/workspace/device") == "EACCES"


@pytest.mark.parametrize("how", ["append", "truncate", "chmod", "utime", "xattr", "link", "rename", "remove"])
def test_what_is_done_to_a_source_tree_stays_in_the_sandbox(maker, planted, how):
    tree, _ = planted
    before = os.stat(f"{tree}/file.txt")
    with maker.create(source=tree, preset="full-access") as box:
        assert box.try_cell(change, how, "/workspace/file.txt") in ("ok", "EOPNOTSUPP", "EPERM")
        box.run("echo changed > file.txt; rm -f link; mkdir new", check=True)
        assert box.try_cell(read, "/workspace/file.txt") == "changed\n"
    after = os.stat(f"{tree}/file.txt")
    with open(f"{tree}/file.txt") as file:
        assert file.read() == "original"
    assert (before.st_mode, before.st_mtime, before.st_nlink) == (after.st_mode, after.st_mtime, after.st_nlink)
    assert os.path.lexists(f"{tree}/link")
    assert not os.path.exists(f"{tree}/new")


@pytest.mark.parametrize("place", ["home", "state", "state/jail", "state/jail/boxes"])
def test_a_source_that_holds_the_state_or_lies_in_it_is_refused(maker, place):
    """Somebody gives their whole home, and the state directory with the registry and the sockets is in it."""
    maker.create().destroy()
    source = maker.home if place == "home" else f"{maker.home}/{place}"
    with pytest.raises(Refused) as caught:
        maker.create(source=source, preset="full-access")
    assert caught.value.type == "InvalidInput"
    assert "state directory" in caught.value.message
