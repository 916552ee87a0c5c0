"""A line beside a command that failed, where atoll knows more about the reason than the command could say."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .output import complain

if TYPE_CHECKING:
    from ..sync.sandbox import Sandbox
    from ..types import CodeError
    from .programs import Job
    from .streaming import Ended

_NO_SUCH_PROGRAM = (126, 127)
# What programs say that found no network: the C library, curl, Python, Node.js, Java, Go, Rust and Git.
_OFFLINE = re.compile(
    r"could ?n[o']t resolve|temporary failure in name resolution|temporary failure resolving|name or service not known"
    r"|no address associated with hostname|nodename nor servname|unable to resolve host|failed to lookup address"
    r"|network is unreachable|no route to host|getaddrinfo|EAI_AGAIN|ENOTFOUND|ENETUNREACH|NameResolutionError"
    r"|UnknownHostException|dial tcp: lookup|NewConnectionError",
    re.IGNORECASE,
)
_NO_NETWORK = "This sandbox has no network; --network all gives a new one the internet, --packages Python packages."
_MOST_READ = 10_000
# What is of no use without a network, though it may wait in silence until its time is over, or fail without a word.
_FETCHING = re.compile(
    r"(?:^|[;&|])\s*(?:curl|wget|npx|ping"
    r"|(?:python[\d.]*\s+-m\s+)?pip[\d.]*\s+(?:install|download)|uv\s+(?:add|sync|tool|pip\s+install)|uvx"
    r"|(?:npm|pnpm|yarn|bun)\s+(?:i|ci|install|add)\b|git\s+(?:clone|fetch|pull|push|ls-remote)"
    r"|apt(?:-get)?\s+(?:install|update)|go\s+(?:get|install|mod\s+download)|cargo\s+(?:add|install|fetch))\b"
)
# What waits for keys when it is given no arguments.
_TYPED_AT = re.compile(
    r"(?:.*/)?(?:i?python[\d.]*|node|deno|bun|lua|perl|php|ruby|irb|R|ghci|jshell|psql|sqlite3|bc|gdb|bash|zsh|fish"
    r"|dash|ksh|sh|cat|tee|vi|vim|nano|less|more|top|htop)"
)


def tell(sandbox: Sandbox, job: Job, ended: Ended) -> None:
    """Say what is known of a command that has ended, on stderr; nothing where nothing is known."""
    completed = ended.completed
    if completed.success:
        if job.keyless and isinstance(job.what, str) and _TYPED_AT.fullmatch(job.what.strip()) and os.isatty(2):
            complain(f"`{job.what}` got no keys; they are for a command whose input and output are your terminal.")
        return
    if completed.out_of_memory:
        from ..policy.sizes import format_size

        limit = format_size(sandbox.info.spec.resources.memory)
        complain(f"The command was killed for its memory ({limit}); --memory gives a new sandbox more.")
    elif _wanted_network(job, ended) and _has_no_network(sandbox):
        complain(_NO_NETWORK)
    elif completed.exit_code in _NO_SUCH_PROGRAM and isinstance(job.what, list) and " " in job.what[0].strip():
        complain(
            f"{job.what[0]!r} was taken for the name of a program, since more words follow it; quote the whole "
            "command, and write options of atoll before it."
        )
    elif job.late:
        complain(f"{job.late} came after the command, and so it is the command's; options of atoll come before it.")


def tell_of_cell(sandbox: Sandbox, error: CodeError) -> None:
    """The same for a cell that raised."""
    if _OFFLINE.search(error.traceback[-_MOST_READ:]) and _has_no_network(sandbox):
        complain(_NO_NETWORK)


def _has_no_network(sandbox: Sandbox) -> bool:
    from .. import registry
    from ..io import BlockingIO
    from ..types import Capability

    driver = registry.load(sandbox.driver, BlockingIO())
    return sandbox.info.spec.network == "none" and Capability.NETWORK_NONE in driver.capabilities


def _wanted_network(job: Job, ended: Ended) -> bool:
    if _OFFLINE.search(ended.tail):
        return True
    command = job.what if isinstance(job.what, str) else " ".join(job.what) if isinstance(job.what, list) else ""
    return not ended.tail.strip() and _FETCHING.search(command) is not None
