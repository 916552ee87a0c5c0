"""What is known of a command's failure beyond what it could say itself: the `hint` of its result."""

from __future__ import annotations

import re
from typing import Any

from ..policy.sizes import format_size
from ..types import Capability, Completed, Offers, Spec
from .running import TAIL

# What programs say that found no network: the C library, curl, Python, Node.js, Java, Go, Rust and Git.
_OFFLINE = re.compile(
    r"could ?n[o']t resolve|temporary failure in name resolution|temporary failure resolving|name or service not known"
    r"|no address associated with hostname|nodename nor servname|unable to resolve host|failed to lookup address"
    r"|network is unreachable|no route to host|getaddrinfo|EAI_AGAIN|ENOTFOUND|ENETUNREACH|NameResolutionError"
    r"|UnknownHostException|dial tcp: lookup|NewConnectionError",
    re.IGNORECASE,
)
# What is of no use without a network, though it may wait in silence until its time is over, or fail without a word.
# No newline is among the blanks before a name, since each begins a command: a hundred thousand of them took minutes.
_FETCHING = re.compile(
    r"(?:^|[;&|\n])[ \t]*(?:curl|wget|npx|ping"
    r"|(?:python[\d.]*\s+-m\s+)?pip[\d.]*\s+(?:install|download)|uv\s+(?:add|sync|tool|pip\s+install)|uvx"
    r"|(?:npm|pnpm|yarn|bun)\s+(?:i|ci|install|add)\b|git\s+(?:clone|fetch|pull|push|ls-remote)"
    r"|apt(?:-get)?\s+(?:install|update)|go\s+(?:get|install|mod\s+download)|cargo\s+(?:add|install|fetch))\b"
)
NO_NETWORK = (
    "This sandbox has no network; network='all' (--network all) gives a new one the internet, packages= (--packages) "
    "Python packages."
)
_MORE_TIME = "A longer timeout= (-t) gives it more time."


def hint_for(offers: Offers, spec: Spec, request: dict[str, Any], completed: Completed, tail: str) -> str | None:
    """Why a command that was asked for so has failed, and what helps; None where no more is known than it said.

    Args:
        tail: the end of its output. A hostile command may write what it likes there, and have a hint for it.
    """
    if completed.success:
        return None
    if completed.out_of_memory:
        limit = format_size(spec.resources.memory)
        return f"This sandbox has {limit} of memory; resources={{'memory': …}} (--memory) gives a new one more."
    hints = [_MORE_TIME] if completed.timed_out else []
    if (_sounds_offline(tail) or (not tail.strip() and _fetches(request))) and _has_no_network(offers, spec):
        hints.append(NO_NETWORK)
    return " ".join(hints) or None


def hint_for_traceback(offers: Offers, spec: Spec, traceback: str) -> str | None:
    """The same for a cell that raised."""
    return NO_NETWORK if _sounds_offline(traceback) and _has_no_network(offers, spec) else None


def _sounds_offline(said: str) -> bool:
    return _OFFLINE.search(said[-TAIL:]) is not None


def _fetches(request: dict[str, Any]) -> bool:
    argv = request.get("argv", [])
    line = argv[2] if argv[1:2] == ["-c"] and len(argv) == 3 else " ".join(argv)
    return _FETCHING.search(request.get("command", line)) is not None


def _has_no_network(offers: Offers, spec: Spec) -> bool:
    """Whether that is so, and not only what was asked for: some walls cannot take it away."""
    return spec.network == "none" and Capability.NETWORK_NONE in offers.capabilities
