"""Reaching the zygote from a client, and starting it when there is none.

Many processes may want one at the same time: a lock decides who starts it, and all end with the same one.
"""

from __future__ import annotations

import glob
import os
import socket
import stat
import sys
import time

from ..errors import WallUnavailable
from . import messages
from .layout import VIEWS, Layout

_START_TIMEOUT = 30.0


def tag(environment: str = "") -> str:
    """Names the zygote that fits this atoll and this interpreter: after an upgrade a new one is started."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    python = os.stat(_interpreter())
    # An environment is a directory that is called by its key.
    key = os.path.basename(os.path.dirname(environment))
    return f"{messages.VERSION}-{os.stat(package).st_ino:x}-{python.st_ino:x}" + (f"-{key}" if key else "")


def _interpreter() -> str:
    return getattr(sys, "_base_executable", None) or sys.executable


def connect(home: str, environment: str = "") -> socket.socket:
    """A connection to the zygote, started if need be. May block for the time of a start.

    Sandboxes with packages have a zygote of their own; `environment` is the tree of these.

    Raises:
        WallUnavailable: it could not be started; the message says why.
    """
    path = f"{Layout(home).run}/zygote-{tag(environment)}"
    try:
        return messages.connect(path)
    except OSError:
        return _start_once(home, path, environment)


def _start_once(home: str, path: str, environment: str) -> socket.socket:
    import fcntl

    places = Layout(home)
    places.make()
    lock = os.open(f"{places.run}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return messages.connect(path)
        except FileNotFoundError:
            pass
        except OSError:
            os.unlink(path)
        _spawn(home, places, environment)
        return messages.connect(path)
    finally:
        os.close(lock)


def cloudpickle_directory() -> str:
    """Where this Python has cloudpickle, which is lent to contexts and never imported here; empty without it."""
    from importlib.util import find_spec

    spec = find_spec("cloudpickle")
    places = spec.submodule_search_locations if spec is not None else None
    return os.path.abspath(next(iter(places))) if places else ""


def _spawn(home: str, places: Layout, environment: str) -> None:
    """Start a zygote as a daemon of its own session and wait until it is ready."""
    reader, writer = os.pipe()
    log = os.open(f"{places.run}/zygote.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    source, feed = os.pipe()
    package_parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    arguments = (home, tag(environment), 3, cloudpickle_directory(), environment)
    daemon = f"from atoll.engine.zygote import daemon; daemon(*{arguments!r})"
    code = (
        f"import sys; sys.path.append({package_parent!r}); from atoll.engine.threshold import start; "
        f"start({daemon!r}, 3)"
    )
    # By pipe: a sandbox can read the arguments of its first process, and they shall not name the host's paths.
    os.write(feed, code.encode(errors="surrogateescape"))
    os.close(feed)
    python = _interpreter()
    actions = [
        (os.POSIX_SPAWN_DUP2, source, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
        (os.POSIX_SPAWN_DUP2, writer, 3),
    ]
    try:
        # -I and -S: nothing of the caller's environment, home or site-packages gets into the zygote.
        # Its own path as name: from any other Python would look for its library in the caller's directory.
        argv = [python, "-I", "-S", "-c", "exec(open(0).read())"]
        pid = os.posix_spawn(python, argv, {"PATH": "/usr/bin:/bin"}, file_actions=actions)
        os.close(writer)
        writer = -1
        os.waitpid(pid, 0)
        answer = _read_all(reader)
    finally:
        for fd in (reader, writer, log, source):
            if fd >= 0:
                os.close(fd)
    if answer != b"ok":
        reason = answer.decode(errors="replace") or f"see {places.run}/zygote.log"
        raise WallUnavailable(f"The jail cannot be built on this host: {reason}.", hint=_fix(reason))


def _fix(reason: str) -> str:
    """What to do about it."""
    from .probe import is_denied, namespace_fix

    if "unshare" in reason or is_denied(reason):
        return namespace_fix()
    return "Run `atoll doctor` to see what is missing."


def _read_all(reader: int) -> bytes:
    import select

    deadline = time.monotonic() + _START_TIMEOUT
    data = b""
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 4096)
        if not part:
            return data
        data += part
    return data or b"it did not start in time"


def shut_down(home: str) -> None:
    """End the zygotes and curators of this state directory, if there are any. Sandboxes live on; parked ones go."""
    own = f"zygote-{tag()}"
    try:
        names = os.listdir(Layout(home).run)
    except OSError:
        return
    for name in names:
        if name == own or name.startswith((f"{own}-", VIEWS)):
            _shut_down(f"{Layout(home).run}/{name}")


def stop_helpers(home: str) -> int:
    """End everything of a state directory that only waits to make sandboxes, of other versions of atoll too; how many
    were asked to end. What no sandbox uses goes with them: those that are parked. Living sandboxes go on."""
    asked = 0
    for path in sorted(glob.glob(f"{glob.escape(Layout(home).run)}/zygote-*")):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            _shut_down(path)
            asked += 1
    for path in sorted(glob.glob(f"{glob.escape(home)}/run/stewards-*")):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            # It looks now and then whether it can be found, and ends with all that it has made ahead when it cannot.
            os.unlink(path)
            asked += 1
    return asked


def shut_down_template(home: str, environment: str) -> None:
    """End the zygote of an environment, if there is one."""
    _shut_down(f"{Layout(home).run}/zygote-{tag(environment)}")


def _shut_down(path: str) -> None:
    try:
        with messages.connect(path) as sock:
            messages.send(sock, {"shutdown": True})
            sock.settimeout(5)
            sock.recv(1)
    except OSError:
        return
