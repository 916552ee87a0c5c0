"""Picklers and unpicklers for the variables of one context, by value where no import could bring them back.

Functions and classes of `__main__` keep that namespace as their globals: what they use is looked up when they
are called, as before.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Callable, Dict, Iterable, List, Tuple

from . import borrowed
from .complaints import name_of

_FUNCTION = types.FunctionType
REASON = 300
# Of a type that a class statement has made; others are the interpreter's own.
_MADE_BY_CODE = 1 << 9
# Two variables that share one of these do not notice.
_CONSTANT = (
    str, bytes, int, float, complex, bool, tuple, frozenset, range, slice,
    types.CodeType, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_CONSTANT_NAMES = frozenset(
    (
        ("numpy", "dtype"), ("numpy.dtypes", ""), ("datetime", ""), ("decimal", "Decimal"), ("fractions", "Fraction"),
        ("uuid", "UUID"), ("pathlib", ""), ("zoneinfo", "ZoneInfo"), ("re", "Pattern"), ("operator", ""),
    )
)  # fmt: skip


class Unpicklable(Exception):
    """A value that cannot be kept, with the reason."""


def reason(error: BaseException) -> str:
    """Why a value is lost, in one line."""
    try:
        text = str(error).partition("\n")[0]
    except Exception:  # noqa: BLE001  # an exception may be broken too
        text = ""
    if not isinstance(error, Unpicklable):
        text = "%s: %s" % (name_of(type(error)), text)
    return text[:REASON]


class _Globals:
    """Stands for the dictionary of `__main__`."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return getattr, (sys.modules["__main__"], "__dict__")


GLOBALS = _Globals()


class Toolbox:
    """The classes that pickle and unpickle for a namespace, made of what this context has."""

    def __init__(self, namespace: Dict[str, Any]) -> None:
        self._pickle = borrowed.standard("pickle")
        self._namespace = namespace
        self._pickler: Any = None
        self._unpickler: Any = None

    def pickler(self, file: Any, buffer: Callable[[Any], bool]) -> Any:
        """One that has `memo`, and `has_code` after a dump that holds a function or a class.

        `buffer` is called with each buffer of a value, and says whether it is to be part of the pickle.
        """
        if self._pickler is None:
            cloud = borrowed.cloudpickle()
            self._pickler = _plain_pickler(self._pickle) if cloud is None else _cloud_pickler(cloud, self._namespace)
            if cloud is not None:
                sys.modules[borrowed.NAME] = cloud  # in the child only, where pickles are made
        return self._pickler(file, protocol=self._pickle.HIGHEST_PROTOCOL, buffer_callback=buffer)

    def unpickler(self, file: Any, buffers: Iterable[Any]) -> Any:
        if self._unpickler is None:
            self._unpickler = _make_unpickler(self._pickle)
        return self._unpickler(file, buffers=buffers)


def shared_objects(pickler: Any) -> List[Any]:
    """What a dump has met that would notice to be there twice: neither constants nor what is imported by name."""
    by_reference = _by_reference()
    return [value for _, value in pickler.memo.copy().values() if _is_mutable(value, by_reference)]


def _is_mutable(value: Any, by_reference: Any) -> bool:
    kind = type(value)
    if kind in _CONSTANT or value is GLOBALS:
        return False
    if isinstance(value, type) and not value.__flags__ & _MADE_BY_CODE:
        return False
    if isinstance(value, (type, _FUNCTION)):
        return not by_reference(value)
    module = str(kind.__module__)
    return (module, kind.__name__) not in _CONSTANT_NAMES and (module, "") not in _CONSTANT_NAMES


def _by_reference() -> Any:
    cloud = borrowed.cloudpickle()
    if cloud is None:
        return lambda _value: True
    return cloud._should_pickle_by_reference  # noqa: SLF001  # pinned to one major version


def _cloud_pickler(cloud: Any, namespace: Dict[str, Any]) -> Any:
    class Pickler(cloud.Pickler):  # type: ignore[misc]
        dispatch_table = cloud.Pickler.dispatch_table.new_child({memoryview: _refuse_view, **_file_table()})

        def __init__(self, file: Any, protocol: int, buffer_callback: Any) -> None:
            super().__init__(file, protocol=protocol, buffer_callback=buffer_callback)
            self.has_code = False
            self._cells: Dict[int, Tuple[Any, Any]] = {}

        def reducer_override(self, value: Any) -> Any:
            reduced = super().reducer_override(value)
            if reduced is not NotImplemented and isinstance(value, (type, _FUNCTION)):
                self.has_code = True
            return reduced

        def _dynamic_function_reduce(self, function: Any) -> Any:
            make, arguments, state, *rest = super()._dynamic_function_reduce(function)
            if function.__globals__ is namespace:
                state[1]["__globals__"] = {}
                arguments = (arguments[0], GLOBALS, *arguments[2:])
            if function.__closure__ is not None:
                arguments = (*arguments[:4], tuple(self._cell(cell) for cell in function.__closure__))
            return (make, arguments, state, *rest)

        def _cell(self, cell: Any) -> Any:
            """Functions that share a variable of their maker share it afterwards too."""
            if id(cell) not in self._cells:
                self._cells[id(cell)] = cell, types.CellType()
            return self._cells[id(cell)][1]

    return Pickler


def _plain_pickler(pickle: Any) -> Any:
    class Pickler(pickle.Pickler):  # type: ignore[misc]
        has_code = False

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, types.ModuleType):
                return __import__("importlib").import_module, (value.__name__,)
            if isinstance(value, (type, _FUNCTION)) and getattr(value, "__module__", None) == "__main__":
                raise Unpicklable("functions and classes of cells need cloudpickle, which this sandbox was not given")
            return NotImplemented

    return Pickler


def _make_unpickler(pickle: Any) -> Any:
    class Unpickler(pickle.Unpickler):  # type: ignore[misc]
        def find_class(self, module: str, name: str) -> Any:
            if module == borrowed.NAME:
                cloud = borrowed.cloudpickle()
                if cloud is None:
                    raise Unpicklable("it needs cloudpickle, which this sandbox was not given")
                return getattr(cloud, name)
            return super().find_class(module, name)

    return Unpickler


def _refuse_view(_view: Any) -> Any:
    raise Unpicklable("a memoryview shows memory of another object")


def _file_table() -> Dict[type, Any]:
    """cloudpickle would make a text of an open file; a file is something else."""
    import io

    return {io.TextIOWrapper: _refuse_file}


def _refuse_file(file: Any) -> Any:
    for name in ("stdout", "stderr", "stdin"):
        if file is getattr(sys, name, None) or file is getattr(sys, "__%s__" % name, None):
            return getattr, (sys, name)
    raise Unpicklable("an open file cannot be kept")
