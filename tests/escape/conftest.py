"""Both kinds of maker, started once for the whole run, and gone with everything they made at its end."""

import os

import pytest
from tests.escape.harness import USER, Maker


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/escape" in str(item.path):
            item.add_marker(pytest.mark.escape)


@pytest.fixture(scope="session")
def root_maker():
    if os.getuid() != 0:
        pytest.skip("needs uid 0, to make sandboxes as root does")
    maker = Maker("root", 0)
    yield maker
    maker.close()


@pytest.fixture(scope="session")
def user_maker():
    maker = Maker("user", USER if os.getuid() == 0 else os.getuid())
    yield maker
    maker.close()


@pytest.fixture(scope="session", params=["root", "user"])
def maker(request):
    """Once as root, once as an ordinary user."""
    return request.getfixturevalue(f"{request.param}_maker")
