"""Memory and files that change all the time: maps, names, directories, descriptors."""

import contextlib
import ctypes
import fcntl
import glob
import mmap
import os
import time

from tests.attack.inside import machine, plain
from tests.attack.inside.machine import in_process, in_thread
from tests.attack.inside.plain import Clock


def remap(chance, options):
    """Map, unmap, move and protect memory, also where somebody else may just have mapped some."""

    def body():
        clock = Clock(options["seconds"])
        size = ctypes.c_size_t(1 << 16)
        base = machine.libc.mmap(None, ctypes.c_size_t(1 << 24), 0, 0x22, -1, ctypes.c_long(0))
        while clock.is_on():
            at = ctypes.c_void_p(base + chance.randrange(256) * (1 << 16))
            machine.libc.mmap(at, size, chance.randrange(8), 0x32, -1, ctypes.c_long(0))
            machine.libc.mprotect(at, size, chance.randrange(8))
            if chance.random() < 0.3:
                machine.libc.munmap(at, size)
            # Small and low addresses are where a helper may have put something.
            for pages in (1, 2):
                with contextlib.suppress(OSError):
                    mmap.mmap(-1, pages * 4096).close()

    for _ in range(chance.randint(1, 3)):
        in_process(body) if chance.random() < 0.5 else in_thread(body)


def hold_files(chance, options):
    """Open, mapped, locked, removed files; directories that one stands in; who holds them moves on and on."""

    def body(number):
        clock = Clock(options["seconds"])
        place = f"held/{number}"
        os.makedirs(place, exist_ok=True)
        kept = []
        while clock.is_on():
            with contextlib.suppress(OSError, ValueError):
                path = f"{place}/{chance.randrange(8)}"
                flags = chance.choice([os.O_RDWR, os.O_RDONLY, os.O_PATH, os.O_WRONLY | os.O_APPEND])
                fd = os.open(path, flags | os.O_CREAT if flags != os.O_PATH else flags, 0o600)
                kept.append(fd)
                if flags == os.O_RDWR:
                    os.ftruncate(fd, 4096)
                    kept.append(mmap.mmap(fd, 4096))
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if chance.random() < 0.3:
                    os.unlink(path)
                top = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
                os.chdir(place)
                os.fchdir(top)
                os.close(top)
            while len(kept) > options["open"]:
                some = kept.pop(0)
                os.close(some) if isinstance(some, int) else some.close()
            time.sleep(chance.choice([0, 0.001, 0.05]))

    for number in range(chance.randint(2, 8)):
        in_process(body, number)


def rename(chance, options):
    """Names that change under who walks: files, directories, links to elsewhere."""

    def body():
        clock = Clock(options["seconds"])
        os.makedirs("moving/a/b/c", exist_ok=True)
        while clock.is_on():
            for one, other in (("moving/a", "moving/x"), ("moving/x/b", "moving/b"), ("moving/b", "moving/x/b")):
                with contextlib.suppress(OSError):
                    os.rename(one, other)
            with contextlib.suppress(OSError):
                os.symlink(chance.choice(["/", "/proc/self/root", "..", options["marker"]]), "moving/link")
            with contextlib.suppress(OSError):
                os.link("moving/file", f"moving/{chance.randrange(20)}")
            with contextlib.suppress(OSError):
                os.rename("moving/link", chance.choice(["moving/x/b", "moving/file", "moving/a"]))
            with contextlib.suppress(OSError):
                os.rename("moving/x", "moving/a")
            with contextlib.suppress(OSError), open("moving/file", "w") as file:
                file.write("x")
            with contextlib.suppress(OSError):
                os.unlink("moving/link")
            time.sleep(0.001)

    for _ in range(chance.randint(1, 2)):
        in_process(body)


def dig(chance, options):
    """Directories so deep that their path has no name, and many in one."""

    def body():
        depth = chance.choice([100, 600, 2000])
        with contextlib.suppress(OSError):
            for _ in range(depth):
                os.mkdir("d" * chance.choice([1, 200]))
                os.chdir(max(os.listdir(".")))
        with contextlib.suppress(OSError):
            for number in range(500):
                os.mkdir(f"n{number}")
        time.sleep(options["seconds"])

    in_process(body)


def fill(chance, options):
    """All the disk, or memory, that there is; then less, then all again."""

    def body():
        clock = Clock(options["seconds"])
        while clock.is_on():
            with contextlib.suppress(OSError), open(f"filler{os.getpid()}", "wb") as file:
                file.writelines(os.urandom(1 << 20) for _ in range(64))
            with contextlib.suppress(MemoryError):
                held = [bytearray(1 << 20) for _ in range(chance.choice([50, 300]))]
                del held
            with contextlib.suppress(OSError):
                os.unlink(f"filler{os.getpid()}")
            time.sleep(0.2)

    in_process(body)


def search_proc(chance, options):
    """Read and write whatever the kernel shows of this and other processes."""

    def body():
        clock = Clock(options["seconds"])
        while clock.is_on():
            paths = (
                glob.glob("/proc/[0-9]*/*") + glob.glob("/proc/self/task/*/*") + glob.glob("/proc/[0-9]*/root/run/*")
            )
            for path in chance.sample(paths, min(60, len(paths))):
                with contextlib.suppress(OSError):
                    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                    try:
                        os.read(fd, 4096)
                    finally:
                        os.close(fd)
                if os.path.basename(path) in ("mem", "oom_score_adj", "coredump_filter", "attr", "timerslack_ns"):
                    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
                        file.write(b"0")
                if os.path.basename(path) == "root":
                    plain.try_marker(path + options["marker"])
            time.sleep(0.02)

    in_process(body)
