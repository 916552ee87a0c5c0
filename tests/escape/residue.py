"""What is there of a sandbox on the host, looked at from a process that has nothing to do with it."""

import glob
import json
import os
import re
import subprocess


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
    try:
        namespace = os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return []
    return in_mount_namespace(namespace)


def in_mount_namespace(namespace):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.readlink(f"/proc/{name}/ns/mnt") == namespace and start_time(name) is not None:
                    found.append(int(name))
            except OSError:
                continue
    return found


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
