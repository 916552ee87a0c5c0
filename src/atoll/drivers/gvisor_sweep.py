"""Ending what is left of a sandbox whose steward was killed, should anything be."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_DEATH, _MOMENT = 10.0, 0.01


def end_strays(box: str) -> None:
    """Kill every runsc of a box, and wait until its disk is free. Raises OSError."""
    from ..engine import disk

    until = time.monotonic() + _DEATH
    while found := _strays(box):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise OSError(f"runsc does not die: {found}")
        time.sleep(_MOMENT)
    image = f"{box}/disk"
    if os.path.exists(image):
        disk.await_release(image)


def _strays(box: str) -> list[int]:
    """Each of them has the directory of its state on its command line; their children die with them."""
    wanted = os.fsencode(f"--root={box}/runsc")
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(entry))
    return found
