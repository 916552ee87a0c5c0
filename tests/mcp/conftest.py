"""Servers for these tests."""

from __future__ import annotations

import pytest
from tests.mcp.lineclient import LineClient


@pytest.fixture(scope="module")
def shared():
    """One server for all tests of a file; each takes sessions of its own."""
    with LineClient() as client:
        yield client


@pytest.fixture
def client():
    with LineClient() as client:
        yield client
