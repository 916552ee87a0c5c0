"""A bridge to a Jupyter kernel, run by a Python of the sandbox: `programdriver.py` starts it and speaks to it.

It is text to the guest, never imported there. Requests come on descriptor 5, answers go out on descriptor 3.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import re
import shutil
import signal
import socket
import struct
import tempfile
from typing import Any, Dict

DATA, EVENT, END = 3, 5, 8
STDOUT, STDERR = 1, 2
PACKET, MORE = 1 << 16, 1
RESULT_LIMIT = 500_000
TEXT_LIMIT = 60_000
READY_SECONDS = 60
POLL_SECONDS = 0.1


class Unsupported(Exception):
    """Something is missing; the text says how to get it."""


class KernelDied(Exception):
    """It is gone, and its variables."""


class Answers:
    """The way back to the guest."""

    def __init__(self) -> None:
        self._sock = socket.socket(fileno=3)
        os.set_inheritable(3, False)

    def _put(self, kind: int, payload: bytes, stream: int = 0) -> None:
        self._sock.send(struct.pack("<IIBB", len(payload), 0, kind, stream) + payload)

    def say(self, kind: int, value: Dict[str, Any]) -> None:
        payload = json.dumps(value, separators=(",", ":")).encode("ascii")
        start = 0
        while len(payload) - start > PACKET:
            self._put(kind, payload[start : start + PACKET], MORE)
            start += PACKET
        self._put(kind, payload[start:])

    def output(self, stream: int, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        for start in range(0, len(data), PACKET):
            self._put(DATA, data[start : start + PACKET], stream)


class Kernel:
    """A kernel that runs, and a client of it."""

    def __init__(self, name: str) -> None:
        try:
            specs = importlib.import_module("jupyter_client.kernelspec")
            manager = importlib.import_module("jupyter_client.manager")
        except ImportError:
            raise Unsupported(
                "jupyter:%s needs jupyter_client and the kernel inside the sandbox: make it with "
                'packages=["ipykernel"], or use an image that has them.' % name
            ) from None
        self._directory = tempfile.mkdtemp(prefix="kernel-")
        os.environ["JUPYTER_RUNTIME_DIR"] = self._directory
        self._manager: Any = manager.KernelManager(kernel_name=name)
        self._manager.connection_file = os.path.join(self._directory, "k.json")
        try:
            language: str = self._manager.kernel_spec.language
        except specs.NoSuchKernel:
            shutil.rmtree(self._directory, ignore_errors=True)
            found = ", ".join(sorted(specs.KernelSpecManager().find_kernel_specs())) or "none"
            raise Unsupported(
                "There is no Jupyter kernel %r inside the sandbox; those that there are: %s. "
                'packages=["ipykernel"] brings python3.' % (name, found)
            ) from None
        self.is_python = language.lower() == "python"
        if language.lower() != "r":  # whose kernel knows no other transport
            self._manager.transport = "ipc"
            self._manager.ip = os.path.join(self._directory, "k")
        self._manager.start_kernel()
        self.client: Any = self._manager.blocking_client()
        self.client.start_channels()
        self._await()

    def _await(self) -> None:
        try:
            self.client.wait_for_ready(timeout=READY_SECONDS)
        except RuntimeError as error:
            raise KernelDied("the kernel did not start: %s" % error) from None

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def check(self) -> None:
        """Raises KernelDied."""
        if not self._manager.is_alive():
            raise KernelDied("the kernel has died")

    def close(self) -> None:
        try:
            self._manager.shutdown_kernel(now=True)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


class Bridge:
    """Serves the guest until it hangs up."""

    def __init__(self) -> None:
        self._answers = Answers()
        self._requests = os.fdopen(5, "rb")
        os.set_inheritable(5, False)
        self._kernel: Any = None
        self._held: Any = None
        self._interrupted = False
        signal.signal(signal.SIGINT, self._note_interrupt)

    def _note_interrupt(self, _number: int, _frame: Any) -> None:
        self._interrupted = True

    def serve(self) -> None:
        while True:
            head = self._requests.read(4)
            if len(head) < 4:
                break
            request = json.loads(self._requests.read(struct.unpack("<I", head)[0]))
            try:
                answer = self._run(request)
            except Unsupported as error:
                answer = {"error": _error("Unsupported", str(error), "Unsupported: %s\n" % error)}
            except KernelDied as error:
                self._answers.say(EVENT, {"death": str(error)})
                break
            self._answers.say(END, answer)
        if self._kernel is not None:
            self._kernel.close()

    def _run(self, request: Dict[str, Any]) -> Dict[str, Any]:
        if request.get("env") or request.get("cwd") is not None:
            raise Unsupported("A cell of a Jupyter kernel has no env or workdir of its own; set them in the code.")
        if self._kernel is None:
            self._kernel = Kernel(request["kernel"])
        self._kernel.check()
        self._interrupted = False
        wanted = self._kernel.client.execute(request["code"], allow_stdin=False)
        self._answers.say(EVENT, {"begun": True})
        state: Dict[str, Any] = {"error": None, "truncated": False}
        while self._listen(wanted, state):
            pass
        # Kernels other than Python's show the value of a cell as they show anything else: it is what they show last.
        self._release(state, main=state["error"] is None and not self._kernel.is_python)
        return state

    def _listen(self, wanted: str, state: Dict[str, Any]) -> bool:
        """Deal with one message; False after the last one of the cell."""
        if self._interrupted:
            self._interrupted = False
            self._kernel.interrupt()
        try:
            message = self._kernel.client.get_iopub_msg(timeout=POLL_SECONDS)
        except queue.Empty:
            self._kernel.check()
            return True
        except InterruptedError:
            return True
        content, kind = message["content"], message["msg_type"]
        if kind != "status":
            self._release(state, main=False)
        if kind == "stream":
            self._answers.output(STDERR if content["name"] == "stderr" else STDOUT, content["text"])
        elif message["parent_header"].get("msg_id") != wanted:
            return True
        elif kind in ("display_data", "execute_result", "update_display_data"):
            self._held = content["data"]
            if kind == "execute_result":
                self._release(state, main=True)
        elif kind == "error":
            state["error"] = _error(content["ename"], content["evalue"], "\n".join(content["traceback"]) + "\n")
        return not (kind == "status" and content["execution_state"] == "idle")

    def _release(self, state: Dict[str, Any], *, main: bool) -> None:
        """Show what came last."""
        held, self._held = self._held, None
        if held is not None:
            self._show(held, main, state)

    def _show(self, data: Dict[str, Any], main: bool, state: Dict[str, Any]) -> None:
        """What is too large for an event goes, the largest first."""
        bundle = dict(data)
        while bundle and len(json.dumps(bundle)) > RESULT_LIMIT:
            largest = max(bundle, key=lambda kind: len(json.dumps(bundle[kind])))
            state["truncated"] = True
            if largest == "text/plain":
                bundle[largest] = str(bundle[largest])[:TEXT_LIMIT]
            else:
                del bundle[largest]
        self._answers.say(EVENT, {"result": bundle, "main": main})


def _error(name: str, value: str, story: str) -> Dict[str, str]:
    plain = re.sub("\x1b\\[[0-9;]*m", "", story)
    return {"name": name[:200], "value": value[:TEXT_LIMIT], "traceback": plain[-TEXT_LIMIT:]}


if __name__ == "__main__":
    Bridge().serve()
