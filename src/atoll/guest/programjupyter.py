"""A bridge to a Jupyter kernel, run by a Python of the sandbox: `kernellink.py` starts it and speaks to it.

It is text to the guest, never imported there; descriptor 4 is the file that has it, with what a Python kernel is given
in its last line. Requests come on descriptor 5, answers go out on descriptor 3. As a nest it makes forks of itself,
each a bridge, for whom everything is imported already; requests for these come on descriptor 3.
"""

from __future__ import annotations

import ast
import base64
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NoReturn, Tuple

from .programears import Ears, Story, error_of
from .programkernels import CHARTS, STREAMS, Kernel
from .programwire import ANSWERS, BULK, END, EVENT, REQUESTS, TEXT, Answers, KernelDied, Requests, Unsupported

LAST_LINE = b"\n#given "
MAX_MESSAGE = 1 << 17
PRELOADED = (
    "jupyter_client.manager",
    "jupyter_client.kernelspec",
    "jupyter_client.blocking.client",
    "ipykernel.kernelapp",
    "ipykernel.debugger",
    "ipykernel.zmqshell",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.extensions.storemagic",
    "psutil",
    "tornado.platform.asyncio",
    "faulthandler",
    "unicodedata",
)


class Bridge:
    """Serves the guest until it hangs up."""

    def __init__(self, kernel: str) -> None:
        # Not ignored: what is started would inherit that.
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
        self._name = kernel
        self._answers = Answers()
        self._requests = Requests()
        self._kernel: Any = None
        self._ears: Any = None
        self._helped = False
        self._tools: List[str] = []

    def be_born(self) -> None:
        """Say who this is, and wait until the guest has taken notice."""
        self._answers.say(EVENT, {"born": os.getpid()})
        if not self._requests.await_go():
            os._exit(0)

    def serve(self) -> None:
        try:
            self._start()
            while self._serve_one():
                pass
        except Unsupported as error:
            self._refuse_all(str(error))
        except KernelDied as error:
            self._answers.say(EVENT, {"death": str(error)})
        except OSError:
            pass  # the guest is gone
        self._answers.finish()
        if self._kernel is not None:
            self._kernel.close()

    def _start(self) -> None:
        self._kernel = Kernel(self._name)
        self._ears = Ears(self._answers, self._requests, self._kernel)
        if self._kernel.has_streams:
            self._evaluate("exec(%r, {})" % STREAMS)
        if self._kernel.is_python:
            self._evaluate("exec(%r, {'TEXT': %s})" % (CHARTS, _decoded(_given())))

    def _serve_one(self) -> bool:
        request = self._ears.next_request()
        if request is None:
            return False
        try:
            answer = self._run(request) if "code" in request else self._do(request)
        except Unsupported as error:
            answer = _refusal(request, str(error))
        self._answers.say(END, answer)
        return True

    def _refuse_all(self, reason: str) -> None:
        """There is no kernel, and everything is answered with the reason."""
        while True:
            request = self._requests.next()
            if request is None:
                return
            if "code" in request or "do" in request:
                self._answers.say(END, _refusal(request, reason))

    def _run(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """A cell."""
        entered = bool(request.get("env") or request.get("cwd"))
        offered = request.get("tools") or []
        if (entered or offered) and not self._kernel.is_python:
            raise Unsupported(
                "A cell of this kernel has no env, workdir or tools of its own; set them in the code, or use one of "
                "Python's."
            )
        if offered != self._tools:
            self._ask({"do": "offer", "names": offered})
            self._tools = offered
        if entered:
            self._ask({"do": "enter", "env": request.get("env"), "cwd": request.get("cwd")})
        self._ears.forget_interrupts()
        asks = bool(request.get("input"))
        wanted = self._kernel.client.execute(request["code"], allow_stdin=asks or bool(offered), stop_on_error=False)
        self._answers.say(EVENT, {"begun": True})
        story = Story(wanted, asks=asks)
        reply = self._ears.follow(story)
        if reply.get("status") == "error" and story.error is None:
            story.error = error_of(reply)
        # Kernels other than Python's show the value of a cell as they show anything else: it is what they show last.
        self._ears.release(story, main=story.error is None and not self._kernel.is_python)
        if entered:
            self._ask({"do": "leave"})
        cut, self._answers.cut = self._answers.cut, False
        return {"error": story.error, "truncated": story.truncated or cut}

    def _do(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Anything else that a context does. Only Python's kernels do."""
        if request["do"] != "variables" or not self._kernel.is_python:
            raise Unsupported("A context of this Jupyter kernel can only run code.")
        data = bytearray()
        while len(data) < request.get("size", 0):
            data += self._ears.more().get("data", b"")
        self._ears.forget_interrupts()
        self._answers.say(EVENT, {"begun": True})
        answer, sent = self._ask(request, bytes(data))
        self._answers.data(BULK, sent)
        return answer

    def _ask(self, request: Dict[str, Any], data: bytes = b"") -> Tuple[Dict[str, Any], bytes]:
        """Have the helper in the kernel do something; gives its answer, and bytes."""
        if not self._helped:
            self._evaluate("exec(%s, %s)" % (_decoded(_given()), "{'__name__': '_atoll'}"))
            self._helped = True
        encoded = base64.b64encode(json.dumps(request).encode("ascii") + b"\n" + data).decode("ascii")
        answered = self._evaluate("__import__('sys').modules['_atoll'].helper.ask('%s')" % encoded)
        head, _, sent = base64.b64decode(ast.literal_eval(answered)).partition(b"\n")
        return json.loads(head), sent

    def _evaluate(self, expression: str) -> str:
        """The text of a value, without a trace in the kernel."""
        client = self._kernel.client
        reply = self._ears.follow(
            Story(client.execute("", silent=True, user_expressions={"a": expression}, allow_stdin=False))
        )
        value = reply.get("user_expressions", {}).get("a", {})
        if value.get("status") != "ok":
            raise Unsupported("The kernel cannot do this: %s: %s." % (value.get("ename"), value.get("evalue")))
        text: str = value["data"]["text/plain"]
        return text


def _given() -> bytes:
    """What a Python kernel runs to be able to help, from the last line of this text."""
    size = os.fstat(TEXT).st_size
    given = json.loads(os.pread(TEXT, size, 0).rpartition(LAST_LINE)[2])
    kernel: str = given.pop("kernel")
    return kernel.replace("SOURCES: Dict[str, str] = {}", "SOURCES = %r" % given).encode("utf-8")


def _decoded(text: bytes) -> str:
    return "__import__('base64').b64decode('%s').decode()" % base64.b64encode(text).decode("ascii")


def _refusal(request: Dict[str, Any], text: str) -> Dict[str, Any]:
    error = {"code": "unsupported", "message": text}
    return {"error": error} if "do" in request else {"refused": error}


def nest() -> None:
    """Make bridges until the guest is gone. They are orphans at once, so that they become the guest's children."""
    line = socket.socket(fileno=ANSWERS)
    os.set_inheritable(ANSWERS, False)
    _import_all()
    gc.collect()
    gc.freeze()
    while True:
        data, ancillary, _, _ = line.recvmsg(MAX_MESSAGE, socket.CMSG_SPACE(32), socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        raw = ancillary[0][2]
        fds = [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]
        child = os.fork()
        if child == 0:
            if os.fork():
                os._exit(0)
            _hatch(json.loads(data), fds)
        os.waitpid(child, 0)
        for fd in fds:
            os.close(fd)


def _import_all() -> None:
    """What is missing is missed later, by whoever needs it."""
    modules: Dict[str, Any] = dict(sys.modules)
    # Nobody debugs by this way, and its debugger would be half of a kernel's start.
    hidden = modules.get("debugpy") is None
    if hidden:
        sys.modules["debugpy"] = None  # type: ignore[assignment]
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    if hidden:
        del sys.modules["debugpy"]


def _hatch(order: Dict[str, Any], fds: List[int]) -> NoReturn:
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(order["env"])
        time.tzset()
        answers, requests, stdout, stderr, directory = fds
        os.fchdir(directory)
        above = [os.dup2(fd, 100 + at) for at, fd in enumerate((answers, requests, stdout, stderr))]
        for fd, number in zip(above, (ANSWERS, REQUESTS, 1, 2)):
            os.dup2(fd, number)
        os.closerange(REQUESTS + 1, 1 << 16)
        bridge = Bridge(order["kernel"])
        bridge.be_born()
        bridge.serve()
    finally:
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["nest"]:
        nest()
    else:
        Bridge(sys.argv[1]).serve()
