"""Attackers in WebAssembly, where there are no threads and no processes: each goes on in the cell that began it.

Several are at it at once, in contexts of one sandbox, which share its files.
"""

import array
import contextlib
import json
import os
import re
import sys
import zlib

from tests.attack.inside import plain
from tests.attack.inside.plain import Clock

PORTAL, STATE = 100, "/opt/state"
_WORDS = b"FRAWKSX"


def climb(chance, options):
    """Names that change under who walks, and links that lead out: below directories that are held open meanwhile."""
    clock = Clock(options["seconds"])
    os.makedirs("/workspace/up/a/b/c", exist_ok=True)
    held = []
    while clock.is_on():
        for one, other in (("up/a", "up/x"), ("up/x/b", "up/b"), ("up/b", "up/x/b"), ("up/x", "up/a")):
            with contextlib.suppress(OSError):
                os.rename(f"/workspace/{one}", f"/workspace/{other}")
        target = chance.choice(["/", "..", "/proc/self/root", "../" * 30, options["marker"], "/opt/state", "link"])
        for name in ("link", "up/a/link", "up/a/b/link"):
            with contextlib.suppress(OSError):
                os.unlink(f"/workspace/{name}")
            with contextlib.suppress(OSError):
                os.symlink(target, f"/workspace/{name}")
            plain.try_marker(f"/workspace/{name}{options['marker']}")
        with contextlib.suppress(OSError):
            held.append(os.open(chance.choice(["/workspace/up/a/b", "/workspace/up", "/opt/state"]), os.O_RDONLY))
        for directory in held:
            for way in ("../" * chance.randrange(9) + "etc/passwd", "b/../../../../root" + options["marker"]):
                with contextlib.suppress(OSError, NotImplementedError):
                    os.close(os.open(way, os.O_RDWR | os.O_CREAT, dir_fd=directory))
        while len(held) > options["open"]:
            os.close(held.pop(0))


def speak(chance, options):
    """Say to the host what it did not ask for, at a bad moment, or without end."""
    clock = Clock(options["seconds"])
    while clock.is_on():
        word = bytes([chance.choice(_WORDS)])
        said = chance.choice([
            b"", bytes([chance.randrange(256), chance.randrange(256)]) + os.urandom(chance.randrange(4000)),
            b"\x03\0" + b"[" * 60_000, b'{"ok":{"count":1e999}}', b"[" * 100_000, b"NaN", b"-1e999", b"9" * 6000,
        ])  # fmt: skip
        for _ in range(chance.choice([1, 1, 1000])):
            with contextlib.suppress(OSError):
                os.write(PORTAL, word + said)
        if chance.random() < 0.05:
            with contextlib.suppress(OSError):
                os.read(PORTAL, chance.choice([1, 1 << 20]))


def forge_state(chance, options):
    """Have what is kept for the next life say what it likes, or be something that is no file."""
    clock = Clock(options["seconds"])
    while clock.is_on():
        entry = {
            "name": chance.choice(["main", "x" * 300, "../up"]), "file": chance.choice(["", "../root/f", "f", ".."]),
            "language": chance.choice(["python", "bash", "restricted", 7]), "env": chance.choice([{}, {"A": 1}, []]),
            "cwd": chance.choice(["/", "/workspace/link", "../../..", "\0", "/" * 5000]),
        }  # fmt: skip
        with contextlib.suppress(OSError), open(f"{STATE}/f", "wb") as file:
            file.write(os.urandom(100) + b"\xff" * 16 + b"ATOLLst2")
        for name in ("contexts.json", "contexts.json.new"):
            path = f"{STATE}/{name}"
            for remove in (os.unlink, os.rmdir):
                with contextlib.suppress(OSError):
                    remove(path)
            with contextlib.suppress(OSError):
                what = chance.randrange(4)
                if what == 0:
                    os.symlink(options["marker"], path)
                elif what == 1:
                    os.mkdir(path)
                else:
                    with open(path, "w") as file:
                        file.write(json.dumps([entry] * chance.choice([1, 900])) if what == 2 else "[" * 200_000)


