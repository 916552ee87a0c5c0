"""What several tests of the guest need."""

import os
import stat


def put(guest, name, content=b"content", mode=None):
    path = os.path.join(guest.workspace, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    if mode is not None:
        os.chmod(path, mode)
    return path


def get(guest, name):
    with open(os.path.join(guest.workspace, name), "rb") as file:
        return file.read()


def names(guest, name="."):
    return sorted(os.listdir(os.path.join(guest.workspace, name)))


def shape(guest, name):
    """What a tree consists of, with modes, times of files, and targets of links."""
    top = os.path.join(guest.workspace, name)
    found = {}
    for directory, below, files in os.walk(top):
        for entry in below + files:
            path = os.path.join(directory, entry)
            status = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else None
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            times = None if os.path.islink(path) else status.st_mtime
            found[os.path.relpath(path, top)] = (stat.filemode(status.st_mode), content, times)
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def text(ended):
    """The main result."""
    assert ended.ok["error"] is None, ended.ok["error"]
    return next((event["result"]["text/plain"] for event in ended.events), None)


def failure(ended):
    return ended.ok["error"]
