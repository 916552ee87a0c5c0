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
import re
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from .programkernels import Kernel
from .programwire import (
    ANSWERS,
    BULK,
    END,
    EVENT,
    REQUESTS,
    STDERR,
    STDOUT,
    TEXT,
    Answers,
    KernelDied,
    Requests,
    Unsupported,
)

RESULT_LIMIT = 1 << 20
TEXT_LIMIT = 60_000
POLL_MILLISECONDS = 100
MARK = "\x00atoll "
LAST_LINE = b"\n#given "
END_OF_INPUT = "\x04"
MAX_MESSAGE = 1 << 17


class Bridge:
    """Serves the guest until it hangs up."""

    def __init__(self, kernel: str) -> None:
        self._name = kernel
        self._answers = Answers()
        self._requests = Requests()
        self._kernel: Any = None
        self._poller: Any = None
        self._held: Any = None
        self._helped = False
        self._tools: List[str] = []
        self._asked = 0
        self._question = ""
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._interrupted = False
        signal.signal(signal.SIGINT, self._note_interrupt)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)

    def _note_interrupt(self, _number: int, _frame: Any) -> None:
        self._interrupted = True

    def be_born(self) -> None:
        """Say who this is, and wait until the guest has taken notice."""
        self._answers.say(EVENT, {"born": os.getpid()})
        if not self._requests.await_go():
            os._exit(0)

    def serve(self) -> None:
        failure: Optional[Unsupported] = None
        try:
            self._start()
        except Unsupported as error:
            failure = error
        except KernelDied as error:
            self._answers.say(EVENT, {"death": str(error)})
            return
        while True:
            request = self._requests.next()
            if request is None:
                break
            if "code" not in request and "do" not in request:
                continue  # it belongs to one that is over
            try:
                if failure is not None:
                    raise failure
                answer = self._run(request) if "code" in request else self._do(request)
            except Unsupported as error:
                answer = _refusal(request, str(error))
            except KernelDied as error:
                self._answers.say(EVENT, {"death": str(error)})
                break
            self._answers.say(END, answer)
        if self._kernel is not None:
            self._kernel.close()

    def _start(self) -> None:
        self._kernel = Kernel(self._name)
        zmq = importlib.import_module("zmq")
        self._poller = zmq.Poller()
        for channel in ("iopub", "shell", "stdin"):
            self._poller.register(getattr(self._kernel.client, channel + "_channel").socket, zmq.POLLIN)
        self._poller.register(REQUESTS, zmq.POLLIN)
        self._poller.register(self._wake, zmq.POLLIN)

    def _run(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """A cell."""
        state: Dict[str, Any] = {"error": None, "truncated": False}
        self._kernel.check()
        entered = bool(request.get("env") or request.get("cwd"))
        if (entered or request.get("tools")) and not self._kernel.is_python:
            raise Unsupported(
                "A cell of this kernel has no env, workdir or tools of its own; set them in the code, or use one of "
                "Python's."
            )
        offered = request.get("tools") or []
        if offered != self._tools:
            self._ask({"do": "offer", "names": offered})
            self._tools = offered
        if entered:
            self._ask({"do": "enter", "env": request.get("env"), "cwd": request.get("cwd")})
        self._interrupted = False
        asks = bool(request.get("input") or offered)
        wanted = self._kernel.client.execute(request["code"], allow_stdin=asks, stop_on_error=False)
        self._answers.say(EVENT, {"begun": True})
        reply = self._follow(wanted, state, input=bool(request.get("input")))
        if reply.get("status") == "error" and state["error"] is None:
            state["error"] = _error_of(reply)
        # Kernels other than Python's show the value of a cell as they show anything else: it is what they show last.
        self._release(state, main=state["error"] is None and not self._kernel.is_python)
        if entered:
            self._ask({"do": "leave"})
        return state

    def _do(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Anything else that a context does. Only Python's kernels do."""
        self._kernel.check()
        if request["do"] != "variables" or not self._kernel.is_python:
            raise Unsupported("A context of this Jupyter kernel can only run code.")
        data = bytearray()
        while len(data) < request.get("size", 0):
            more = self._requests.next()
            if more is None:
                raise KernelDied("nobody wants it any more")
            data += more.get("data", b"")
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
        wanted = client.execute("", silent=True, user_expressions={"a": expression}, allow_stdin=False)
        reply = self._follow(wanted, {"error": None, "truncated": False}, input=False)
        value = reply.get("user_expressions", {}).get("a", {})
        if value.get("status") != "ok":
            raise Unsupported("The kernel cannot do this: %s: %s." % (value.get("ename"), value.get("evalue")))
        text: str = value["data"]["text/plain"]
        return text

    def _follow(self, wanted: str, state: Dict[str, Any], *, input: bool) -> Dict[str, Any]:
        """Listen until a request is over; gives the content of the kernel's reply. Raises KernelDied."""
        state.update(wanted=wanted, idle=False, reply=None, input=input)
        while not (state["idle"] and state["reply"] is not None):
            if self._interrupted:
                self._interrupted = False
                self._kernel.interrupt()
            if not self._poller.poll(POLL_MILLISECONDS):
                self._kernel.check()
            self._listen(state)
        reply: Dict[str, Any] = state.pop("reply")
        for name in ("wanted", "idle", "input"):
            del state[name]
        return reply

    def _listen(self, state: Dict[str, Any]) -> None:
        """Deal with what has come: what is shown before questions, and these before the end."""
        if self._wake in dict(self._poller.poll(0)):
            os.read(self._wake, 1 << 10)
        while not state["idle"]:
            message = self._kernel.receive("iopub")
            if message is None:
                break
            self._hear(message, state)
        question = self._kernel.receive("stdin")
        if question is not None and question["msg_type"] == "input_request":
            self._pass_on(str(question["content"].get("prompt", "")), state)
        if REQUESTS in dict(self._poller.poll(0)):
            self._requests.read()
            if self._requests.ended:
                raise KernelDied("nobody wants it any more")
            self._reply()
        reply = self._kernel.receive("shell")
        if reply is not None and reply["parent_header"].get("msg_id") == state["wanted"]:
            state["reply"] = reply["content"]

    def _hear(self, message: Dict[str, Any], state: Dict[str, Any]) -> None:
        content, kind = message["content"], message["msg_type"]
        if kind != "status":
            self._release(state, main=False)
        if kind == "stream":
            self._answers.output(STDERR if content["name"] == "stderr" else STDOUT, content["text"])
        elif message["parent_header"].get("msg_id") != state["wanted"]:
            return
        elif kind in ("display_data", "execute_result", "update_display_data"):
            self._held = content["data"]
            if kind == "execute_result":
                self._release(state, main=True)
        elif kind == "error":
            state["error"] = _error_of(content)
        elif kind == "status":
            state["idle"] = content["execution_state"] == "idle"

    def _pass_on(self, prompt: str, state: Dict[str, Any]) -> None:
        """A question to whoever runs the cell: for input, or to a tool of the host."""
        if prompt.startswith(MARK):
            self._question, question = "tool", json.loads(prompt[len(MARK) :])
        elif state["input"]:
            self._question, question = "input", {"input": prompt[:TEXT_LIMIT]}
            self._answers.output(STDOUT, prompt)
        else:
            self._kernel.client.input(END_OF_INPUT)
            return
        self._asked += 1
        self._answers.tell({"ask": self._asked, "question": question})

    def _reply(self) -> None:
        """What the host answers. An answer to a question that was given up is not the one."""
        while True:
            message = self._requests.pop()
            if message is None:
                return
            reply = message.get("call")
            if not isinstance(reply, dict) or reply.get("answer") != self._asked or not self._question:
                continue
            if self._question == "tool":
                self._kernel.client.input(json.dumps(reply))
            else:
                self._kernel.client.input(str(reply["value"]) if "value" in reply else END_OF_INPUT)
            self._question = ""

    def _release(self, state: Dict[str, Any], *, main: bool) -> None:
        """Show what came last."""
        held, self._held = self._held, None
        if held is not None:
            self._show(held, main, state)

    def _show(self, data: Dict[str, Any], main: bool, state: Dict[str, Any]) -> None:
        """What is too large for a result goes, the largest first."""
        bundle = dict(data)
        while bundle and len(json.dumps(bundle)) > RESULT_LIMIT:
            largest = max(bundle, key=lambda kind: len(json.dumps(bundle[kind])))
            state["truncated"] = True
            if largest == "text/plain":
                bundle[largest] = str(bundle[largest])[:TEXT_LIMIT]
            else:
                del bundle[largest]
        self._answers.tell({"result": bundle, "main": main})


def _given() -> bytes:
    """What a Python kernel runs to be able to help, from the last line of this text."""
    size = os.fstat(TEXT).st_size
    given = json.loads(os.pread(TEXT, size, 0).rpartition(LAST_LINE)[2])
    kernel: str = given.pop("kernel")
    return kernel.replace("SOURCES: Dict[str, str] = {}", "SOURCES = %r" % given).encode("utf-8")


def _decoded(text: bytes) -> str:
    return "__import__('base64').b64decode('%s').decode()" % base64.b64encode(text).decode("ascii")


def _refusal(request: Dict[str, Any], text: str) -> Dict[str, Any]:
    if "do" in request:
        return {"error": {"code": "unsupported", "message": text}}
    return {"error": _error("Unsupported", text, "Unsupported: %s\n" % text)}


def _error_of(content: Dict[str, Any]) -> Dict[str, str]:
    name, value = str(content.get("ename")), str(content.get("evalue"))
    return _error(name, value, "\n".join(content.get("traceback") or ["%s: %s" % (name, value)]) + "\n")


def _error(name: str, value: str, story: str) -> Dict[str, str]:
    plain = re.sub("\x1b\\[[0-9;]*m", "", story)
    return {"name": name[:200], "value": value[:TEXT_LIMIT], "traceback": plain[-TEXT_LIMIT:]}


def nest() -> None:
    """Make bridges until the guest is gone. They are orphans at once, so that they become the guest's children."""
    line = socket.socket(fileno=ANSWERS)
    os.set_inheritable(ANSWERS, False)
    for name in ("jupyter_client.manager", "jupyter_client.kernelspec", "jupyter_client.blocking.client"):
        importlib.import_module(name)
    for name in ("ipykernel.kernelapp", "ipykernel.zmqshell", "IPython.core.completerlib"):
        try:
            importlib.import_module(name)
        except ImportError:
            break  # there are only other kernels
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
