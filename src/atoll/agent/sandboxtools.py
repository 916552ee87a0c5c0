"""The tools by which a model works in its sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..errors import AtollError, FileError, InvalidInput
from . import showing
from .toolspec import Outcome, Tool

if TYPE_CHECKING:
    from ..sandbox import AsyncSandbox

Sandboxed = Callable[["AsyncSandbox", dict[str, Any]], Awaitable[Outcome]]
RunCell = Callable[["AsyncSandbox", str], Awaitable[Outcome]]
Open = Callable[[], Awaitable["AsyncSandbox"]]

NAMES = frozenset(("run_code", "run_command", "read_file", "write_file", "edit_file", "list_files", "search_files"))
_PATH = {"type": "string", "description": "absolute, or relative to /workspace"}
_MOST_READ = 4 << 20


def sandbox_tools(open_sandbox: Open, run_cell: RunCell, seconds: float) -> list[Tool]:
    """All of them. `run_cell` runs code, and `seconds` is what a command may take."""

    async def run_code(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
        return await run_cell(sandbox, given["code"])

    async def run_command(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
        wanted = float(min(given.get("timeout", seconds), seconds))  # compared first: a model may write 10**400
        done = await sandbox.run(given["command"], timeout=max(wanted, 0.1))
        return showing.of_command(done, wanted)

    def tool(name: str, about: str, call: Sandboxed, required: dict[str, Any], /, **optional: Any) -> Tool:
        schema = {
            "type": "object",
            "properties": {**required, **optional},
            "required": list(required),
            "additionalProperties": False,
        }
        return Tool(name, about, schema, _told(open_sandbox, call), idempotent=True)

    text = {"type": "string"}
    return [
        tool("run_code", "Run Python. Variables, imports and functions stay for the next call. The value of the last "
             "expression and what is printed come back.", run_code, {"code": text}),
        tool("run_command", "Run a shell command.", run_command, {"command": text},
             timeout={"type": "number", "exclusiveMinimum": 0, "description": f"seconds, at most {seconds:g}"}),
        tool("read_file", "Read a text file.", _read_file, {"path": _PATH},
             first_line={"type": "integer", "minimum": 1}, lines={"type": "integer", "minimum": 1}),
        tool("write_file", "Write a text file, with its directories.", _write_file, {"path": _PATH, "content": text}),
        tool("edit_file", "Replace a piece of a text file. `old` must be there exactly once, unless `all` is true.",
             _edit_file, {"path": _PATH, "old": text, "new": text}, all={"type": "boolean"}),
        tool("list_files", "List a directory.", _list_files, {}, path=_PATH, recursive={"type": "boolean"}),
        tool("search_files", "Find files by name (glob), or lines by content (regular expression).", _search_files, {},
             name={"type": "string", "description": "such as *.py"}, content=text, path=_PATH),
    ]  # fmt: skip


def _told(open_sandbox: Open, call: Sandboxed) -> Callable[[dict[str, Any]], Awaitable[Outcome]]:
    """What a model did wrong is its answer. What the wall did wrong is raised."""

    async def told(given: dict[str, Any]) -> Outcome:
        sandbox = await open_sandbox()
        try:
            return await call(sandbox, given)
        except (InvalidInput, FileError) as error:
            return Outcome(str(error), failed=True)

    return told


async def _read_file(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
    content = await sandbox.files.read(given["path"], max_size=_MOST_READ)
    if "first_line" in given or "lines" in given:
        lines = content.splitlines(keepends=True)
        first = int(given.get("first_line", 1)) - 1  # JSON has one kind of number, so 2.0 is whole, too
        content = "".join(lines[first : first + int(given.get("lines", len(lines)))])
    return Outcome(showing.clip(content) or "[the file is empty]")


async def _write_file(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
    size = await sandbox.files.write(given["path"], given["content"])
    return Outcome(f"[{size} bytes written to {given['path']}]")


async def _edit_file(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
    old, new = given["old"], given["new"]
    if not old or old == new:
        return Outcome("`old` is empty, or the same as `new`: there is nothing to replace.", failed=True)
    content = await sandbox.files.read(given["path"], max_size=_MOST_READ)
    count = content.count(old)
    if not count or (count > 1 and not given.get("all")):
        return Outcome(f"`old` is there {count} times; give a piece that is there exactly once.", failed=True)
    await sandbox.files.write(given["path"], content.replace(old, new))
    return Outcome(f"[{count} replaced in {given['path']}]")


async def _list_files(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
    found = await sandbox.files.list(given.get("path", "."), recursive=bool(given.get("recursive")))
    return showing.of_listing(list(found))


async def _search_files(sandbox: AsyncSandbox, given: dict[str, Any]) -> Outcome:
    if "name" not in given and "content" not in given:
        return Outcome("Give `name`, or `content`, or both.", failed=True)
    found = await sandbox.files.search(given.get("name"), content=given.get("content"), path=given.get("path", "."))
    return showing.of_search(list(found))


def ended(error: AtollError) -> str:
    """What a model is told of a sandbox that ended under it."""
    return f"The sandbox ended while this ran: {error.message}"
