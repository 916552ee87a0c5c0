"""Snipara's context service, as one of the MCP servers of an agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..config.servers import check_servers
from ..errors import InvalidInput

NAME = "snipara"
API = "https://api.snipara.com"
_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,126}[A-Za-z0-9])?")


def server_from(environ: Mapping[str, str], slug: str | None = None) -> dict[str, Any] | None:
    """The entry of its server for `mcptools.attached`, or None unless there are both a key and a project.

    Read are SNIPARA_API_KEY, SNIPARA_PROJECT_SLUG unless a `slug` is given, and SNIPARA_API_URL, for a service of one's
    own.

    Raises:
        InvalidInput: what is there cannot be; the key itself is not told.
    """
    key = environ.get("SNIPARA_API_KEY", "").strip()
    project = slug or environ.get("SNIPARA_PROJECT_SLUG", "").strip()
    if not key or not project:
        return None
    if not _SLUG.fullmatch(project):
        raise InvalidInput(
            f"The Snipara project {project[:80]!r} is no slug: write letters, digits, - and _, as in 'my-project'."
        )
    base = (environ.get("SNIPARA_API_URL", "").strip() or API).rstrip("/")
    entry = {"url": f"{base}/mcp/{project}", "headers": {"X-API-Key": key}}
    try:
        check_servers({NAME: entry})
    except InvalidInput as error:
        raise InvalidInput(f"{error} It comes from SNIPARA_API_URL and SNIPARA_API_KEY.") from None
    if base.startswith("http://") and not re.match(r"http://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)", base):
        raise InvalidInput("SNIPARA_API_URL is plain http, which would show the key to the network: use https.")
    return entry
