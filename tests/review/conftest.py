from __future__ import annotations

import pytest

from .overlays import Overlay


@pytest.fixture
def overlay():
    """A source without rules; call `start` when it is filled."""
    with Overlay() as made:
        yield made
