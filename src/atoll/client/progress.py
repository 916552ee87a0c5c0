"""What an installer says: told line by line while it works, and why it failed when it did."""

from __future__ import annotations

from ..types import Completed
from .running import Callback, tell

_LONGEST = 500
_REASONS = 3
_NO_NETWORK = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "dns error",
    "error sending request",
    "ConnectTimeoutError",
    "ProxyError",
)


class Lines:
    """Text cut into lines for a callback, each without what a terminal would take for a command."""

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback
        self._begun = ""
        self._said: set[str] = set()

    async def hear(self, text: str) -> None:
        *whole, rest = (self._begun + text).split("\n")
        self._begun = rest[:_LONGEST]
        for line in whole:
            await self._say(line)

    async def finish(self) -> None:
        rest, self._begun = self._begun, ""
        await self._say(rest)

    async def say_once(self, line: str) -> None:
        """Words of our own."""
        if line not in self._said:
            self._said.add(line)
            await self._say(line)

    async def _say(self, line: str) -> None:
        if self._callback is not None and line.strip():
            await tell(self._callback, clean(line))


def clean(line: str) -> str:
    """A line of a hostile program as plain text of a bounded length."""
    return "".join(letter if letter.isprintable() else " " for letter in line.strip("\r"))[:_LONGEST].rstrip()


def is_out_of_reach(completed: Completed) -> bool:
    """Whether an installer could not speak to the index."""
    return any(word in completed.stderr or word in completed.stdout for word in _NO_NETWORK)


def reason_of(packages: tuple[str, ...], completed: Completed) -> str:
    """Why an installation failed, in the installer's own words, as one sentence."""
    what = f"{', '.join(packages[:5])}{' and more' if len(packages) > 5 else ''} could not be installed"
    if completed.timed_out:
        return f"{what}: the installer ran out of time."
    said = [clean(line) for line in (completed.stderr + "\n" + completed.stdout).splitlines() if line.strip()]
    # Of an exception its last line tells what was wrong.
    said = [line for line in said if not line.endswith("ERROR: Exception:")]
    errors = [line.partition(":")[2].strip() for line in said if line.lower().lstrip().startswith(("error:", "cause:"))]
    # An older uv draws a little tree below its headline.
    errors = errors or [line.lstrip(" ×╰─▶├│") for line in said if line.lstrip().startswith(("×", "╰─▶"))]
    reason = " ".join(errors[:_REASONS] or said[-1:]) or f"the installer ended with {completed.exit_code}"
    if is_out_of_reach(completed):
        reason = f"the package index could not be reached. {reason}"
    return f"{what}: {reason}"
