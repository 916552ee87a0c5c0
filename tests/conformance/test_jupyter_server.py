"""The jupyter-server driver keeps the contract, as far as it declares to, on a real Jupyter server."""

from __future__ import annotations

import os

import pytest
from tests.jupyterserver import jupyter_server, settings

from atoll.testing import DriverConformance


@pytest.fixture(scope="module", autouse=True)
def server():
    with jupyter_server() as made:
        before = {name: os.environ.get(name) for name in settings(made)}
        os.environ.update(settings(made))
        yield made
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class TestJupyterServer(DriverConformance):
    driver = "jupyter-server"
