"""Running cells: what happens inside a context process."""

from __future__ import annotations
import __future__

import ast
import json
import linecache
import os
import signal
import sys
import traceback
import types
from mmap import mmap
from typing import Any, Dict, List, NoReturn, Optional, Set, Tuple

from ..wire.frames import END, EVENT
from .cellstreams import Wire

TEXT_LIMIT = 1 << 16
RESULT_LIMIT = 500_000
"""Of an encoded result: with its wrapping it must fit into an EVENT, which is at most half a window."""

_GUEST = os.path.dirname(os.path.abspath(__file__))
_REMEMBERED_SOURCES = 1000
_COROUTINE = 0x80
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag


class Interpreter:
    """The state between cells: a `__main__` module, compiler flags, and an event loop once one is needed."""

    def __init__(self, wire: Wire, running: mmap) -> None:
        self._wire = wire
        self._running = running
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = sys.modules["builtins"]
        sys.modules["__main__"] = self._module
        self._pid = os.getpid()
        self._flags = 0
        self._count = 0
        self._events: Any = None
        self._interruptible = False
        self._truncated = False

    def run(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Run a cell and say how it went. Results are sent on the way."""
        self._count += 1
        self._truncated = False
        signal.signal(signal.SIGINT, self._interrupt)
        error, bundle = self._attempt(request)
        self._wire.flush()
        if os.getpid() != self._pid:
            os._exit(0)  # the cell forked, and this is a child that has come to the cell's end
        if bundle is not None:
            self._wire.send(EVENT, json.dumps({"result": bundle, "main": True}).encode("ascii"))
        return {"count": self._count, "error": error, "truncated": self._truncated}

    def _attempt(self, request: Dict[str, Any]) -> Tuple[Optional[Dict[str, str]], Optional[Dict[str, str]]]:
        bundle = None
        try:
            self._interruptible = True
            self._running[0] = 1
            try:
                with Surroundings(request.get("env", {}), request.get("cwd")):
                    bundle = self._show(self._execute(request["code"]))
            except BaseException as error:  # noqa: BLE001  # whatever a cell raises is its result
                return self._describe(error), None
            finally:
                self._running[0] = 0
                self._interruptible = False
        except KeyboardInterrupt as error:
            self._running[0] = 0
            self._interruptible = False
            return self._describe(error), None
        return None, bundle

    def _interrupt(self, _number: int, _frame: Any) -> None:
        """Between cells there is nothing to interrupt."""
        if self._interruptible:
            raise KeyboardInterrupt

    def _execute(self, source: str) -> Any:
        name = "<cell %d>" % self._count
        self._remember(name, source)
        flags = self._flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        body = compile(tree, name, "exec", flags, dont_inherit=True)
        self._flags |= body.co_flags & _FUTURES
        parts = [body]
        if last is not None:
            flags |= self._flags
            parts.append(compile(last, name, "eval", flags, dont_inherit=True))
        if any(part.co_flags & _COROUTINE for part in parts):
            return self._await(self._evaluate_awaiting(parts))
        return [self._evaluate(part) for part in parts][-1]

    def _evaluate(self, code: types.CodeType) -> Any:
        return eval(code, self._module.__dict__)  # noqa: S307  # running the code is what this is for

    async def _evaluate_awaiting(self, parts: List[types.CodeType]) -> Any:
        """All of it inside the event loop, also what comes before the first `await`."""
        value = None
        for part in parts:
            value = self._evaluate(part)
            if part.co_flags & _COROUTINE:
                value = await value
        return value

    def _await(self, coroutine: Any) -> Any:
        """Tasks that a cell leaves behind go on whenever a later cell awaits something."""
        import asyncio

        if self._events is None or self._events.is_closed():
            self._events = asyncio.new_event_loop()
            asyncio.set_event_loop(self._events)
        task = self._events.create_task(coroutine)
        try:
            return self._events.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            try:
                self._events.run_until_complete(task)
            except asyncio.CancelledError:
                pass
            raise

    def _show(self, value: Any) -> Optional[Dict[str, str]]:
        if value is None:
            return None
        try:
            text = repr(value)
        except Exception as error:  # noqa: BLE001  # the cell itself went well
            text = "<%s whose repr failed: %s>" % (type(value).__name__, _text_of(error))
        return {"text/plain": self._bounded(text)}

    def _bounded(self, text: str) -> str:
        """Cut so that it fits, encoded as JSON, into an event."""
        cut = text[:RESULT_LIMIT]
        while len(json.dumps(cut)) > RESULT_LIMIT:
            cut = cut[: len(cut) * 3 // 4]
        self._truncated = self._truncated or len(cut) < len(text)
        return cut

    def _remember(self, name: str, source: str) -> None:
        lines = [line + "\n" for line in source.splitlines()]
        linecache.cache[name] = (len(source), None, lines, name)
        linecache.cache.pop("<cell %d>" % (self._count - _REMEMBERED_SOURCES), None)

    def _describe(self, error: BaseException) -> Dict[str, str]:
        value = _text_of(error)
        story = _story(error)
        self._truncated = self._truncated or max(len(value), len(story)) > TEXT_LIMIT
        return {"name": type(error).__name__, "value": value[:TEXT_LIMIT], "traceback": story[-TEXT_LIMIT:]}


class Surroundings:
    """Environment variables and a directory for one cell only."""

    def __init__(self, env: Dict[str, str], cwd: Optional[str]) -> None:
        self._env = env
        self._cwd = cwd
        self._before: Dict[str, Optional[str]] = {}
        self._directory = -1

    def __enter__(self) -> None:
        for name, value in self._env.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        if self._cwd is not None:
            self._directory = os.open(".", os.O_PATH | os.O_CLOEXEC)
            os.chdir(self._cwd)

    def __exit__(self, *_story: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._directory >= 0:
            os.fchdir(self._directory)
            os.close(self._directory)


def _text_of(error: BaseException) -> str:
    try:
        if isinstance(error, SystemExit):
            return "0" if error.code is None else str(error.code)
        return str(error)
    except Exception:  # noqa: BLE001  # an exception may be broken too
        return "<its text cannot be shown>"


def _story(error: BaseException) -> str:
    """The traceback as the author of the cell expects it: without the guest's own frames."""
    if isinstance(error, SyntaxError) and _is_ours_alone(error):
        return "".join(traceback.format_exception_only(type(error), error))
    summary = traceback.TracebackException(type(error), error, error.__traceback__)
    _clean(summary, set())
    return "".join(summary.format())


def _is_ours_alone(error: BaseException) -> bool:
    """Whether it was raised before the cell ran."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_GUEST):
            return False
        trace = trace.tb_next
    return True


def _clean(summary: Any, seen: Set[int]) -> None:
    if summary is None or id(summary) in seen:
        return
    seen.add(id(summary))
    summary.stack[:] = [frame for frame in summary.stack if not frame.filename.startswith(_GUEST)]
    _clean(summary.__cause__, seen)
    _clean(summary.__context__, seen)
    for member in getattr(summary, "exceptions", None) or ():
        _clean(member, seen)


def serve(wire: Wire, running: mmap) -> NoReturn:
    """Run cells until the guest hangs up. `running` shows the guest whether there is something to interrupt."""
    interpreter = Interpreter(wire, running)
    while True:
        request = wire.receive()
        if request is None:
            os._exit(0)
        wire.send(END, json.dumps(interpreter.run(request)).encode("ascii"))
