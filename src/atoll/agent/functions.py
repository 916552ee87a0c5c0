"""Functions of the caller's program as tools of an agent. What does not fit a function's hints never reaches it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, overload

from ..errors import InvalidInput
from . import docstrings
from .hints import Form, form_of, hints_of, object_schema
from .toolspec import Outcome, Tool, bounded, by_name, check_name

_MARK = "__atoll_tool__"
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Marks(NamedTuple):
    name: str | None
    idempotent: bool


@overload
def tool(function: _Function, /) -> _Function: ...


@overload
def tool(*, name: str | None = None, idempotent: bool = False) -> Callable[[_Function], _Function]: ...


def tool(function: Any = None, /, *, name: str | None = None, idempotent: bool = False) -> Any:
    """Mark a function for agents: `@tool` or `@tool(name="search", idempotent=True)`. It stays the function it is.

    Args:
        name: what models call, if not the function's own name.
        idempotent: it may be run again when nobody knows whether it ran, as after a crash.

    Raises:
        InvalidInput: the name cannot be called by a model.
    """
    marks = _Marks(check_name(name) if name is not None else None, idempotent)

    def mark(marked: Any) -> Any:
        setattr(marked, _MARK, marks)
        return marked

    return mark if function is None else mark(function)


def tools_of(items: Iterable[Tool | Callable[..., Any]]) -> list[Tool]:
    """Functions and ready tools, as tools.

    Raises:
        InvalidInput: one cannot be a tool, or two have the same name.
    """
    found = [item if isinstance(item, Tool) else tool_of(item) for item in items]
    by_name(found)
    return found


def tool_of(function: Callable[..., Any], *, name: str | None = None, idempotent: bool = False) -> Tool:
    """A tool that calls the function. Its docstring tells the model what it does, its type hints what to give.

    A plain function runs in a thread, a coroutine function on the event loop. What it gives is the answer: a string as
    it is, other things as JSON, else their repr. What it raises is told to the model as type and message. No more than
    `toolspec.MOST_TEXT` characters come of either.

    Raises:
        InvalidInput: it is no function, has no name that a model can call, or takes what cannot be told in JSON.
    """
    if not callable(function):
        raise InvalidInput(f"A tool is a function, not {function!r}.")
    marks: _Marks = getattr(function, _MARK, _Marks(None, False))
    called = name or marks.name or getattr(function, "__name__", None)
    if called is None:
        raise InvalidInput(f"{function!r} has no name: give one, as in tool_of(function, name='search').")
    check_name(called)
    what = f"The tool {called!r}"
    told = docstrings.read(_documentation(function))
    forms, required = _parameters(function, what, told.parameters)
    schema = object_schema({each: form.schema for each, form in forms.items()}, required)
    call = _caller(function, forms)
    return Tool(called, told.summary or called, schema, call, idempotent or marks.idempotent)


def _documentation(function: Callable[..., Any]) -> str | None:
    if inspect.isroutine(function) or inspect.isclass(function):
        return function.__doc__
    # What carries a function tells about itself, not about the function.
    return getattr(getattr(function, "func", None), "__doc__", None) or type(function).__call__.__doc__


def _parameters(
    function: Callable[..., Any], what: str, described: dict[str, str]
) -> tuple[dict[str, Form], list[str]]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise InvalidInput(f"{what} does not tell its parameters: wrap it in a function of your own.") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{what} is a generator: return a list instead.")
    hints = hints_of(_hinted(function), what)
    forms: dict[str, Form] = {}
    required: list[str] = []
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(
                f"{what} takes {str(parameter)!r}, which a model cannot give by name: use ordinary parameters only."
            )
        form = form_of(hints.get(parameter.name, Any), f"{what}, in its parameter {parameter.name!r},")
        forms[parameter.name] = _completed(form, parameter, described.get(parameter.name))
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return forms, required


def _hinted(function: Any) -> Any:
    """What has the type hints of a call: of an object with `__call__` that is its method, of a partial its function."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    if inspect.isclass(function):
        return function.__init__
    return function if inspect.isroutine(function) else type(function).__call__


def _completed(form: Form, parameter: inspect.Parameter, description: str | None) -> Form:
    """With the default and the description of a parameter."""
    schema = dict(form.schema)
    if description and "description" not in schema:
        schema["description"] = description
    if parameter.default is parameter.empty:
        return form._replace(schema=schema)
    default = getattr(parameter.default, "value", parameter.default)
    try:
        schema["default"] = json.loads(json.dumps(default, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        # The default is the function's own affair: a model that leaves the argument out gets it all the same.
        schema.pop("default", None)
    if default is None and isinstance(schema.get("type"), str) and schema["type"] != "null":
        # `limit: int = None` is written for an optional one, though it says something else.
        schema["type"] = [schema["type"], "null"]
        inner = form.value
        return Form(schema, lambda value: None if value is None else inner(value))
    return form._replace(schema=schema)


def _caller(function: Callable[..., Any], forms: dict[str, Form]) -> Callable[[dict[str, Any]], Any]:
    awaited = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether it is a coroutine function is asked, not whether it is callable
    )

    def values(arguments: dict[str, Any]) -> dict[str, Any]:
        return {name: forms[name].value(value) for name, value in arguments.items()}

    async def on_the_loop(arguments: dict[str, Any]) -> Outcome:
        try:
            return _outcome(await function(**values(arguments)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a tool raises is its answer
            return _failure(error)

    def in_a_thread(arguments: dict[str, Any]) -> Any:
        try:
            given = function(**values(arguments))
            # A plain function may hand on a coroutine, which belongs to the event loop.
            return given if inspect.isawaitable(given) else _outcome(given)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return _failure(error)

    async def from_a_thread(arguments: dict[str, Any]) -> Outcome:
        from anyio import to_thread

        given = await to_thread.run_sync(in_a_thread, arguments, abandon_on_cancel=True)
        if isinstance(given, Outcome):
            return given
        try:
            return _outcome(await given)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return _failure(error)

    return on_the_loop if awaited else from_a_thread


def _outcome(given: Any) -> Outcome:
    if isinstance(given, Outcome):
        return given._replace(text=_clean(given.text))
    if isinstance(given, str):
        return Outcome(_clean(given))
    try:
        return Outcome(_clean(json.dumps(given, ensure_ascii=False, default=_plain)))
    except (TypeError, ValueError, RecursionError):
        return Outcome(_clean(repr(given)))


def _plain(value: Any) -> Any:
    """What JSON can tell of values that it does not know."""
    import dataclasses
    import enum
    import os

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError


def _failure(error: BaseException) -> Outcome:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot tell itself is still one
        said = ""
    return Outcome(_clean(f"{type(error).__name__}: {said}" if said else type(error).__name__), failed=True)


def _clean(text: str) -> str:
    """Half a surrogate pair could not be written down."""
    return bounded(text).encode("utf-8", "replace").decode()
