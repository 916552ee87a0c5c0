"""The conformance suite on the docker driver, with a real engine."""

from __future__ import annotations

import pytest

from atoll.testing import DriverConformance

from ..containers import needs_docker, shared_engine


@pytest.fixture(scope="module", autouse=True)
def engine():
    """Those that are alike are started ahead: so both ways are tried, and one need not be waited for."""
    with shared_engine(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_DOCKER_POOL", "2")
        yield


@needs_docker
class TestDocker(DriverConformance):
    driver = "docker"
