"""The first process of a sandbox: closes the wall around itself, then is the guest."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from ..guest import contextprocess
from ..guest.config import Config
from ..guest.server import Server
from . import jail, kernel, layout, messages, rootfs
from .cgroups import pass_through
from .settings import Settings

# It is seen from inside, too, and tells nothing there.
GUEST = "atoll: guest"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def live(settings: Settings, uid: int, control: socket.socket, doors: list[int]) -> NoReturn:
    """Wait until the midwife has furnished this process's namespaces, then close the wall and serve.

    It enters its control group by itself: for a process alone that is quick, from outside it may take long. By
    `doors` that were open before: the host's files may be gone from here at any time.
    """
    try:
        kernel.name_process("python3", GUEST)
        _leave_the_keepers_session()
        pass_through(doors)
        silence((control.fileno(),))
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        message, fds = messages.receive(control)
        job = message["job"]
        score = jail.close(
            job, settings.filter_code, uid=uid, rootless=settings.rootless, landlock_abi=settings.landlock
        )
        server = Server(control, config(settings, job), score, fds[0] if fds else None)
        if job["prefork"]:
            server.prefork_context()
        messages.send(control, {"closed": True})
    except messages.Ended:
        os._exit(1)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
        _report(control, error)
    try:
        server.run()
    finally:
        os._exit(0)


def _leave_the_keepers_session() -> None:
    """Where no control group says otherwise, the kernel gives each session the same share of the processors: with all
    in one, a sandbox of hundreds of processes would leave its keeper, and others', a hundredth of them."""
    os.setsid()


def silence(kept: tuple[int, ...]) -> None:
    """Close every descriptor but some, and have nothing as input and output.

    The zygote's log is a host file, which a guest could fill the disk with; whatever else was open is not its business.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    kernel.close_from(3, kept)


def live_nursed(settings: Settings, control: socket.socket, rehearse: Callable[[], None]) -> NoReturn:
    """The same in a process that a nursery has forked: hostile already, and furnished and looked at from outside.

    While it is parked, its context rehearses.
    """
    try:
        kernel.name_process("python3", GUEST)
        _leave_the_keepers_session()
        kernel.close_from(3, (control.fileno(),))
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        # By this the midwife learns who it is.
        messages.send(control, {"born": True})
        message, fds = messages.receive(control)
        job = message["job"]
        jail.close_nursed(job, settings.filter_code, landlock_abi=settings.landlock)
        messages.send(control, {"closed": True})
        # Alone, and with nothing that is not needed, until the midwife has looked.
        messages.receive(control)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        server = Server(control, config(settings, job), *fds[:2])
        contextprocess.rehearsal = rehearse if job["parked"] else None
        server.prefork_context()
        contextprocess.rehearsal = None
        messages.send(control, {"serving": True})
    except messages.Ended:
        os._exit(1)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the maker must hear of it
        _report(control, error)
    try:
        server.run()
    finally:
        os._exit(0)


def _report(control: socket.socket, error: BaseException) -> NoReturn:
    try:
        messages.send(control, {"failed": f"The wall could not be closed: {error}."})
    finally:
        os._exit(1)


def environment(settings: Settings, job: dict[str, Any]) -> dict[str, str]:
    """The whole environment of a sandbox's processes: nothing of the host's."""
    prefix = os.path.dirname(settings.python)
    own = f"{layout.HOME_INSIDE}/.local/bin"
    shown = [] if job["image"] or prefix in _PATH.split(":") else [prefix]
    places = [own, f"{layout.PACKAGES}/bin", *shown] if job["environment"] else [*shown, own]
    path = ":".join([*places, _PATH])
    return {
        "PATH": path,
        "HOME": layout.HOME_INSIDE,
        "USER": layout.USER_NAME,
        "LOGNAME": layout.USER_NAME,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        **job["env"],
    }


def config(settings: Settings, job: dict[str, Any]) -> Config:
    """What the guest of a sandbox is told."""
    library = rootfs.IMAGE_LIBRARY
    in_image = [library, f"{library}/lib-dynload", f"{library}/site-packages"]
    return Config(
        workdir=job["workdir"],
        env=environment(settings, job),
        root="/",
        home=layout.HOME_INSIDE,
        image=bool(job["image"]),
        python="" if job["image"] else _python(settings, job),
        python_path=in_image if job["image"] else python_path(settings, packages=bool(job["environment"])),
    )


def _python(settings: Settings, job: dict[str, Any]) -> str:
    """What a cell starts when it starts Python: the one that sees the packages."""
    return f"{layout.PACKAGES}/bin/{os.path.basename(settings.python)}" if job["environment"] else settings.python


def python_path(settings: Settings, *, packages: bool) -> list[str]:
    """The standard library, what `install` adds, what the sandbox was made with, and what the host's Python has."""
    version = os.path.basename(settings.python)
    *library, site = settings.python_path
    made_with = [f"{layout.PACKAGES}/lib/{version}/site-packages"] if packages else []
    return [*library, f"{layout.HOME_INSIDE}/.local/lib/{version}/site-packages", *made_with, site]
