"""What a Python kernel of Jupyter is given for whatever is more than code: variables, surroundings, tools of the host.

It is text to the guest, never imported there: `programjupyter.py` has the kernel run it when it is first needed.
`SOURCES` is filled in by then: the modules of ours that it needs, by name.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import json
import os
import sys
import types
from typing import Any, Dict, List, Optional, Tuple

MARK = "\x00atoll "
"""Begins a prompt that is no prompt but a question to the host."""

SOURCES: Dict[str, str] = {}
NAME = "_atoll"
_NOTHING = object()


def _load() -> Any:
    """Our modules, under a name that no code of a cell meets by accident."""
    for name in (NAME, NAME + ".wire", NAME + ".guest"):
        package = types.ModuleType(name)
        package.__dict__.update(__path__=[], __package__=name)
        sys.modules[name] = package
        if name != NAME:
            setattr(sys.modules[NAME], name.rpartition(".")[2], package)
    for path, source in SOURCES.items():
        name = "%s.%s" % (NAME, path)
        parent, _, last = name.rpartition(".")
        module = types.ModuleType(name)
        module.__dict__["__package__"] = parent
        sys.modules[name] = module
        exec(compile(source, "<%s>" % name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # our own text
        setattr(sys.modules[parent], last, module)
    return sys.modules[NAME]


class Port:
    """The bytes that came with a request, and those that go with its answer."""

    def __init__(self, data: bytes) -> None:
        self._data = bytearray(data)
        self.sent = bytearray()

    def send(self, data: Any) -> None:
        self.sent += memoryview(data).cast("B")

    def receive(self, size: int) -> bytearray:
        taken, self._data = self._data[:size], self._data[size:]
        return taken


class Helper:
    """Serves requests of the bridge, one at a time, between cells."""

    def __init__(self, ours: Any, shell: Any) -> None:
        self._guest = ours.guest
        self._shell = shell
        self._before: List[Tuple[str, Optional[str]]] = []
        self._cwd: Optional[str] = None
        self._tools: Tuple[str, ...] = ()

    def ask(self, encoded: str) -> str:
        """Both are base64 of JSON, a line break, and bytes."""
        head, _, data = base64.b64decode(encoded).partition(b"\n")
        request = json.loads(head)
        port = Port(data)
        try:
            done = getattr(self, "do_" + request["do"])(request, port)
            answer: Dict[str, Any] = {"ok": done or {}}
        except self._guest.refusal.Refused as refusal:
            answer = {"error": refusal.wire()}
        return base64.b64encode(json.dumps(answer).encode("ascii") + b"\n" + port.sent).decode("ascii")

    def do_variables(self, request: Dict[str, Any], port: Port) -> Any:
        """On what the user has defined, without what IPython has."""
        namespace, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        shown = {name: value for name, value in namespace.items() if hidden.get(name, _NOTHING) is not value}
        before = dict(shown)
        done = self._guest.variables.handle(shown, request, port)
        for name in before:
            if name not in shown:
                del namespace[name]
        namespace.update({name: value for name, value in shown.items() if before.get(name, _NOTHING) is not value})
        return done

    def do_enter(self, request: Dict[str, Any], _port: Port) -> None:
        """Have an environment and a directory for one cell."""
        env, cwd = request.get("env") or {}, request.get("cwd")
        self._before = [(name, os.environ.get(name)) for name in env]
        self._cwd = os.getcwd() if cwd else None
        os.environ.update(env)
        if cwd:
            os.chdir(cwd)

    def do_leave(self, _request: Dict[str, Any], _port: Port) -> None:
        for name, value in self._before:
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._cwd is not None:
            os.chdir(self._cwd)
        self._before, self._cwd = [], None

    def do_offer(self, request: Dict[str, Any], _port: Port) -> None:
        """Have these tools of the host as builtins, and no others."""
        hosttools = self._guest.hosttools
        for name in self._tools:
            if isinstance(builtins.__dict__.get(name), hosttools.Tool):
                delattr(builtins, name)
        self._tools = tuple(request["names"])
        for name in self._tools:
            if not hasattr(builtins, name):
                setattr(builtins, name, hosttools.Tool(name, self._call))
        builtins.__dict__["tools"] = hosttools.Tools(self._tools, self._call)
        builtins.__dict__["ToolError"] = hosttools.ToolError

    def _call(self, name: str, arguments: Tuple[Any, ...], keywords: Dict[str, Any]) -> Any:
        try:
            question = json.dumps({"tool": name, "arguments": list(arguments), "keywords": keywords})
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError("Arguments for the host must be JSON values: %s." % error) from None
        reply = json.loads(self._shell.kernel.raw_input(MARK + question))
        if "value" in reply:
            return reply["value"]
        raise self._guest.hosttools.ToolError(str(reply.get("error", {}).get("message", "the host gave no reason")))


def install() -> None:
    """In the kernel."""
    ours = _load()
    ours.helper = Helper(ours, importlib.import_module("IPython").get_ipython())


if __name__ == NAME:
    install()
