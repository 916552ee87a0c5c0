"""What runs cells: the state between them, and one cell after the other."""

from __future__ import annotations
import __future__

import _signal  # type: ignore[import-not-found]  # what `signal` wraps at a cost
import _thread
import ast
import builtins
import json
import os
import signal
import sys
import types
from typing import Any, Callable, Dict, List, NoReturn, Optional

from . import celltext, late, stories
from .asking import Asking
from .cellstreams import Streams
from .display import Displays
from .guard import Guard
from .port import Port
from .results import Results
from .shared import RUNNING, Shared

_COROUTINE = 0x80
_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag
_SIGINT = int(signal.SIGINT)
_ATOMS = frozenset((int, float, str, bool))
_SHORT = 2000
_NAMES = ("_", "__", "___")
_REMEMBERED = len(_NAMES)
_MAYBE_INDENTED = ("", " ", "\t", "\f", "#", "\n", "\r")
_NOTHING_WENT_WRONG = b'{"ok":{"count":%d,"error":null,"truncated":%s}}'


class Interpreter:
    """The state between cells: a `__main__` module, compiler flags, and an event loop once one is needed."""

    def __init__(self, streams: Streams, shared: Shared, guard: Optional[Guard] = None) -> None:
        self._guard = guard
        self._streams = streams
        self._shared = shared
        self._module = types.ModuleType("__main__")
        self.namespace = self._module.__dict__
        self.namespace["__builtins__"] = sys.modules["builtins"]
        sys.modules["__main__"] = self._module
        self._forked = False
        if hasattr(os, "register_at_fork"):  # WebAssembly has no processes
            os.register_at_fork(after_in_child=self._note_fork)
        self.flags = 0
        self.notice = ""
        self.declines = False
        self.count = 0
        self._events: Any = None
        self._interruptible = False
        self._on_interrupt = self._interrupt
        self._results = Results(streams)
        self._displays = Displays(self._results.send)
        self._displays.install()
        self._asking = Asking(streams.flush)
        self._asking.install()
        self._values: Dict[int, Any] = {}
        self._magics: Any = None
        if guard is None:
            builtins.Out = self._values  # type: ignore[attr-defined]

    @property
    def events(self) -> Any:
        """The event loop of cells that await something; None before the first."""
        return self._events

    def run(self, request: Dict[str, Any], port: Port) -> bytes:
        """Run a cell and say how it went. Output and results are sent on the way."""
        limit = request.get("limit")
        self._streams.begin(limit)
        self._results.begin(port, limit)
        self._displays.truncated = False
        if self._asking.concerned or "tools" in request or "input" in request:
            self._asking.begin(port, request)
        if self.notice:
            sys.stderr.write(self.notice)
            self.notice = ""
        if _signal.getsignal(_SIGINT) is not self._on_interrupt:
            _signal.signal(_SIGINT, self._on_interrupt)
        error = self._decline() if self.declines else self._attempt(request)
        self._streams.flush_own()
        if self._asking.concerned:
            self._asking.end()
        self._results.end()
        truncated = self._streams.truncated or self._results.truncated or self._displays.truncated
        if error is None:
            return _NOTHING_WENT_WRONG % (self.count, b"true" if truncated else b"false")
        described, cut = stories.describe(error)
        answer = {"count": self.count, "error": described, "truncated": truncated or cut}
        return json.dumps({"ok": answer}).encode("ascii")

    def _decline(self) -> KeyboardInterrupt:
        """Its time is over, or it was interrupted, before all variables were back: it must not run without them."""
        self.declines = False
        return KeyboardInterrupt("The cell did not run: it was stopped while the variables were brought back.")

    def _attempt(self, request: Dict[str, Any]) -> Optional[BaseException]:
        """Whatever a cell raises is its result."""
        page = self._shared.page
        try:
            self._interruptible = True
            page[RUNNING] = 1
            try:
                if request.get("env") or request.get("cwd"):
                    with Surroundings(request.get("env") or {}, request.get("cwd")):
                        self._run(request["code"])
                else:
                    self._run(request["code"])
            finally:
                page[RUNNING] = 0
                self._interruptible = False
        except BaseException as error:  # noqa: BLE001
            # Once more: an interrupt may have come between the two.
            page[RUNNING] = 0
            self._interruptible = False
            return error
        return None

    def _run(self, source: str) -> None:
        """Figures are shown after a cell that raises, too."""
        try:
            value = self._execute(source)
        except BaseException:
            if self._forked:
                self._end_child()
            self._displays.end_of_cell()
            raise
        finally:
            if self._magics is not None:
                self._magics.stop()
        if self._forked:
            self._end_child()
        if value is not None and not celltext.hides_its_value(source):
            self._show(value)
            if self._guard is None:
                self._remember(value)
        self._displays.end_of_cell()

    def _show(self, value: Any) -> None:
        """The main result. Most are numbers and texts, which have one form."""
        if type(value) in _ATOMS:
            try:
                text = repr(value)
            except ValueError:
                text = ""  # a number with too many digits
            if 0 < len(text) < _SHORT:
                self._results.send_text(text)
                return
        self._displays.show_main(value)

    def _remember(self, value: Any) -> None:
        """As `_`, `__`, `___` and in `Out`: the last three, so that what is large is not kept for ever. Builtins
        give way to variables of a cell, and are none to keep or to list."""
        values = self._values
        values[self.count] = value
        while len(values) > _REMEMBERED:
            del values[next(iter(values))]
        for name, past in zip(_NAMES, reversed(list(values.values()))):
            setattr(builtins, name, past)

    def _note_fork(self) -> None:
        """In a child of a cell."""
        self._forked = True
        self._streams.renew()
        self._results.renew_lock()
        Port.telling = _thread.RLock()

    def _end_child(self) -> NoReturn:
        """The cell forked, and this is a child that has come to the cell's end: what follows is its parent's."""
        self._streams.flush()
        os._exit(0)

    def _interrupt(self, _number: int, _frame: Any) -> None:
        """Between cells there is nothing to interrupt."""
        if self._interruptible:
            raise KeyboardInterrupt

    def _execute(self, source: str) -> Any:
        if source[:1] in _MAYBE_INDENTED:
            source = celltext.dedented(source)
        name = stories.remember(self.count, source)
        if self._guard is not None:
            return self._guard.run(source, name, self.namespace)
        simple = self._simple(source, name)
        if simple is not None:
            return self._evaluate(simple)
        flags = self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = self._parsed(source, name, flags | ast.PyCF_ONLY_AST)
        parts: List[types.CodeType] = []
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body or last is None:
            parts.append(compile(tree, name, "exec", flags, dont_inherit=True))
            self.flags |= parts[0].co_flags & _FUTURES
        if last is not None:
            flags |= self.flags
            parts.append(compile(ast.Expression(last.value), name, "eval", flags, dont_inherit=True))
        if any(part.co_flags & _COROUTINE for part in parts):
            return self._await(self._evaluate_awaiting(parts))
        if self._events is not None or "asyncio" in source:
            self._have_events()
        value = None
        for part in parts:
            value = self._evaluate(part)
        return value

    def _parsed(self, source: str, name: str, flags: int) -> Any:
        """Raises SyntaxError, which says what to do instead where that is known."""
        try:
            return compile(source, name, "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            python = self._translated(source)
            if python is None:
                celltext.explain(error, source)
                raise
        return compile(python, name, "exec", flags, dont_inherit=True)

    def _translated(self, source: str) -> Optional[str]:
        """A cell with magics as Python; None where that is not what is wrong with it."""
        if not celltext.may_have_magics(source):
            return None
        python: Optional[str] = late.module("magics").translated(source)
        if python is not None and self._magics is None:
            self._magics = late.module("magiccalls").Magics(self.namespace)
            builtins.__magics__ = self._magics  # type: ignore[attr-defined]
        return python

    def _simple(self, source: str, name: str) -> Optional[types.CodeType]:
        """A cell that is one expression on one line, compiled the short way; None for all others."""
        if "\n" in source or "\\" in source or source[:1] in _MAYBE_INDENTED or ("a" in source and _waits(source)):
            return None
        try:
            code: types.CodeType = compile(source, name, "eval", self.flags, dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        return code

    def _evaluate(self, code: types.CodeType) -> Any:
        return eval(code, self.namespace)  # noqa: S307  # running the code is what this is for

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

        self._have_events()
        task = self._events.create_task(coroutine)
        try:
            return self._events.run_until_complete(task)
        except KeyboardInterrupt as interrupt:
            task.cancel()
            try:
                self._events.run_until_complete(task)
            except asyncio.CancelledError as cancelled:
                # It says where the cell was; the interrupt itself only met the event loop.
                raise interrupt.with_traceback(stories.inside(cancelled)) from None
            raise

    def _have_events(self) -> None:
        """What a cell makes without awaiting it, such as a task, belongs to the loop in which a later cell awaits it.
        Each time, since `asyncio.run` leaves none."""
        import asyncio

        if self._events is None or self._events.is_closed():
            self._events = asyncio.new_event_loop()
        asyncio.set_event_loop(self._events)


def _waits(source: str) -> bool:
    """Whether it may need an event loop."""
    return "await" in source or "async" in source


class Surroundings:
    """Environment variables and a directory for one cell only."""

    def __init__(self, env: Dict[str, str], cwd: Optional[str]) -> None:
        self._env = env
        self._cwd = cwd
        self._before: Dict[str, Optional[str]] = {}
        self._back: Optional[Callable[[], None]] = None

    def __enter__(self) -> None:
        for name, value in self._env.items():
            self._before[name] = os.environ.get(name)
            os.environ[name] = value
        if self._cwd is not None:
            self._back = _way_back()
            os.chdir(self._cwd)

    def __exit__(self, *_story: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self._back is not None:
            self._back()


def _way_back() -> Callable[[], None]:
    """To the directory of now, whatever becomes of its name; where directories are no descriptors, by its name."""
    if not hasattr(os, "fchdir"):
        here = os.getcwd()
        return lambda: os.chdir(here)
    directory = os.open(".", os.O_PATH | os.O_CLOEXEC)

    def back() -> None:
        os.fchdir(directory)
        os.close(directory)

    return back
