"""What all attackers are made of, sent inside with them. It runs wherever there is Python, also in WebAssembly."""

import contextlib
import socket
import sys
import time

# Where the host's root might be found from inside.
WAYS = ("", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../../../..", "../../../../../../../..")


class Clock:
    """How long an attacker goes on: it ends by itself, whatever happens outside."""

    def __init__(self, seconds):
        self._end = time.monotonic() + seconds

    def is_on(self):
        return time.monotonic() < self._end


def try_marker(path):
    """Write the file outside that tells of an escape, by each name that it might have here."""
    for top in WAYS:
        with contextlib.suppress(OSError), open(top + path, "w") as file:
            file.write("escaped\n")


def try_secrets(paths):
    """Say what can be read of files that only the host has, and which of its sockets can be reached."""
    for path in paths:
        for top in WAYS:
            with contextlib.suppress(OSError), open(top + path) as file:
                sys.stdout.write(file.read())
            with contextlib.suppress(OSError, AttributeError), socket.socket(socket.AF_UNIX) as sock:
                sock.connect(top + path)
                sys.stdout.write(f"reached {path}\n")
