"""Each fault test has makers of its own: it kills their zygotes and breaks their state."""

import os

import pytest
from tests.escape.harness import USER, Maker


@pytest.fixture(params=["root", "user"])
def maker(request):
    """Once as root, once as an ordinary user; everything is looked for at the end."""
    if request.param == "root" and os.getuid() != 0:
        pytest.skip("needs uid 0, to make sandboxes as root does")
    uid = 0 if request.param == "root" else (USER if os.getuid() == 0 else os.getuid())
    made = Maker(request.param, uid)
    yield made
    made.close()
