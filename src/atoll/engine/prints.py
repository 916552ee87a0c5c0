"""A print of a context's memory: a copy that nobody else can change, to make twins of.

It is forked from the context's shadow, whose memory is that of the context. For that one moment the shadow runs an
instruction of hostile memory, so all who share it are stopped then, and what it runs is looked at first. A print has
its memory to itself, but for what was shared on purpose: that is replaced by copies.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from ..guest.shared import SIZE
from .batch import Scratch
from .inspection import Identity
from .shadows import Context, lose
from .tracing import Strayed, Task, find_instruction

_CLONE_PARENT = 0x8000
FORK = _CLONE_PARENT | signal.SIGCHLD
# What of a context's shared memory is copied at most, in bytes and in pieces.
_MOST_SHARED, _MOST_PIECES = 256 << 20, 256
_FIXED_PRIVATE_ANONYMOUS = 0x32
_READ_WRITE = 3
_CHUNK = 1 << 20
_PATIENCE = 30.0


class Mapping(NamedTuple):
    start: int
    end: int
    flags: str
    offset: int
    device: int
    inode: int

    @property
    def identity(self) -> Identity:
        return self.device, self.inode

    @property
    def protection(self) -> int:
        return sum(bit for bit, letter in ((1, "r"), (2, "w"), (4, "x")) if letter in self.flags)


class Print:
    """Args: page: where the page is that the context shares with its guest."""

    def __init__(self, task: Task, scratch: Scratch, page: int) -> None:
        self.task = task
        self.scratch = scratch
        self.page = page


def take(context: Context) -> Task:
    """Fork the shadow of a context, while nobody who shares its memory runs; gives the new task, stopped.

    Raises:
        Strayed: its memory is not such that this can be done.
        OSError: it is gone, or there is no memory.
    """
    shadow = context.shadow
    shadow.begin()
    shadow.send_to(find_instruction(context.task))
    try:
        made = Task.adopted(shadow.clone(FORK, timeout=_PATIENCE), shadow.instruction)
    finally:
        lose(shadow)
    made.wait()
    made.begin()
    return made


def own_memory(task: int) -> frozenset[int]:
    """The devices of files in memory that a sandbox's processes can change: its /dev/shm, and files without a name."""
    nameless = os.memfd_create("", os.MFD_CLOEXEC)
    try:
        return frozenset((os.stat(f"/proc/{task}/root/dev/shm").st_dev, os.fstat(nameless).st_dev))
    finally:
        os.close(nameless)


def clean(task: Task, page: Identity, changing: frozenset[int]) -> Print:
    """Give a print memory that is its own: also what it has of files on `changing` devices, which others write to.

    Raises:
        Strayed: it shares too much, or not the page that it must.
        OSError: there is no memory.
    """
    scratch = Scratch(task)
    shared = shared_mappings(task.id, changing)
    pages = [each for each in shared if each.identity == page and each.flags[3] == "s"]
    if len(pages) != 1 or (pages[0].offset, pages[0].end - pages[0].start) != (0, _rounded(SIZE)):
        raise Strayed("it has not kept the page that it shares with its guest")
    others = [each for each in shared if each not in pages]
    if len(others) > _MOST_PIECES or sum(each.end - each.start for each in others) > _MOST_SHARED:
        raise Strayed(f"it shares more than {_MOST_SHARED >> 20} MB of memory with other processes")
    for each in others:
        _replace(task, each)
    return Print(task, scratch, pages[0].start)


def _rounded(size: int) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    return -(-size // page) * page


def _replace(task: Task, mapping: Mapping) -> None:
    content = [
        (at, _content(task, at, min(at + _CHUNK, mapping.end))) for at in range(mapping.start, mapping.end, _CHUNK)
    ]
    size = mapping.end - mapping.start
    task.call("mmap", mapping.start, size, _READ_WRITE, _FIXED_PRIVATE_ANONYMOUS, -1, 0)
    for at, data in content:
        if data.count(0) != len(data):
            task.write(at, data)
    if mapping.protection != _READ_WRITE:
        task.call("mprotect", mapping.start, size, mapping.protection)


def _content(task: Task, start: int, end: int) -> bytes:
    """What cannot be read is nothing."""
    try:
        return task.read(start, end - start)
    except OSError:
        return b""


def shared_mappings(process: int, changing: frozenset[int] = frozenset()) -> list[Mapping]:
    """Memory that others may have, too, whoever may write to it; and private memory of files on `changing` devices."""
    devices = {b"%02x:%02x" % (os.major(each), os.minor(each)) for each in changing}
    found = []
    with open(f"/proc/{process}/maps", "rb") as file:
        for line in file:
            # Most lines are neither, and need not be taken apart.
            _, flags, offset, device, inode = line.split(b" ", 5)[:5]
            if flags[3:4] != b"s" and (device not in devices or inode == b"0"):
                continue
            first, _, last = line.split(b" ", 1)[0].partition(b"-")
            major, _, minor = device.partition(b":")
            found.append(
                Mapping(
                    int(first, 16),
                    int(last, 16),
                    flags.decode(),
                    int(offset, 16),
                    os.makedev(int(major, 16), int(minor, 16)),
                    int(inode),
                )
            )
    return found
