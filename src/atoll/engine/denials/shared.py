"""One program for all sandboxes of a state directory that are listened to: the host pays for one.

It lives as long as any keeper holds it, and no longer: nothing is left behind, however they end. The next keeper finds
it by the numbers that the first has written down.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import NamedTuple

from . import bpf, program
from .btf import Types

_VERSION = 1
_MOST_SANDBOXES = 4096
_RING = 1 << 20
_BOXES, _RINGS = b"atoll_boxes", b"atoll_rings"


class Shared(NamedTuple):
    """Descriptors: the link that keeps the program running, what it knows of sandboxes, and where it writes to."""

    link: int
    boxes: int
    rings: int

    def close(self) -> None:
        for fd in self:
            os.close(fd)


def join(directory: str) -> Shared:
    """The program that runs for others already, or a new one; `directory` is the engine's own.

    Raises:
        OSError, ValueError: this kernel, or who we are, does not allow it.
    """
    path = f"{directory}/denials-{_VERSION}"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        offsets, numbers = _remembered(file.read())
        found = _find(numbers)
        if found is None:
            offsets = offsets or _offsets()
            found = _start(offsets)
            file.seek(0)
            file.truncate()
            json.dump([_boot(), offsets, list(map(bpf.id_of, found))], file)
        return found


def _remembered(written: str) -> tuple[list[int], list[int]]:
    """Offsets and numbers, if they are of this boot and not what somebody left who was killed while he wrote."""
    with contextlib.suppress(ValueError, TypeError):
        boot, offsets, numbers = json.loads(written)
        if boot == _boot() and len(offsets) == len(program.MEMBERS):
            return offsets, numbers
    return [], []


def _offsets() -> list[int]:
    """Those of `program.MEMBERS`, found out by a child: the memory that this takes goes with it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer: dict[str, object] = {}
        try:
            types = Types()
            answer = {"offsets": [types.offset(*member) for member in program.MEMBERS]}
        except (OSError, ValueError) as error:
            answer = {"error": str(error)}
        finally:
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    found = json.loads(text or b"{}")
    if "offsets" not in found:
        raise ValueError(f"the layout of its structures is not known: {found.get('error', 'who read it died')}")
    return list(found["offsets"])


def ring() -> bpf.Ring:
    """One of the only size that the program knows."""
    return bpf.Ring(_RING, b"atoll_ring")


def _find(numbers: list[int]) -> Shared | None:
    """Numbers may have gone to others since: the maps must be called as ours are."""
    opened: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for open_one, number in zip((bpf.link_by_id, bpf.map_by_id, bpf.map_by_id), numbers, strict=True):
            opened.append(open_one(number))
        if [bpf.name_of(fd) for fd in opened[1:]] == [_BOXES, _RINGS]:
            return Shared(*opened)
    for fd in opened:
        os.close(fd)
    return None


def _start(offsets: list[int]) -> Shared:
    if os.uname().machine != "x86_64":
        raise OSError(95, "only x86-64 is known")
    sample = ring()
    boxes = rings = scratch = code = -1
    try:
        boxes = bpf.make_map(bpf.HASH, 4, program.BOX.size, _MOST_SANDBOXES, _BOXES)
        rings = bpf.make_map(bpf.HASH_OF_MAPS, 4, 4, _MOST_SANDBOXES, _RINGS, sample.fd)
        scratch = bpf.make_map(bpf.PERCPU_ARRAY, 4, program.LONG, 1, b"atoll_scratch")
        code = bpf.load(program.program(offsets, boxes, rings, scratch), b"atoll_denials")
        return Shared(bpf.attach(code, b"sys_exit"), boxes, rings)
    except BaseException:
        for fd in (boxes, rings):
            if fd >= 0:
                os.close(fd)
        raise
    finally:
        sample.close()
        for fd in (scratch, code):
            if fd >= 0:
                os.close(fd)


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
