import pytest
from tests.guest.rawclient import Guest


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
