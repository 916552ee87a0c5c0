"""Moments as texts. Pure."""

from __future__ import annotations

import time


def iso(moment: float) -> str:
    """ISO 8601 in UTC, to the microsecond."""
    whole, part = divmod(round(moment * 1_000_000), 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:06d}Z"
