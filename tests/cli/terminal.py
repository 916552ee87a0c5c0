"""A program on a terminal of its own, looked at and typed at."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time

LONGEST = 30.0

# The terminal becomes the program's controlling one, so that it hears of keys and sizes as a user's does.
_ADOPT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    def __init__(self, argv, env, size=(24, 80)):
        self._master, slave = os.openpty()
        self.screen = b""
        self.resize(*size)
        self.slave = slave
        self.settings = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ADOPT, *argv], stdin=slave, stdout=slave, stderr=slave, env=env,
            start_new_session=True,
        )  # fmt: skip

    def resize(self, rows, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self._master, keys)

    def expect(self, pattern):
        """Wait until the screen shows `pattern`; what came up to there is taken away and given."""
        deadline = time.monotonic() + LONGEST
        while (match := re.search(pattern, self.screen)) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} never came: {self.screen!r}"
            if select.select([self._master], [], [], left)[0]:
                self.screen += os.read(self._master, 1 << 16)
        seen, self.screen = self.screen[: match.end()], self.screen[match.end() :]
        return seen

    def wait(self):
        """Its exit code. What it still says is read, so that it never waits for us."""
        deadline = time.monotonic() + LONGEST
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it never ended: {self.screen!r}"
            if select.select([self._master], [], [], 0.02)[0]:
                self.screen += os.read(self._master, 1 << 16)
        return self.process.returncode

    def in_order(self):
        """Whether the terminal is set as it was at first."""
        return termios.tcgetattr(self.slave) == self.settings

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self.slave)
