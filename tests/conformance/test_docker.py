"""The conformance suite on the docker driver, with a real engine."""

from __future__ import annotations

import pytest

from atoll.testing import DriverConformance

from ..containers import needs_docker, shared_engine


@pytest.fixture(scope="module", autouse=True)
def engine():
    with shared_engine():
        yield


@needs_docker
class TestDocker(DriverConformance):
    driver = "docker"
