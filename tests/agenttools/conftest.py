from __future__ import annotations

import pathlib
import sys

import pytest

SERVERS = pathlib.Path(__file__).with_name("servers.py")


@pytest.fixture
def entry():
    """How one of the servers of servers.py is written down."""

    def made(*words, **more):
        return {"command": sys.executable, "args": [str(SERVERS), *words], **more}

    return made
