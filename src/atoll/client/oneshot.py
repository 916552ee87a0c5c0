"""What the one-shot helpers share, blocking and asynchronous."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import AtollError, InvalidInput, ManyFailed
from ..policy.limits import MAX_LIFETIME, check_timeout
from ..policy.text import shown
from ..types import Completed
from .lifecycle import check_keywords

_SPARE = 60.0


def wishes_for_one(call: Callable[..., Any], wishes: Mapping[str, Any], count: int = 1) -> Any:
    """The wishes for a throw-away sandbox: it lives a little longer than so many commands may run.

    Raises TypeError for a keyword that neither `create` has nor the call itself.
    """
    check_keywords(wishes, call.__kwdefaults__ or ())
    timeout = check_timeout(wishes.get("timeout", 60.0))
    return wishes if timeout is None else {"lifetime": min(timeout * max(count, 1) + _SPARE, MAX_LIFETIME), **wishes}


def check_workers(max_workers: object) -> int:
    if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:
        raise InvalidInput(f"max_workers is {shown(max_workers)}; give a whole number above 0.")
    return max_workers


def all_completed(results: Sequence[Completed | AtollError | None]) -> list[Completed]:
    """The results, if there is one for each.

    Raises:
        ManyFailed: some broke; it has the results of the others.
    """
    completed = [result for result in results if isinstance(result, Completed)]
    if len(completed) < len(results):
        raise ManyFailed([result for result in results if result is not None])
    return completed
