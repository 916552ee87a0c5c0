"""The configuration files of MCP clients: where each has its own, and what belongs into it. Pure."""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..policy.text import shown

CLIENTS = ("claude-code", "claude-desktop", "cursor", "vscode")
SCOPES = ("user", "project")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LONGEST_NUMBER = 1000


class Place(NamedTuple):
    """A file, and the member of it that has the servers by name. `typed` is whether an entry says its transport."""

    path: str
    member: str
    typed: bool = False


def place_of(client: str, scope: str, home: str, project: str, platform: str, config: str) -> Place:
    """Where a client looks for its servers.

    Args:
        home: of the user.
        project: a directory.
        platform: as `sys.platform` says it.
        config: where programs of this user keep their settings, such as `~/.config`.

    Raises:
        InvalidInput: the client is unknown, or has no such file.
    """
    if client not in CLIENTS:
        raise InvalidInput(f"--client is {shown(client)}; give one of {', '.join(CLIENTS)}.")
    if scope not in SCOPES:
        raise InvalidInput(f"--scope is {shown(scope)}; give user or project.")
    if platform == "darwin":
        config = f"{home}/Library/Application Support"
    places = {
        ("claude-code", "user"): Place(f"{home}/.claude.json", "mcpServers", typed=True),
        ("claude-code", "project"): Place(f"{project}/.mcp.json", "mcpServers", typed=True),
        ("claude-desktop", "user"): Place(f"{config}/Claude/claude_desktop_config.json", "mcpServers"),
        ("cursor", "user"): Place(f"{home}/.cursor/mcp.json", "mcpServers"),
        ("cursor", "project"): Place(f"{project}/.cursor/mcp.json", "mcpServers"),
        ("vscode", "user"): Place(f"{config}/Code/User/mcp.json", "servers", typed=True),
        ("vscode", "project"): Place(f"{project}/.vscode/mcp.json", "servers", typed=True),
    }
    if (client, scope) not in places:
        raise InvalidInput(f"{client} has no configuration for a project; leave --scope out.")
    return places[client, scope]


def entry(place: Place, command: list[str]) -> dict[str, Any]:
    """What the file has about our server."""
    said = {"command": command[0], "args": command[1:]}
    return {"type": "stdio", **said} if place.typed else said


def check_name(name: str) -> str:
    """Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"--name is {shown(name)}; give 1 to 64 letters, digits, '_' or '-'.")
    return name


def merged(text: str, place: Place, name: str, server: dict[str, Any]) -> str:
    """The file with our entry in it, and everything else as it was; the same text when it was there.

    Args:
        text: what the file has; empty for one that is not there.

    Raises:
        InvalidInput: it is no JSON, or no JSON that can be written again without losing something. The message has what
            to paste.
    """
    numbers = _Numbers()
    content = _parsed(text, place, name, server, numbers) if text.strip() else {}
    if not isinstance(content, dict):
        raise _refusal(place, name, server, "it is no object")
    servers = content.get(place.member, {})
    if not isinstance(servers, dict):
        raise _refusal(place, name, server, f"its member {place.member!r} is no object")
    if servers.get(name) == server:
        return text
    content[place.member] = {**servers, name: server}
    return numbers.restored(_written(content, _indent(text)))


class _Numbers:
    """Numbers that Python would write in another way, or not at all: kept as text, with a mark that nobody can know."""

    def __init__(self) -> None:
        self._mark = f"atoll-number-{os.urandom(16).hex()}:"

    def whole(self, text: str) -> int | str:
        # Python refuses very many digits, and has one zero only.
        return self._mark + text if len(text) > _LONGEST_NUMBER or text == "-0" else int(text)

    def fraction(self, text: str) -> float | str:
        return float(text) if repr(float(text)) == text else self._mark + text

    def restored(self, text: str) -> str:
        return re.sub(rf'"{self._mark}([-+.0-9eE]+)"', r"\1", text)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _parsed(text: str, place: Place, name: str, server: dict[str, Any], numbers: _Numbers) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _refusal(place, name, server, "a name is there twice in it, and one of the two would be lost")
        return found

    try:
        return json.loads(
            text,
            object_pairs_hook=once,
            parse_int=numbers.whole,
            parse_float=numbers.fraction,
            parse_constant=_no_number,
        )
    except InvalidInput:
        raise
    except RecursionError:
        raise _refusal(place, name, server, "it is nested too deeply") from None
    except ValueError as error:
        if _has_comments(text):
            raise _refusal(place, name, server, "it has comments or trailing commas, which would be lost") from None
        raise _refusal(place, name, server, f"it is no JSON ({error})") from None


def _has_comments(text: str) -> bool:
    """Whether it is JSON but for comments and trailing commas, as VS Code writes it."""
    bare = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda match: match[1] or " ", text, flags=re.DOTALL)
    bare = re.sub(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', lambda match: match[1] or "", bare, flags=re.DOTALL)
    try:
        json.loads(bare, parse_int=str, parse_float=str, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return False
    return True


def _refusal(place: Place, name: str, server: dict[str, Any], why: str) -> InvalidInput:
    return InvalidInput(
        f"{place.path} is left as it is: {why}.",
        hint=f'Add this to its "{place.member}" yourself: {json.dumps(name)}: {json.dumps(server)}',
    )


def _indent(text: str) -> str | int:
    found = re.search(r"^([ \t]+)\S", text, flags=re.MULTILINE)
    return found[1] if found else 2


def _written(content: dict[str, Any], indent: str | int) -> str:
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, which can only be written as an escape
        text = json.dumps(content, indent=indent, allow_nan=False)
    return text + "\n"
