"""Work that a keeper has done by a child of its own: all memory that it takes goes with the child."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from . import messages, staging
from .layers import Stack
from .restack import Mason, Sandbox, Wish
from .settings import BirthFailed, Settings

__all__ = ["Sandbox", "restack", "stage"]


def restack(settings: Settings, sandbox: Sandbox, request: dict[str, Any]) -> dict[str, Any]:
    """What to answer to a request to exchange what a sandbox stands on.

    Raises:
        KeyError, TypeError, ValueError: it makes no sense.
    """
    stack = Stack.from_json(request["stack"]) if request.get("stack") else None
    facts = dict(request.get("facts") or {})
    wish = Wish(str(request["kind"]), stack, bool(request.get("force")), str(request.get("name") or ""), facts)
    return in_child(lambda: {"ok": {"stack": Mason(settings, sandbox, wish).work().to_json()}})


def stage(settings: Settings, sandbox: Sandbox, client: socket.socket) -> dict[str, Any]:
    """Give a client descriptors of the workspace as the sandbox sees it, and of the layers with its changes.

    What to answer if that could not be done; nothing if it was.
    """

    def work() -> dict[str, Any]:
        fds = staging.descriptors(settings, sandbox)
        messages.send(client, {"ok": {"source": sandbox.source}}, *fds)
        return {"sent": True}

    answer = in_child(work)
    return {} if "sent" in answer else answer


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do some work in a fork; gives its answer, or the error that it ended with as one."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(reader)
        _tell(writer, work)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        return {"error": {"code": "sandbox_error", "message": "The work was ended from outside; try again."}}
    answer: dict[str, Any] = json.loads(data)
    return answer


def _tell(writer: int, work: Callable[[], dict[str, Any]]) -> NoReturn:
    answer: dict[str, Any] = {}
    try:
        answer = work()
    except (BirthFailed, OSError) as error:
        answer = {"error": {"code": getattr(error, "code", "sandbox_error"), "message": str(error)}}
    except BaseException as error:  # noqa: BLE001 - the one who waits must hear of it, and the log of the rest
        import traceback

        traceback.print_exc()
        answer = {"error": {"code": "sandbox_error", "message": f"A mistake in atoll itself: {error!r}."}}
    finally:
        with contextlib.suppress(OSError):
            os.write(writer, json.dumps(answer).encode())
        os._exit(0)
