"""What is there of a sandbox on the host, looked at from a process that has nothing to do with it."""

import fcntl
import glob
import json
import os
import re
import struct
import subprocess

_NS_GET_MNTNS_ID = 0x8008B705


def start_time(pid):
    """None for a process that is gone or dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(process):
    pid, started = process
    return start_time(pid) == started


def descendants(pid):
    """A process and all below it, each as (pid, start time)."""
    found = [pid]
    for parent in found:
        for path in glob.glob(f"/proc/{parent}/task/*/children"):
            try:
                with open(path) as file:
                    found += map(int, file.read().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return [(each, started) for each in found if (started := start_time(each)) is not None]


def siblings(pid):
    """The processes that see the same mounts: of a zygote, its stem and all keepers."""
    namespace = mount_namespace(pid)
    return in_mount_namespace(namespace) if namespace is not None else []


def mount_namespace(pid):
    """What tells a process's mount namespace from all others that there are and were; None if the process is gone.

    The inode that /proc shows does not: the next namespace gets that of one that has ended. Before Linux 6.11 there
    is nothing else.
    """
    try:
        fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return struct.unpack("Q", fcntl.ioctl(fd, _NS_GET_MNTNS_ID, bytes(8)))[0]
    except OSError:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


def in_mount_namespace(namespace):
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and mount_namespace(name) == namespace and start_time(name) is not None
    ]


def of_user(uid):
    """The living processes of one user id."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid and start_time(name) is not None:
                    found.append(int(name))
            except OSError:
                continue
    return found


def started_with(text):
    """The living processes that have some text in the words that they were started with."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if text.encode() in file.read() and start_time(name) is not None:
                        found.append(int(name))
            except OSError:
                continue
    return found


def control_groups(id):
    return [
        path for path in glob.glob("/sys/fs/cgroup/**/atoll/*", recursive=True) if id in path and os.path.isdir(path)
    ]


def loop_devices(directory):
    """The loop devices on files below a directory."""
    found = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(path) as file:
                if file.read().startswith(directory + "/"):
                    found.append(path.split("/")[3])
        except OSError:
            continue
    return found


def interfaces(id):
    return [name for name in os.listdir("/sys/class/net") if id[-12:] in name]


def tables(id):
    """The rules of a firewall that are named after a sandbox. Only root can look."""
    if os.getuid() != 0:
        return []
    done = subprocess.run(["/usr/sbin/nft", "-j", "list", "tables"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return []
    named = [entry["table"]["name"] for entry in json.loads(done.stdout)["nftables"] if "table" in entry]
    return [name for name in named if id[-12:] in name]


def mounts(id):
    """Of this process's, and so of the host's."""
    with open("/proc/self/mountinfo") as file:
        return [line for line in file if id in line]


def sockets(id):
    with open("/proc/net/unix") as file:
        return [line for line in file if re.search(rf"/\.?{id}(\.\d+)?$", line.rstrip())]


def files(state, id):
    """Every file below a state directory that bears the id, but for the registry's own."""
    return [
        os.path.join(top, name)
        for top, directories, names in os.walk(state)
        for name in (*directories, *names)
        if id in name
    ]


def traces(maker, box, processes):
    """All that is left of a sandbox, as a dict of non-empty lists. `processes` are those that it once had."""
    found = {
        "processes": [each for each in processes if is_alive(each)],
        "control groups": control_groups(box.id),
        "loop devices": loop_devices(f"{maker.state}/jail/boxes/{box.id}"),
        "interfaces": interfaces(box.id),
        "tables": tables(box.id),
        "mounts": mounts(box.id),
        "sockets": sockets(box.id),
        "files": files(maker.state, box.id),
    }
    return {what: some for what, some in found.items() if some}
