"""One text for both forms: the blocking classes show the docstrings of the asynchronous ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=type)


def documented_by(source: type) -> Callable[[C], C]:
    """Give a class and its members the docstrings of their namesakes in `source`."""

    def copy(target: C) -> C:
        target.__doc__ = target.__doc__ or source.__doc__
        for name, member in vars(target).items():
            twin = vars(source).get(_TWINS.get(name, name))
            inner = getattr(member, "__func__", member)
            if twin is not None and callable(inner) and inner.__doc__ is None:
                inner.__doc__ = twin.__doc__
        return target

    return copy


_TWINS = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__", "__next__": "__anext__"}
