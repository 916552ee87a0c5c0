"""The revisions of MCP that are spoken here, and what each has that those before it do not."""

from __future__ import annotations

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Those that begin with `initialize`."""

STATELESS = ("2026-07-28",)
"""Those of which every request says by itself who asks, in `_meta`."""

NEWEST_HANDSHAKE = HANDSHAKE[-1]
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
ABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
OVERLOADED = -32000
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022


def negotiated(asked: object) -> str:
    """The revision for a client that asks for one in `initialize`."""
    return asked if isinstance(asked, str) and asked in HANDSHAKE else NEWEST_HANDSHAKE


def has_annotations(revision: str) -> bool:
    return revision >= "2025-03-26"


def has_structure(revision: str) -> bool:
    """Whether tools have titles and output schemas, and results structured content."""
    return revision >= "2025-06-18"


def has_batches(revision: str) -> bool:
    """Batches of JSON-RPC were taken out again in 2025-06-18."""
    return revision in ("2024-11-05", "2025-03-26")
