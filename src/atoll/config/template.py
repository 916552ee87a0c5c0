"""The atoll.toml that `atoll init` writes: every setting, explained, and none set."""

from __future__ import annotations

from .files import TABLE
from .table import ENTRIES, Entry

_HEAD = f"""\
# Settings of atoll's agents. The environment (ATOLL_MODEL ...) overrules this file; arguments and flags overrule both.
# `atoll config show` tells every value and where it comes from. After a change: `atoll config trust`.
# Keys do not belong here: set ATOLL_API_KEY, or your provider's own, such as OPENAI_API_KEY.

[{TABLE}]
"""

_SERVERS = f"""\
# MCP servers whose tools an agent may use. ${{NAME}} stands for a variable of the environment.
# [{TABLE}.mcp_servers.files]
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]
# [{TABLE}.mcp_servers.docs]
# url = "https://example.com/mcp"
# headers = {{ Authorization = "Bearer ${{DOCS_TOKEN}}" }}
"""


def text() -> str:
    return "\n".join([_HEAD, *(_lines(entry) for entry in ENTRIES if entry.example), _SERVERS])


def _lines(entry: Entry) -> str:
    return f"# {entry.description}\n# {entry.name} = {entry.example}\n"
