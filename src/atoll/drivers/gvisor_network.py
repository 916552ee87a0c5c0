"""`network="all"` of root: a network namespace whose one interface gVisor takes over, with the jail's rules outside.

gVisor has a network stack of its own: it takes address and route from the namespace, and sends frames by the interface
past all rules in there. The other end of that interface is the host's, and so are the rules (see `engine.closed`).
"""

from __future__ import annotations

import os
import signal

from ..engine import jail, kernel, network
from ..engine.settings import BirthFailed
from ..engine.steward.wall import StartFailed

_SETTINGS = "/proc/sys/net/core"
# By this runsc (of 2024, and before) tells the host's namespace, which it refuses to use. Newer kernels have it in all.
_OF_THE_HOST = f"{_SETTINGS}/rmem_default"


def make(sandbox: str, box: str) -> int:
    """A descriptor of a namespace with a way out; `engine.network.forget` takes back what that left on the host.

    Raises:
        StartFailed: it cannot be had here, or what it must not reach cannot be closed.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = kernel.clone(kernel.CLONE_NEWNET)
    if pid == 0:
        _wait(reader, writer)
    os.close(reader)
    try:
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            network.connect_all(sandbox, box, pid, rootless=False, kinship=0)
        except BaseException:
            os.close(namespace)
            raise
    except BirthFailed as error:
        raise StartFailed(str(error), error.code) from error
    finally:
        os.close(writer)
        os.waitpid(pid, 0)
    return namespace


def _wait(reader: int, writer: int) -> None:
    """In the child: have the loopback up, and be there until nobody needs a process to name the namespace by."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(writer)
        jail.loopback_up()
        os.read(reader, 1)
    finally:
        os._exit(0)


def admit(namespace: int) -> None:
    """Have the runsc that this process becomes use a namespace. Raises OSError."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.setns(namespace, kernel.CLONE_NEWNET)
        if os.path.exists(_OF_THE_HOST):
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            # Of this namespace and of these mounts only.
            kernel.mount("none", _SETTINGS, "tmpfs", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)
        kernel.setns(own, kernel.CLONE_NEWNET)
    finally:
        os.close(own)
