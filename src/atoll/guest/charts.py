"""The numbers in matplotlib's axes, in the shape that E2B's code interpreter gives them."""

from __future__ import annotations

from typing import Any, Dict, Optional


def chart_of(_figure: Any) -> Optional[Dict[str, Any]]:
    """None for a figure without data."""
    return None
