"""What a run may spend, and what it has spent. Pure.

What is on its way to a model counts as spent until its reply tells what it took: calls that go out side by side must
not pass a limit together that each of them would have kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

REPLY = 4096
"""Tokens that one reply may take, where the budget has as many."""

LEAST_REPLY = 32


class Limits(NamedTuple):
    """`max_cost` is in dollars, `step_timeout` in seconds, `concurrency` how many calls code may have made at once."""

    max_depth: int = 4
    max_iterations: int = 10
    max_cost: float = 2.0
    step_timeout: float = 30.0
    max_subcalls: int = 12
    token_budget: int = 8000
    max_tool_calls: int = 50
    concurrency: int = 8


class LimitReached(Exception):
    """`limit` is the name of the limit, as it is written when an agent is made."""

    def __init__(self, limit: str, sentence: str) -> None:
        super().__init__(sentence)
        self.limit = limit


class Price(NamedTuple):
    """Dollars a token; None where nobody knows."""

    prompt: float | None = None
    completion: float | None = None


class Allowance(NamedTuple):
    """What one call may take, set aside for it."""

    prompt: int
    reply: int
    cost: float


class Ledger:
    """What one run has spent, with all of its parts. A part's spending counts for those above it, too."""

    def __init__(self, limits: Limits, above: Ledger | None = None) -> None:
        self.limits = limits
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.known_cost = 0.0
        self.unpriced = 0
        self.subcalls = 0
        self.tool_calls = 0
        self.aside_tokens = 0
        self.aside_cost = 0.0
        self._above = above
        self._waiting: list[Callable[[], object]] = []

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost(self) -> float | None:
        """Dollars, or None where the price of a call is not known."""
        return None if self.unpriced else self.known_cost

    def allow(self, prompt: int, price: Price) -> Allowance:
        """Set aside what a call with so many tokens in its prompt may take.

        Raises:
            LimitReached: there is no room for a reply of use.
        """
        reply = min((each.room(prompt, price) for each in self.all()), default=REPLY)
        cost = prompt * (price.prompt or 0.0) + reply * (price.completion or 0.0)
        for each in self.all():
            each.aside_tokens += prompt + reply
            each.aside_cost += cost
        return Allowance(prompt, reply, cost)

    def settle(self, allowance: Allowance) -> None:
        """Give back what was set aside: the call is over, or never was."""
        for each in self.all():
            each.aside_tokens -= allowance.prompt + allowance.reply
            each.aside_cost -= allowance.cost
            waiting, each._waiting = each._waiting, []  # noqa: SLF001  # its own kind
            for tell in waiting:
                tell()

    def tell_when_settled(self, tell: Callable[[], object]) -> bool:
        """Have `tell` called when something is given back that is set aside now, here or above; whether there is."""
        under_way = [each for each in self.all() if each.aside_tokens]
        for each in under_way:
            each._waiting.append(tell)  # noqa: SLF001  # same
        return bool(under_way)

    def charge(self, spent: Spent) -> None:
        """Count what a call, or a run that was a part of this one, has taken."""
        for each in self.all():
            each.prompt_tokens += spent.prompt_tokens
            each.completion_tokens += spent.completion_tokens
            each.cached_tokens += spent.cached_tokens
            each.known_cost += spent.cost or 0.0
            each.unpriced += spent.cost is None

    def count_subcalls(self, number: int = 1) -> None:
        """Raises LimitReached, and counts nothing, where they would be too many."""
        for each in self.all():
            if each.subcalls + number > each.limits.max_subcalls:
                left = max(each.limits.max_subcalls - each.subcalls, 0)
                raise LimitReached(
                    "max_subcalls",
                    f"{number} more calls were asked for, and of {each.limits.max_subcalls} that code may make in this "
                    f"run {left} are left.",
                )
        self.add_subcalls(number)

    def add_subcalls(self, number: int) -> None:
        """Count what was made already, whatever the limit."""
        for each in self.all():
            each.subcalls += number

    def count_tool_call(self) -> None:
        """Raises LimitReached."""
        for each in self.all():
            if each.tool_calls >= each.limits.max_tool_calls:
                raise LimitReached(
                    "max_tool_calls", f"{each.tool_calls} tool calls were made, which are all that there may be."
                )
        self.add_tool_call()

    def add_tool_call(self) -> None:
        """Count one that was made already, whatever the limit."""
        for each in self.all():
            each.tool_calls += 1

    def spent(self) -> Spent:
        return Spent(self.prompt_tokens, self.completion_tokens, self.cached_tokens, self.cost)

    def room(self, prompt: int, price: Price) -> int:
        """How many tokens a reply may have."""
        tokens = self.limits.token_budget - self.tokens - self.aside_tokens - prompt
        if tokens < LEAST_REPLY:
            raise LimitReached(
                "token_budget",
                f"{self.tokens} of {self.limits.token_budget} tokens are spent, and the next call takes about {prompt} "
                "before its reply.",
            )
        money = self.limits.max_cost - self.known_cost - self.aside_cost - prompt * (price.prompt or 0.0)
        affordable = int(money / price.completion) if price.completion else REPLY
        if money < 0 or affordable < LEAST_REPLY:
            raise LimitReached(
                "max_cost",
                f"${self.known_cost:.4f} of ${self.limits.max_cost:.2f} are spent, and the next call is too dear.",
            )
        return min(tokens, affordable, REPLY)

    def all(self) -> list[Ledger]:
        """This one, and those that it counts for, too."""
        return [self] if self._above is None else [self, *self._above.all()]


class Spent(NamedTuple):
    """What something took. `cost` is None where it is not known."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Spent:
        return cls(*(value[name] for name in cls._fields))
