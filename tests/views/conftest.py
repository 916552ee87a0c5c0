"""Views need root, who can play everybody else."""

import os
import shutil
import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def _root():
    if os.geteuid() != 0:
        pytest.skip("needs root, who can play the other users")


@pytest.fixture
def place():
    """A directory on a real disk that every user may pass."""
    path = tempfile.mkdtemp(prefix="at-view-", dir="/var/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def lasting_place():
    path = tempfile.mkdtemp(prefix="at-view-", dir="/var/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)
