"""What code in a cell may call: models, helpers with sandboxes of their own, and the end of the work.

Keys, budgets and limits stay out here. What code says is hostile: it chooses words, and nothing else.

A cell that is run again after a crash makes its calls again, maybe in another order. So a call is known by its words:
the first one with a given prompt in a cell is the same call as the first one with that prompt before the crash.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..models import Reply, estimate_tokens
from .limits import Ledger, LimitReached, Spent
from .steps import Outcome, Steps
from .together import together

MOST_PROMPTS = 1000
Part = Callable[[str, str, str, Any], Awaitable[Outcome]]


class Asking(Protocol):
    """Sends a conversation to the model, within the budget."""

    async def __call__(self, messages: list[dict[str, Any]], *, tools: bool) -> tuple[Reply, Spent]: ...


class Final(NamedTuple):
    """How code ended the work: with a text, or with the variable of this name."""

    text: str | None = None
    variable: str | None = None


class Cell:
    """A cell that runs: what it has asked, and for how long it has waited for answers."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.final: Final | None = None
        self.refused: LimitReached | None = None
        self._said: dict[str, int] = {}
        self._waited = 0.0
        self._since: float | None = None

    def call_key(self, kind: str, words: Any) -> str:
        digest = hashlib.sha256(json.dumps([kind, words], sort_keys=True).encode()).hexdigest()[:16]
        number = self._said.get(digest, 0)
        self._said[digest] = number + 1
        return f"{self.key}/{digest}.{number}"

    @property
    def waited(self) -> float:
        """Seconds that were spent on answers, which are not the cell's own."""
        return self._waited + (0.0 if self._since is None else time.monotonic() - self._since)

    async def wait_for(self, answer: Awaitable[Any]) -> Any:
        self._since = time.monotonic()
        try:
            return await answer
        except LimitReached as reached:
            self.refused = reached
            raise
        finally:
            self._waited, self._since = self.waited, None


class Recursion:
    """The functions for one run's cells.

    Args:
        asking: sends a prompt to the model.
        part: runs a helper: with a key, a prompt, the key of the cell, and a context. None at the greatest depth, where
            a plain call does what a helper would have done.
    """

    def __init__(self, steps: Steps, ledger: Ledger, asking: Asking, part: Part | None) -> None:
        self._steps = steps
        self._ledger = ledger
        self._asking = asking
        self._part = part
        self.cell: Cell | None = None

    def functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "llm_query": self._llm_query,
            "llm_query_batched": self._llm_query_batched,
            "rlm_query": self._rlm_query,
            "FINAL": self._final,
            "FINAL_VAR": self._final_var,
        }

    async def _llm_query(self, prompt: str) -> str:
        cell = self._current()
        (answer,) = await cell.wait_for(self._queries(cell, [_text(prompt, "prompt")]))
        return str(answer)

    async def _llm_query_batched(self, prompts: list[str]) -> list[str]:
        cell = self._current()
        if len(_list(prompts)) > MOST_PROMPTS:
            raise TypeError(f"prompts must be a list of at most {MOST_PROMPTS} texts")
        wanted = [_text(prompt, "each of the prompts") for prompt in prompts]
        answers: list[str] = await cell.wait_for(self._queries(cell, wanted)) if wanted else []
        return answers

    async def _rlm_query(self, prompt: str, context: Any = None) -> str:
        cell = self._current()
        _text(prompt, "prompt")
        if self._part is None:
            whole = (
                prompt
                if context is None
                else f"{prompt}\n\n{context if isinstance(context, str) else json.dumps(context)}"
            )
            (answer,) = await cell.wait_for(self._queries(cell, [whole]))
            return str(answer)
        key = cell.call_key("run", [prompt, context])
        self._count([key])
        outcome = await cell.wait_for(self._part(key, prompt, cell.key, context))
        return str(outcome["text"])

    async def _final(self, answer: Any = "") -> None:
        self._current().final = Final(text=as_text(answer))

    async def _final_var(self, name: str) -> None:
        if not _text(name, "the name").isidentifier():
            raise TypeError("FINAL_VAR takes the name of a variable, as text")
        self._current().final = Final(variable=name)

    def _current(self) -> Cell:
        if self.cell is None:
            raise RuntimeError("No cell of this run is being run now, so nobody answers.")
        return self.cell

    def _count(self, keys: list[str]) -> None:
        """Those that were begun before the run was interrupted are counted."""
        new = sum(self._steps.known(key) is None for key in keys)
        if new:
            self._ledger.count_subcalls(new)

    async def _queries(self, cell: Cell, prompts: list[str]) -> list[str]:
        import anyio

        keys = [cell.call_key("query", prompt) for prompt in prompts]
        self._count(keys)
        limiter = anyio.CapacityLimiter(self._ledger.limits.concurrency)

        async def one(key: str, prompt: str) -> str:
            async with limiter:
                return await self._query(cell, key, prompt)

        # One that fails does not end the others: they are paid for, and a cell that tries again has them.
        calls = [partial(one, key, prompt) for key, prompt in zip(keys, prompts, strict=True)]
        return await together(calls, to_the_end=True)

    async def _query(self, cell: Cell, key: str, prompt: str) -> str:
        async def act() -> tuple[Outcome, None]:
            reply, spent = await self._asking([{"role": "user", "content": prompt}], tools=False)
            text = reply.text or reply.refusal or ""
            return {"text": text, "reply": reply.to_json(), "spent": spent.to_json()}, None

        outcome = await self._steps.do(key, "query", "llm_query", {"prompt": prompt}, act, parent=cell.key)
        return str(outcome["text"])


def as_text(value: Any) -> str:
    """An answer that code gave, whatever it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair could be sent and printed nowhere


def prompt_tokens(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> int:
    """About how many tokens a request takes."""
    return estimate_tokens(json.dumps([messages, tools], ensure_ascii=False))


def spent_on(reply: Reply, prompt: int) -> Spent:
    """What a call took; estimated, and of unknown cost, where the server does not say."""
    if reply.usage is None:
        said = reply.text + (reply.reasoning or "") + "".join(call.arguments for call in reply.tool_calls)
        return Spent(prompt, estimate_tokens(said) if said else 0, 0, reply.cost)
    return Spent(*reply.usage, reply.cost)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"prompts must be a list of texts, not {type(value).__name__}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a text, not {type(value).__name__}")
    return value
