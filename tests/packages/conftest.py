"""The environment that needs a real index is built once for all tests: numpy and pandas."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param
