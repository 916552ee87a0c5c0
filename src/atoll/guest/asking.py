"""What code of a cell may ask of whoever runs it: a line of input, and functions of the host."""

from __future__ import annotations

import _thread
import builtins
import json
import os
import sys
from typing import Any, Callable, Dict, Optional, Tuple

from .hosttools import Tool, ToolError, Tools
from .port import Port

_MAX_QUESTION = 8 << 20
_MAX_PROMPT = 1 << 20
_NOBODY = "The host can only be asked by a cell that runs, and by the process it runs in."


class Asking:
    """One question at a time, from whichever thread of the cell."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._port: Optional[Port] = None
        self._lock = _thread.allocate_lock()
        self._number = 0
        self._pid = os.getpid()
        self._answers_input = False
        self._tools: Tuple[str, ...] = ()

    def install(self) -> None:
        builtins.input = self._input

    @property
    def concerned(self) -> bool:
        """Whether the cell that runs, or the one before it, may ask anything."""
        return self._port is not None or bool(self._tools)

    def begin(self, port: Port, request: Dict[str, Any]) -> None:
        """A cell starts, whose client answers what it says it does."""
        self._port = port
        self._answers_input = request.get("input") is True
        offered = request.get("tools")
        names = tuple(offered) if isinstance(offered, list) else ()
        if names != self._tools:
            self._offer(names)

    def end(self) -> None:
        """A question that a thread has asked by now is answered before the cell ends."""
        self._port = None
        # A cell that may ask nothing does not come by `begin`.
        self._answers_input = False
        with self._lock:
            pass

    def _offer(self, names: Tuple[str, ...]) -> None:
        """Tools are builtins: a variable of the cell with the same name hides one, and keeps working."""
        for name in self._tools:
            if isinstance(builtins.__dict__.get(name), Tool):
                delattr(builtins, name)
        self._tools = names
        for name in names:
            if not hasattr(builtins, name):
                setattr(builtins, name, Tool(name, self._call))
        builtins.__dict__["tools"] = Tools(names, self._call)
        builtins.__dict__["ToolError"] = ToolError

    def _input(self, prompt: object = "") -> str:
        if not self._answers_input:
            raise RuntimeError(
                "input() has nobody to ask in a sandbox: put the value into the code, or run the cell with on_input=."
            )
        text = str(prompt)
        if text:
            sys.stdout.write(text)
        reply = self._ask({"input": text[:_MAX_PROMPT]})
        if "value" not in reply:
            raise EOFError("input() was not answered: %s" % reply.get("error", {}).get("message", "no reason given"))
        return str(reply["value"])

    def _call(self, name: str, arguments: Tuple[Any, ...], keywords: Dict[str, Any]) -> Any:
        question = {"tool": name, "arguments": list(arguments), "keywords": keywords}
        reply = self._ask(question)
        if "value" in reply:
            return reply["value"]
        error = reply.get("error", {})
        raise ToolError(str(error.get("message", "the host gave no reason")))

    def _ask(self, question: Dict[str, Any]) -> Dict[str, Any]:
        try:
            encoded = json.dumps(question)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError("Arguments for the host must be JSON values: %s." % error) from None
        if len(encoded) > _MAX_QUESTION:
            raise ValueError("Arguments for the host take %d bytes; at most %d fit." % (len(encoded), _MAX_QUESTION))
        if os.getpid() != self._pid:
            raise RuntimeError(_NOBODY)
        with self._lock:
            port = self._port
            if port is None:
                raise RuntimeError(_NOBODY)
            self._flush()
            self._number += 1
            port.tell(b'{"ask":%d,"question":%s}' % (self._number, encoded.encode("ascii")))
            return self._reply(port)

    def _reply(self, port: Port) -> Dict[str, Any]:
        """An answer to a question that was given up, as by an interrupt, is not the one."""
        while True:
            reply = port.call()
            if reply is None:
                raise RuntimeError("Whoever ran this cell is gone, so nobody answers it.")
            if reply.get("answer") == self._number:
                return reply
