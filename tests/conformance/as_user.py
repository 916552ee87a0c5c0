"""pytest as an ordinary user, started by root. What it needs from private directories it sees, and nothing else."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import time

import pytest
from tests import thorough

USER = 61235
ROOT = pathlib.Path(__file__).parents[2]

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS = 0x20000
_PRIVATE, _BIND = 0x44000, 0x5000


class OtherUser:
    """A user with a home of its own, to be used in a `with` block."""

    def __init__(self, uid=USER):
        self._uid = uid
        site = os.path.dirname(os.path.dirname(os.path.abspath(pytest.__file__)))
        self._path = [str(ROOT / "src"), site]
        self._prefix = os.path.realpath(sys.base_prefix)
        self._needed = [path for path in (self._prefix, str(ROOT), site) if _closed_above(path)]

    def __enter__(self):
        # Short, since Unix sockets lie in it.
        self._home = tempfile.mkdtemp(prefix="at-", dir="/tmp")
        os.chown(self._home, self._uid, self._uid)
        return self

    def __exit__(self, *exc):
        # What its zygote has parked may be coming and going still.
        for _ in range(50):
            shutil.rmtree(self._home, ignore_errors=True)
            if not os.path.exists(self._home):
                return
            time.sleep(0.1)
        shutil.rmtree(self._home)

    def pytest(self, *arguments):
        """Run it to its end; gives the CompletedProcess."""
        return self.python("-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={self._home}/pytest", *arguments)

    def python(self, *arguments, **variables):
        """Run a program to its end, in the directory of this package; gives the CompletedProcess."""
        python = f"{self._prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": self._home,
            "PYTHONPATH": os.pathsep.join(self._path),
            "PYTHONDONTWRITEBYTECODE": "1",
            **thorough.ENVIRONMENT,
            **variables,
        }
        # A session of its own, as a login has one.
        return subprocess.run(
            [python, *arguments],
            env=env,
            cwd=ROOT,
            preexec_fn=self._become,  # it takes no lock
            start_new_session=True,
            capture_output=True,
            text=True,
            check=False,
        )

    def _become(self):
        """In the child: hide the private directories behind empty ones that hold only what is needed."""
        if self._needed:
            _check(_LIBC.unshare(_NEW_MOUNTS))
            _mount(None, "/", _PRIVATE)
            opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in self._needed}
            for closed in {_closed_above(path) for path in self._needed}:
                _check(_LIBC.mount(b"none", closed.encode(), b"tmpfs", 0, b"mode=755"))
            for path, fd in opened.items():
                os.makedirs(path, exist_ok=True)
                _mount(f"/proc/self/fd/{fd}", path, _BIND)
                os.close(fd)
        os.setgroups([])
        os.setresgid(self._uid, self._uid, self._uid)
        os.setresuid(self._uid, self._uid, self._uid)


def _mount(source, target, flags):
    _check(_LIBC.mount(source and source.encode(), target.encode(), None, flags, None))


def _check(answer):
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _closed_above(path):
    """The outermost directory on the way to a path that only its owner may pass, or None."""
    way = [*reversed(pathlib.Path(path).parents), pathlib.Path(path)]
    return next((str(place) for place in way if not place.stat().st_mode & stat.S_IXOTH), None)
