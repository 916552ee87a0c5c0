"""Listening to a Jupyter kernel while it runs something. A part of the text of `programjupyter.py`."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
from typing import Any, Dict, Optional

from .programkernels import Kernel
from .programwire import REQUESTS, STDERR, STDOUT, Answers, KernelDied, Requests

RESULT_LIMIT = 1 << 20
TEXT_LIMIT = 60_000
POLL_MILLISECONDS = 100
AT_ONCE = 100
MARK = "\x00atoll "
END_OF_INPUT = "\x04"


class Story:
    """A request to the kernel, as far as it has come. Without `wanted` it is the time between two."""

    def __init__(self, wanted: Optional[str] = None, *, asks: bool = False) -> None:
        self.wanted = wanted
        self.asks = asks
        self.idle = False
        self.reply: Optional[Dict[str, Any]] = None
        self.error: Optional[Dict[str, str]] = None
        self.truncated = False


class Ears:
    """Hears the kernel, the guest, and signals, all at once."""

    def __init__(self, answers: Answers, requests: Requests, kernel: Kernel) -> None:
        self._answers = answers
        self._requests = requests
        self._kernel = kernel
        self._held: Any = None
        self._asked = 0
        self._question = ""
        self._interrupted = False
        self._wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGINT, self._note_interrupt)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        zmq = importlib.import_module("zmq")
        self._in, self._out = zmq.POLLIN, zmq.POLLOUT
        self._poller: Any = zmq.Poller()
        for channel in ("iopub", "shell", "stdin"):
            self._poller.register(getattr(kernel.client, channel + "_channel").socket, self._in)
        for fd in (REQUESTS, self._wake):
            self._poller.register(fd, self._in)
        self._pidfd = self._watch()

    def _watch(self) -> int:
        """A descriptor that tells of the kernel's end; -1 where it has to be asked for now and then."""
        try:
            pidfd = os.pidfd_open(self._kernel.pid) if self._kernel.pid else -1
        except (AttributeError, OSError):
            return -1
        if pidfd >= 0:
            self._poller.register(pidfd, self._in)
        return pidfd

    def _note_interrupt(self, _number: int, _frame: Any) -> None:
        self._interrupted = True

    def forget_interrupts(self) -> None:
        """Those that came before were not for what comes now."""
        self._interrupted = False

    def next_request(self) -> Optional[Dict[str, Any]]:
        """What the guest wants, waited for while the kernel is heard; None when the guest is gone."""
        between = Story()
        while True:
            request = self._requests.pop("code") or self._requests.pop("do")
            if request is not None or self._requests.ended:
                return request
            self.turn(between)

    def more(self) -> Dict[str, Any]:
        """Bytes that belong to a request. Raises KernelDied."""
        while True:
            message = self._requests.pop("bytes")
            if message is not None:
                return message
            if self._requests.ended:
                raise KernelDied("nobody wants it any more")
            self.turn(Story())

    def follow(self, story: Story) -> Dict[str, Any]:
        """Listen until a request is over; gives the content of the kernel's reply. Raises KernelDied."""
        while story.reply is None or not story.idle:
            if self._interrupted:
                self._interrupted = False
                self._kernel.interrupt()
            self.turn(story)
            if self._requests.ended:
                raise KernelDied("nobody wants it any more")
        return story.reply

    def turn(self, story: Story) -> None:
        """Wait for something, and deal with it. What is shown comes before questions, and these before the end."""
        if self._answers.waiting:
            self._poller.register(self._answers.fileno(), self._out)
        ready = dict(self._poller.poll(POLL_MILLISECONDS if self._pidfd < 0 else None))
        if self._answers.fileno() in ready:
            self._poller.unregister(self._answers.fileno())
            self._answers.pump()
        if self._wake in ready:
            os.read(self._wake, 1 << 10)
        if REQUESTS in ready:
            self._requests.read()
            self._reply()
        self._hear_kernel(story)
        if not ready or self._pidfd in ready:
            self._check(story)

    def _check(self, story: Story) -> None:
        """A kernel that has died may have said something before. Raises KernelDied."""
        try:
            self._kernel.check()
        except KernelDied:
            while self._kernel.has_said_more():
                self._hear_kernel(story)
            raise

    def _hear_kernel(self, story: Story) -> None:
        for _ in range(AT_ONCE):
            message = None if story.idle else self._kernel.receive("iopub")
            if message is None:
                break
            self._hear(message, story)
        question = self._kernel.receive("stdin")
        if question is not None and question["msg_type"] == "input_request":
            self._pass_on(str(question["content"].get("prompt", "")), story)
        reply = self._kernel.receive("shell")
        if reply is not None and reply["parent_header"].get("msg_id") == story.wanted:
            story.reply = reply["content"]

    def _hear(self, message: Dict[str, Any], story: Story) -> None:
        content, kind = message["content"], message["msg_type"]
        if kind != "status":
            self.release(story, main=False)
        if kind == "stream":
            self._answers.output(STDERR if content["name"] == "stderr" else STDOUT, content["text"])
        elif message["parent_header"].get("msg_id") != story.wanted:
            return
        elif kind in ("display_data", "execute_result", "update_display_data"):
            self._held = content["data"]
            if kind == "execute_result":
                self.release(story, main=True)
        elif kind == "error":
            story.error = error_of(content)
        elif kind == "status":
            story.idle = content["execution_state"] == "idle"

    def _pass_on(self, prompt: str, story: Story) -> None:
        """A question to whoever runs the cell: for input, or to a tool of the host."""
        if prompt.startswith(MARK):
            self._question, question = "tool", json.loads(prompt[len(MARK) :])
        elif story.asks:
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
            message = self._requests.pop("call")
            if message is None:
                return
            reply = message["call"]
            if not isinstance(reply, dict) or reply.get("answer") != self._asked or not self._question:
                continue
            if self._question == "tool":
                self._kernel.client.input(json.dumps(reply))
            else:
                self._kernel.client.input(str(reply["value"]) if "value" in reply else END_OF_INPUT)
            self._question = ""

    def release(self, story: Story, *, main: bool) -> None:
        """Show what came last."""
        held, self._held = self._held, None
        if held is not None:
            self._show(held, main, story)

    def _show(self, data: Dict[str, Any], main: bool, story: Story) -> None:
        """What is too large for a result goes, the largest first."""
        bundle = dict(data)
        while bundle and len(json.dumps(bundle)) > RESULT_LIMIT:
            largest = max(bundle, key=lambda kind: len(json.dumps(bundle[kind])))
            story.truncated = True
            if largest == "text/plain":
                bundle[largest] = str(bundle[largest])[:TEXT_LIMIT]
            else:
                del bundle[largest]
        self._answers.tell({"result": bundle, "main": main})


def error_of(content: Dict[str, Any]) -> Dict[str, str]:
    """What went wrong, as a message of the kernel says it."""
    name, value = str(content.get("ename")), str(content.get("evalue"))
    return described(name, value, "\n".join(content.get("traceback") or ["%s: %s" % (name, value)]) + "\n")


def described(name: str, value: str, story: str) -> Dict[str, str]:
    plain = re.sub("\x1b\\[[0-9;]*m", "", story)
    return {"name": name[:200], "value": value[:TEXT_LIMIT], "traceback": plain[-TEXT_LIMIT:]}
