import os

import pytest
from tests.guest.rawclient import Guest
from tests.guest.support import put


@pytest.fixture
def guest(tmp_path):
    guest = Guest(tmp_path)
    yield guest
    guest.close()


@pytest.fixture
def client(guest):
    client = guest.connect()
    yield client
    client.close()


@pytest.fixture
def tree(guest):
    put(guest, "tree/a", b"a", 0o640)
    put(guest, "tree/d/b", b"b", 0o755)
    os.symlink("d/b", os.path.join(guest.workspace, "tree/link"))
    os.mkdir(os.path.join(guest.workspace, "tree/closed"))
    put(guest, "tree/closed/c", b"c")
    os.chmod(os.path.join(guest.workspace, "tree/closed"), 0o500)
    os.utime(os.path.join(guest.workspace, "tree/a"), (1000, 1000))
    os.utime(os.path.join(guest.workspace, "tree/d"), (2000, 2000))
    return "tree"
