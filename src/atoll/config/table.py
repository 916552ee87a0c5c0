"""Every setting of an agent: what it is called, what it may be, and what it is unless somebody says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import InvalidInput, Unsupported
from ..policy.sizes import parse_size
from ..policy.text import shown

_USUAL_MEMORY = "512M"
_MOST_TOKENS = 100_000_000
# Longer ones are cut: they stay far out of any range.
_LONGEST_NUMBER = 40


class Kind(NamedTuple):
    """`check` gives the value in its usual form or raises InvalidInput; `parse` makes one of a variable's text."""

    check: Callable[[str, Any], Any]
    parse: Callable[[str, str], Any] = lambda _, text: text


class Entry(NamedTuple):
    """`bound` is what a file that nobody trusts may lower the value to: it, or anything below. None for nothing."""

    name: str
    kind: Kind
    default: Any
    description: str
    example: str
    bound: Any = None
    variable: str = ""

    @property
    def environment(self) -> str:
        """The variable that sets it."""
        return self.variable or f"ATOLL_{self.name.upper()}"

    def check(self, value: Any) -> Any:
        """Raises InvalidInput."""
        return self.kind.check(self.name, value)

    def parse(self, text: str) -> Any:
        """Of the text of an environment variable. Raises InvalidInput."""
        return self.check(self.kind.parse(self.name, text))

    def is_harmless(self, value: Any) -> bool:
        """Whether a file may set this that came with somebody's files: it only takes something away."""
        if self.bound is None:
            return False
        if isinstance(self.bound, str):
            return parse_size(value) <= parse_size(self.bound)
        return bool(value <= self.bound)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InvalidInput(f"{name} is {shown(value)}; give a text in quotes.")
    return value


def _model(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or " " in value or not value:
        raise InvalidInput(f"{name} is {shown(value)}; give a name such as 'openai/gpt-4o-mini'.")
    return value


def _url(name: str, value: Any) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value) if isinstance(value, str) and value.isprintable() and " " not in value else None
        good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts is None:
        raise InvalidInput(f"{name} is no URL; write it as 'https://example.com/v1', with http:// or https://.")
    if parts.username is not None or parts.password is not None:
        # Not shown, since it holds a password.
        raise InvalidInput(f"{name} holds a name or password before the @; leave it out, and set ATOLL_API_KEY.")
    if parts.query or parts.fragment:
        raise InvalidInput(f"{name} has something after a ? or #, where secrets might be; leave it out.")
    return str(value)


def _network(name: str, value: Any) -> str:
    if value not in ("none", "all", "host"):
        raise InvalidInput(f"{name} is {shown(value)}; give 'none', 'all' or 'host'.")
    return str(value)


def _packages(name: str, value: Any) -> tuple[str, ...]:
    from ..policy.requirements import check_requirements

    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{name} is {shown(value)}; give a list such as ['pandas', 'numpy'].")
    try:
        return check_requirements(value)
    except Unsupported as error:
        raise InvalidInput(str(error)) from None


def _size(name: str, value: Any) -> Any:
    parse_size(value, name)
    return value


def _slug(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isascii() or not value.replace("-", "a").isidentifier():
        raise InvalidInput(f"{name} is {shown(value)}; give the slug of a project, such as 'my-project'.")
    return value


def _servers(_name: str, value: Any) -> dict[str, Any]:
    from .servers import check_servers

    check_servers(value)
    return {name: dict(entry) for name, entry in value.items()}


def _whole(least: int, most: int) -> Kind:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidInput(f"{name} is {shown(value)}; give a whole number from {least} to {most}.")
        return value

    return Kind(check, _as_number)


def _number(most: float) -> Kind:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise InvalidInput(f"{name} is {shown(value)}; give a number above 0, at most {most:g}.")
        return float(value)

    return Kind(check, _as_number)


def _as_number(_name: str, text: str) -> Any:
    # What is none stays a text, which the check refuses with what to write.
    for kind in (int, float):
        try:
            return kind(text[:_LONGEST_NUMBER])
        except ValueError:
            continue
    return text


def _as_list(_name: str, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _as_json(name: str, text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f'{name} is no JSON; write it as {{"docs": {{"url": "https://example.com/mcp"}}}}.'
        ) from None


ENTRIES = (
    Entry("model", Kind(_model), None, "The model, as provider/name.", '"openai/gpt-4o-mini"'),
    Entry("base_url", Kind(_url), None, "Where an OpenAI-compatible server listens, for models of your own.",
        '"http://localhost:8000/v1"'),
    Entry("driver", Kind(_text), None, "The wall: `atoll providers` lists them. Unless set: jail.", '"jail"'),
    Entry("network", Kind(_network), "none", "What code reaches of the network: none, all or host.", '"none"'),
    Entry("packages", Kind(_packages, _as_list), (), "Python packages that code finds installed.", '["pandas"]'),
    Entry("memory", Kind(_size), None, "How much memory a sandbox may take. Unless set: 512M.", '"512M"',
        bound=_USUAL_MEMORY),
    Entry("max_depth", _whole(1, 5), 4, "How deep models may call models; 1 is not at all.", "4", bound=4),
    Entry("max_iterations", _whole(1, 50), 10, "How often the model is asked in one run.", "10", bound=10),
    Entry("max_cost", _number(10.0), 2.0, "Dollars that one run may cost.", "2.00", bound=2.0),
    Entry("step_timeout", _number(600.0), 30.0, "Seconds that one step may take.", "30", bound=30.0),
    Entry("max_subcalls", _whole(0, 1000), 12, "Calls of models that code may make in one run.", "12", bound=12),
    Entry("token_budget", _whole(1, _MOST_TOKENS), 8000, "Tokens that one completion may take.", "8000", bound=8000),
    Entry("agent_token_budget", _whole(1, _MOST_TOKENS), 50_000, "Tokens that one run of an agent may take.", "50000",
        bound=50_000),
    Entry("max_tool_calls", _whole(0, 1000), 50, "Calls of tools that one run may make.", "50", bound=50),
    Entry("concurrency", _whole(1, 64), 8, "Calls of models that are under way at once.", "8", bound=8),
    Entry("validate", Kind(_text), None, "A command that must succeed before an answer counts.", '"pytest -q"'),
    Entry("snipara_project_slug", Kind(_slug), None, "The project of Snipara whose context an agent may ask for.",
        '"my-project"', variable="SNIPARA_PROJECT_SLUG"),
    Entry("mcp_servers", Kind(_servers, _as_json), {}, "MCP servers whose tools an agent may use.", ""),
)  # fmt: skip

BY_NAME = {entry.name: entry for entry in ENTRIES}


def entry_of(name: str) -> Entry:
    """Raises InvalidInput for a name that no setting has, with the nearest that one has."""
    if name not in BY_NAME:
        from difflib import get_close_matches

        near = get_close_matches(str(name), BY_NAME, n=1)
        guess = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(BY_NAME)}."
        raise InvalidInput(f"There is no setting {shown(name)}: {guess}")
    return BY_NAME[name]
