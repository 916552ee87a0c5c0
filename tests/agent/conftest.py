"""Agents with played models. Whatever a test leaves of its runs is forgotten: other tests count sandboxes."""

from __future__ import annotations

import pytest
from tests.playedmodel import PlayedModel

from atoll.agent import Agent, journal
from atoll.agent.forgetting import forget


@pytest.fixture(autouse=True)
def _tidy():
    yield
    kept = journal.shared()
    for run in kept.runs():
        kept.request_cancel(run.id)
        forget(kept, run.id)


@pytest.fixture
def played():
    """`played(script, **options)` gives a server and an agent whose model it plays."""
    servers = []

    def make(script, **options):
        server = PlayedModel(script).start()
        servers.append(server)
        options.setdefault("token_budget", 100_000)
        return server, Agent("played", base_url=server.url, **options)

    yield make
    for server in servers:
        server.stop()
