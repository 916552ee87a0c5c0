"""Export and import in a process of their own.

They mount things, and read what hostile code has made; the caller may have threads, and a life to go on with. What
they do ends with the caller.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from typing import Any, NoReturn

from .. import kernel
from ..layers import Layers
from ..layout import Layout
from . import Damaged

_FILE, _ANSWER = 3, 4
_HIGH = 16


def run(request: dict[str, Any], file: int) -> dict[str, Any]:
    """Have a request done with an open file; gives the answer: `ok`, or `error` with `code`, `message` and `errno`."""
    package_parent = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
    code = f"import sys; sys.path.append({package_parent!r}); from {__name__} import serve; serve({request!r})"
    reader, writer = os.pipe()
    source, feed = os.pipe()
    os.write(feed, code.encode(errors="surrogateescape"))
    os.close(feed)
    # Out of the way of the numbers that they get.
    numbers = {0: source, _FILE: file, _ANSWER: writer}
    given = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for number, fd in numbers.items()}
    python = getattr(sys, "_base_executable", None) or sys.executable
    # As `launch` does it.
    argv = [python, "-I", "-S", "-c", "exec(open(0).read())"]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in given.items()]
        pid = os.posix_spawn(python, argv, {"PATH": "/usr/bin:/bin"}, file_actions=actions)
    finally:
        for fd in (source, writer, *given.values()):
            os.close(fd)
    try:
        with open(reader, "rb") as pipe:
            answer = pipe.read()
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.waitpid(pid, 0)
    if not answer:
        return {"error": {"code": "sandbox_error", "message": "The work was ended from outside; try again."}}
    told: dict[str, Any] = json.loads(answer)
    return told


def serve(request: dict[str, Any]) -> NoReturn:
    """In that process: do it, answer, end."""
    answer: dict[str, Any] = {}
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.umask(0)
        answer = {"ok": _do(request)}
    except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it
        answer = {"error": _told(error)}
    finally:
        os.write(_ANSWER, json.dumps(answer).encode())
        os._exit(0)


def _do(request: dict[str, Any]) -> dict[str, Any]:
    places = Layout(request["home"], request["wall"])
    if request["do"] == "export":
        from ..places import Rules
        from .exporting import Exporter

        rules = Rules.of(request)
        with open(_FILE, "wb", buffering=1 << 20) as file:
            Exporter(places, Layers(places).snapshot(request["name"]), request["source"], rules, file).export()
            file.flush()
            os.fsync(_FILE)
        return {}
    from .importing import Importer

    return {"name": Importer(places, _FILE, request["name"], request["limit"]).run()}


def _told(error: BaseException) -> dict[str, Any]:
    from .capture import Unportable

    if isinstance(error, Damaged):
        return {"code": "invalid_input", "message": f"This file cannot be imported: {error}."}
    if isinstance(error, Unportable):
        return {"code": "unsupported", "message": str(error)}
    if isinstance(error, FileExistsError) and error.errno is None:
        return {"code": "invalid_input", "message": f"There is already a snapshot {error}; give it another name."}
    if isinstance(error, OSError):
        return {"code": "file_error", "message": f"{error.strerror or error}", "errno": error.errno or 5}
    import traceback

    traceback.print_exception(error)
    return {"code": "sandbox_error", "message": f"A mistake in atoll itself: {error!r}."}
