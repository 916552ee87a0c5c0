"""The variables of a context: one read or written as a value, all of them listed, some or all forgotten."""

from __future__ import annotations

import importlib
import json
import types
from typing import Any, Callable, Dict, List, Protocol, Union

from ..wire import values
from ..wire.values import MAX_SIZE, WAYS_OUT, Missing, Unfit
from . import brief
from .arguments import Arguments
from .refusal import UNSUPPORTED, VARIABLE_MISSING, Refused, invalid

_MAX_LISTED = 10_000
_MAX_NAME = 1000
_SOME = 20


class Port(Protocol):
    """Where the bytes of values come from and go to."""

    def send(self, data: Union[bytes, memoryview]) -> None: ...

    def receive(self, size: int) -> bytearray: ...


def handle(namespace: Dict[str, Any], request: Dict[str, Any], port: Port) -> Dict[str, Any]:
    """Do what `request["act"]` says: `get`, `set`, `list` or `clear`.

    Raises:
        Refused: it cannot be done; nothing has changed.
    """
    act = request.get("act")
    action = _ACTIONS.get(act) if isinstance(act, str) else None
    if action is None:
        raise invalid("Variables can be asked to get, set, list or clear, and not to %.50r." % (act,))
    try:
        return action(namespace, Arguments(request), port)
    except Missing as missing:
        raise _missing(missing) from None


def shown(namespace: Dict[Any, Any]) -> List[str]:
    """The names that a listing shows: no modules, and none that begin with an underscore."""
    return [
        name
        for name, value in list(namespace.items())
        if isinstance(name, str) and not name.startswith("_") and not isinstance(value, types.ModuleType)
    ]


def _get(namespace: Dict[str, Any], arguments: Arguments, port: Port) -> Dict[str, Any]:
    name = arguments.text("name")
    limit = arguments.count("limit", MAX_SIZE)
    try:
        form, data = values.pack(_known(namespace, name), _load)
    except Unfit as error:
        raise invalid("The variable %r %s. %s." % (name, error, WAYS_OUT)) from None
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    if limit is not None and size > limit:
        raise invalid("The variable %r takes %d bytes; ask with a larger max_size than %d." % (name, size, limit))
    if size:
        port.send(data if isinstance(data, (bytes, memoryview)) else memoryview(data))
    return {"value": form, "size": size}


def _set(namespace: Dict[str, Any], arguments: Arguments, port: Port) -> Dict[str, Any]:
    data = port.receive(arguments.required_count("size"))
    name = _assignable(arguments.text("name"))
    form = arguments.object("value")
    try:
        namespace[name] = values.unpack(form, data, _load, trusted=True)
    except Unfit as error:
        raise invalid("The value for %r %s." % (name, error)) from None
    return {}


def _list(namespace: Dict[str, Any], _arguments: Arguments, port: Port) -> Dict[str, Any]:
    names = shown(namespace)
    listed = [
        {
            "name": name[:_MAX_NAME],
            "type": values.type_name(type(namespace[name]))[:_MAX_NAME],
            "size": brief.size_of(namespace[name]),
            "text": brief.text_of(namespace[name]),
        }
        for name in names[:_MAX_LISTED]
    ]
    data = json.dumps(listed, separators=(",", ":")).encode("ascii")
    port.send(data)
    return {"size": len(data), "left_out": max(0, len(names) - _MAX_LISTED)}


def _clear(namespace: Dict[str, Any], arguments: Arguments, _port: Port) -> Dict[str, Any]:
    names = arguments.texts("names")
    if names is None:
        names = shown(namespace)
    for name in names:
        _known(namespace, name)
    for name in set(names):
        namespace.pop(name, None)
    return {"cleared": len(set(names))}


_ACTIONS: Dict[str, Callable[[Dict[str, Any], Arguments, Port], Dict[str, Any]]] = {
    "get": _get,
    "set": _set,
    "list": _list,
    "clear": _clear,
}


def _known(namespace: Dict[str, Any], name: str) -> Any:
    try:
        return namespace[name]
    except KeyError:
        there = shown(namespace)
        some = ", ".join(there[:_SOME]) + (", …" if len(there) > _SOME else "")
        message = "There is no variable %.200r; there are: %s." % (name, some or "none")
        raise Refused(VARIABLE_MISSING, message) from None


def _assignable(name: str) -> str:
    import keyword

    if not name.isidentifier() or keyword.iskeyword(name) or len(name) > _MAX_NAME:
        raise invalid("%.200r is no name for a variable." % name)
    if name.startswith("__"):
        raise invalid("%.200r is a name of Python's own; choose one without leading underscores." % name)
    return name


def _load(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise Missing(library, str(error)) from None


def _missing(missing: Missing) -> Refused:
    return Refused(
        UNSUPPORTED,
        "This value needs %s inside the sandbox (%s); make it with packages=[%r] or call install([%r])."
        % (missing.library, missing.why[:200], missing.library, missing.library),
    )
