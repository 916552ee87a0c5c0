"""The review gate: what a sandbox has changed, and the only way for it into the source.

`changes` compares, `apply` takes over what the rules allow, all at once or not at all, and `recover` settles an apply
that was killed. `record_base` writes down what the source was, so that a source that has moved on is not overwritten.
Each name is imported when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true; importing typing for it would cost 5 ms
if TYPE_CHECKING:
    from .applying import apply, changes
    from .base import load_base, record_base
    from .recovery import recover
    from .stage import Stage

__all__ = ["Stage", "apply", "changes", "load_base", "record_base", "recover"]

_PLACES = {
    "Stage": "stage",
    "apply": "applying",
    "changes": "applying",
    "load_base": "base",
    "record_base": "base",
    "recover": "recovery",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(__import__(f"{__name__}.{_PLACES[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value
