"""Functions of the host, as the code of a cell sees them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NoReturn, Tuple

Call = Callable[[str, Tuple[Any, ...], Dict[str, Any]], Any]


class ToolError(Exception):
    """A function of the host failed, or the host refused the call."""

    __module__ = "builtins"  # a traceback names it as code finds it


class Tool:
    """A function of the host. Arguments and result are JSON values."""

    def __init__(self, name: str, call: Call) -> None:
        self.__name__ = name
        self._call = call

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._call(self.__name__, arguments, keywords)

    def __repr__(self) -> str:
        return "<tool %s of the host>" % self.__name__

    def __reduce__(self) -> NoReturn:
        raise TypeError("A tool of the host cannot be stored: it is there whenever a cell runs that may use it.")


class Tools:
    """The functions of the host that this cell may call, as attributes."""

    def __init__(self, names: Tuple[str, ...], call: Call) -> None:
        self._tools = {name: Tool(name, call) for name in names}

    def __getattr__(self, name: str) -> Tool:
        try:
            return self.__dict__["_tools"][name]  # type: ignore[no-any-return]
        except KeyError:
            known = ", ".join(self.__dict__.get("_tools", ())) or "none"
            raise AttributeError("The host offers no tool %r; it offers %s." % (name, known)) from None

    def __dir__(self) -> List[str]:
        return list(self._tools)

    def __repr__(self) -> str:
        return "<tools of the host: %s>" % (", ".join(self._tools) or "none")
