"""Other processes that use the same store; some are killed at a chosen step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback

# What changes something on the disk. Python announces each of them just before it happens.
STEPS = frozenset((
    "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime",
    "open", "fcntl.flock",
))  # fmt: skip


def run(function, *arguments):
    """Start a function in a process of its own; gives its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function(*arguments)
            code = 0
        except BaseException:  # noqa: BLE001  # told, and then the process ends
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid):
    """How it ended: 0, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(step, function, *arguments):
    """Run a function in a process that kills itself before the step of that number.

    Gives whether it was killed: without it the function has fewer steps.
    """

    def suicidal():
        count = 0

        def hook(event, args):
            nonlocal count
            if event in STEPS and (event != "open" or _writes(args)):
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        function(*arguments)

    code = ended(run(suicidal))
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def _writes(args):
    return bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def python(code, *arguments):
    """A fresh interpreter, with pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
