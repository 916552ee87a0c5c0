"""Work on files in two halves, on two processors: only system calls take time in it, and Python makes one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable


def do_both(work: Callable[[int], None], *, worth: bool) -> None:
    """Do `work(0)` and `work(1)`, in two processes if that is worth it. All that they do must be seen in files.

    Raises:
        OSError: one of them failed.
    """
    if not worth or len(os.sched_getaffinity(0)) < 2:
        work(0)
        work(1)
        return
    reader, writer = os.pipe2(os.O_CLOEXEC)
    helper = os.fork()
    if helper == 0:
        _help(work, writer)
    os.close(writer)
    try:
        work(0)
    finally:
        # Its word, not its exit code: somebody may have asked the kernel to reap children unasked.
        said = os.read(reader, 4096)
        os.close(reader)
        try:
            os.waitpid(helper, 0)
        except ChildProcessError:
            pass
    if said != b"done":
        raise OSError(f"the other half could not be done: {said.decode(errors='replace') or 'its process died'}")


def _help(work: Callable[[int], None], writer: int) -> None:
    try:
        work(1)
        os.write(writer, b"done")
    except BaseException as error:  # noqa: BLE001 - it is told to whoever waits
        os.write(writer, repr(error).encode(errors="replace")[:4096])
    finally:
        os._exit(0)
