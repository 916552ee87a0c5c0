"""MCP servers that an agent may use, as they are written down: in the form that Claude and others read, too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import InvalidInput
from ..policy.text import shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET = re.compile(r"key|token|secret|passw|auth|credential|cookie|session", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHORTEST_SECRET = 6
_LONGEST_TIMEOUT = 3600.0
TIMEOUT = 60.0

_COMMON = {"tools", "timeout", "start_timeout", "type"}
_STDIO = {"command", "args", "env", "cwd"} | _COMMON
_HTTP = {"url", "headers"} | _COMMON
_TYPES = {"stdio": "command", "http": "url", "streamable-http": "url", "streamable_http": "url"}


class Server(NamedTuple):
    """One that is started by `command`, or one that is reached at `url`. `timeout` is for each call,
    `start_timeout` until it has told its tools; `tools` are those that are wanted, None for all. Its repr tells no
    secret."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    tools: tuple[str, ...] | None = None
    timeout: float = TIMEOUT
    start_timeout: float = TIMEOUT

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.place})"

    @property
    def place(self) -> str:
        """Where it is, without what may be secret."""
        if self.command:
            return self.command[0]
        from urllib.parse import urlsplit

        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def secrets(self) -> list[str]:
        """What was given to this server and must not come out again, longest first."""
        found = {value for name, value in self.env.items() if _SECRET.search(name)}
        for value in self.headers.values():
            # The word before a key, as in `Bearer KEY`, is none itself.
            found |= {value, value.rpartition(" ")[2]}
        if self.url:
            from urllib.parse import parse_qsl, urlsplit

            parts = urlsplit(self.url)
            found |= {parts.password or ""} | {value for name, value in parse_qsl(parts.query) if _SECRET.search(name)}
        return sorted((value for value in found if len(value) >= _SHORTEST_SECRET), key=len, reverse=True)


def check_servers(servers: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str] | None = None) -> list[Server]:
    """The servers, by name: `{"files": {"command": "npx", "args": [...]}, "docs": {"url": "https://..."}}`.

    `${NAME}` in a value of `env` or `headers` stands for a variable of `environ`, if that is given, so that no file
    needs to hold a secret.

    Raises:
        InvalidInput: one cannot be started or reached as it is written; no value of a header or variable is told.
    """
    if not isinstance(servers, Mapping):
        raise InvalidInput(f"The MCP servers are {shown(servers)}; give a table with one entry for each server.")
    found = [_server(name, entry) for name, entry in servers.items()]
    return found if environ is None else [_filled(server, environ) for server in found]


def _server(name: object, entry: object) -> Server:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(f"The MCP server {shown(name)} needs another name: letters, digits, _, ., - and blanks.")
    what = f"The MCP server {name!r}"
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"{what} is {shown(entry)}; give a table with `command` or with `url`.")
    if ("command" in entry) == ("url" in entry):
        raise InvalidInput(f"{what} needs either `command`, to be started, or `url`, to be reached.")
    _check_keys(what, entry, _STDIO if "command" in entry else _HTTP)
    tools = entry.get("tools")
    common: dict[str, Any] = {
        "tools": None if tools is None else tuple(_texts(what, "tools", tools)),
        **{key: _timeout(what, key, entry.get(key, TIMEOUT)) for key in ("timeout", "start_timeout")},
    }
    if "command" in entry:
        return Server(name, **_started(what, entry), **common)
    return Server(name, url=_url(what, entry["url"]), headers=_headers(what, entry.get("headers", {})), **common)


def _filled(server: Server, environ: Mapping[str, str]) -> Server:
    def value(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise InvalidInput(
                f"The MCP server {server.name!r} needs the variable {match[1]}, which is not set: set it, "
                f"or write something else for ${{{match[1]}}}."
            )
        return environ[match[1]]

    env = {name: _VARIABLE.sub(value, text) for name, text in server.env.items()}
    headers = {name: _VARIABLE.sub(value, text) for name, text in server.headers.items()}
    _headers(f"The MCP server {server.name!r}", headers)
    return server._replace(env=env, headers=headers)


def reached(servers: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Those of them that are reached by a URL, so that no program is started for them."""
    return {name: entry for name, entry in servers.items() if "command" not in entry}


def described(servers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The servers as they are written, for people to see: values that may be secret are `***`."""
    found = {}
    for server in check_servers(servers):
        entry = dict(servers[server.name])
        for key in ("env", "headers"):
            if key in entry:
                entry[key] = {name: text if _VARIABLE.fullmatch(text) else "***" for name, text in entry[key].items()}
        if server.url:
            entry["url"] = server.place
        if server.command:
            entry["args"] = _hidden(entry.get("args", []))
        found[server.name] = entry
    return found


def _hidden(args: list[str]) -> list[str]:
    """`--token=X` and what follows `--token` may be secret."""
    before = ["", *args]
    return [
        "***" if _SECRET.search(each) or _is_secret_flag(last) else each
        for last, each in zip(before, args, strict=False)
    ]


def _is_secret_flag(arg: str) -> bool:
    return arg.startswith("-") and "=" not in arg and bool(_SECRET.search(arg))


def _started(what: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    command = (_text(what, "command", entry["command"]), *_texts(what, "args", entry.get("args", [])))
    if not command[0].strip():
        raise InvalidInput(f"{what} has an empty `command`; give the program that starts it.")
    cwd = entry.get("cwd")
    return {
        "command": command,
        "env": _pairs(what, "env", entry.get("env", {})),
        "cwd": None if cwd is None else _text(what, "cwd", cwd),
    }


def _check_keys(what: str, entry: Mapping[str, Any], known: set[str]) -> None:
    for key in entry:
        if key not in known:
            from difflib import get_close_matches

            near = get_close_matches(str(key), sorted(known), n=1)
            guess = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted(known))}."
            raise InvalidInput(f"{what} has an unknown key {shown(key)}: {guess}")
    kind = entry.get("type")
    if kind is not None and (not isinstance(kind, str) or _TYPES.get(kind) not in entry):
        raise InvalidInput(f"{what} has the type {shown(kind)}; write 'stdio' with `command`, or 'http' with `url`.")


def _url(what: str, url: object) -> str:
    from urllib.parse import urlsplit

    text = _text(what, "url", url)
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isascii() or any(character <= " " for character in text):
        raise InvalidInput(f"{what} has a `url` that is none; write it as https://example.com/mcp.")
    return text


def _headers(what: str, headers: object) -> dict[str, str]:
    pairs = _pairs(what, "headers", headers)
    for name, value in pairs.items():
        if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise InvalidInput(f"{what} has a header {shown(name)} that HTTP cannot carry; use plain ASCII text.")
    return pairs


def _pairs(what: str, key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise InvalidInput(f"{what} has `{key}` that is no table of strings; write name = value with both quoted.")
    for name, each in value.items():
        if not name or "\0" in name + each or "=" in name:
            raise InvalidInput(f"{what} has a name {shown(name)} in `{key}` that cannot be; leave out = and NUL.")
    return dict(value)


def _texts(what: str, key: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f'{what} has `{key}` that is no list; write it as ["one", "two"].')
    return [_text(what, key, each) for each in value]


def _text(what: str, key: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise InvalidInput(f"{what} has `{key}` with something that is no string; put it in quotes.")
    return value


def _timeout(what: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST_TIMEOUT:
        raise InvalidInput(f"{what} has the {key} {shown(value)}; give seconds, at most {_LONGEST_TIMEOUT:g}.")
    return float(value)