def spin(chance, _options):
    """Compute where no interrupt is looked for."""
    way = chance.randrange(5)
    if way == 0:
        re.match(r"(a+)+$", "a" * 60 + "b")
    elif way == 1:
        9 ** (10**8)
    elif way == 2:
        sorted(range(10**7), key=lambda _: chance.random())
    elif way == 3:
        (b"ab" * 10**7).count(b"a" * 10**6)
    else:
        while True:
            with contextlib.suppress(BaseException):
                while True:
                    pass


def grow(chance, options):
    """All the memory that there is, again and again; deep calls; what unpacks to much."""
    clock = Clock(options["seconds"])
    packed = zlib.compress(bytes(1 << 26))
    while clock.is_on():
        held = []
        with contextlib.suppress(MemoryError, RecursionError):
            while clock.is_on():
                held.append(chance.choice([lambda: bytearray(1 << 22), lambda: zlib.decompress(packed)])())
        del held
        with contextlib.suppress(RecursionError, MemoryError):
            sys.setrecursionlimit(10**6)
            _deeper(0)


def _deeper(depth):
    return _deeper(depth + 1)


def poke(chance, options):
    """Write to any place of the instance's memory: what calls the host from then on says whatever it likes."""
    import numpy as np

    class Anywhere:
        def __init__(self, at, size):
            self.__array_interface__ = {"data": (at, False), "shape": (size,), "typestr": "|u1", "version": 3}

    clock = Clock(options["seconds"])
    words = array.array("I", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 1 << 20, PORTAL])
    while clock.is_on():
        at = chance.randrange(1024, 64 << 20)
        place = np.asarray(Anywhere(at, chance.choice([4, 4, 64, 4096])))
        place[:4] = np.frombuffer(words.tobytes(), "u1")[4 * (n := chance.randrange(6)) : 4 * n + 4]
        with contextlib.suppress(OSError):
            os.stat("/workspace")
            os.listdir("/")


def hoard(chance, options):
    """All descriptors, names, depth, and room: sparse, reserved and real."""
    clock = Clock(options["seconds"])
    top = f"/workspace/hoard{chance.randrange(9)}"
    while clock.is_on():
        held = []
        with contextlib.suppress(OSError):
            os.makedirs(top, exist_ok=True)
            held.extend(os.open(f"{top}/{n}", os.O_RDWR | os.O_CREAT) for n in range(chance.choice([20, 2000])))
        for each in held[:4]:
            with contextlib.suppress(OSError, AttributeError):
                os.ftruncate(each, chance.choice([1 << 20, 1 << 40, (1 << 63) - 1]))
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fallocate(each, 0, chance.choice([1 << 20, 1 << 28]))
            with contextlib.suppress(OSError):
                os.write(each, bytes(1 << 22))
        for each in held:
            with contextlib.suppress(OSError):
                os.close(each)
        path = top
        with contextlib.suppress(OSError):
            for _ in range(chance.choice([50, 450])):
                path += "/d"
                os.mkdir(path)
        if chance.random() < 0.5:
            for name in _listed(top):
                with contextlib.suppress(OSError):
                    os.unlink(f"{top}/{name}")


def _listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def lie(chance, _options):
    """Take the place of what the context answers with."""
    name = chance.choice(["tell", "hear", "PUT", "Portal", "_serve"])
    frame = sys._getframe()
    while frame is not None:
        if name in frame.f_globals:
            frame.f_globals[name] = chance.choice([lambda *_: b"", lambda *_: os.urandom(99), None])
        frame = frame.f_back
    for module, function in ((json, "dumps"), (json, "loads"), (os, "write"), (os, "read")):
        if chance.random() < 0.3:
            setattr(module, function, lambda *_: b"{}")
