"""No path leads out of the root, whatever links say."""

import errno
import os
import threading

import pytest
from tests.guest.rawclient import Guest

SECRET = b"outside"


@pytest.fixture
def outside(tmp_path_factory, guest):
    """A file and a directory outside the root, and links to them from inside."""
    place = tmp_path_factory.mktemp("outside")
    (place / "secret").write_bytes(SECRET)
    here = guest.workspace
    os.symlink(str(place / "secret"), os.path.join(here, "absolute"))
    os.symlink(str(place), os.path.join(here, "directory"))
    os.symlink("../" * 40 + str(place / "secret").lstrip("/"), os.path.join(here, "climbing"))
    os.symlink("/", os.path.join(here, "top"))
    return place


def paths_out(place):
    climb = "../" * 40 + str(place).lstrip("/")
    return [
        "absolute",
        "directory/secret",
        "climbing",
        "top" + str(place) + "/secret",
        climb + "/secret",
        f"{place}/secret",
    ]


def test_the_positive_control_is_readable(guest, client):
    with open(os.path.join(guest.workspace, "secret"), "wb") as file:
        file.write(SECRET)
    os.symlink("/workspace/secret", os.path.join(guest.workspace, "link"))
    for path in ("secret", "link", "../../../workspace/secret", "/workspace/../../workspace/secret"):
        assert client.do("read", path=path).stdout == SECRET


def test_nothing_outside_is_read_listed_or_described(client, outside):
    for path in paths_out(outside):
        for op in ("read", "stat", "list", "pack", "watch"):
            ended = client.do(op, path=path)
            assert ended.error["errno"] == errno.ENOENT, (op, path)
            assert ended.stdout == b""
        assert client.do("search", path=path, content="outside").error["errno"] == errno.ENOENT
        assert client.do("copy", source=path, target="copied").error["errno"] == errno.ENOENT


def test_nothing_outside_is_written_moved_or_removed(guest, client, outside):
    with open(os.path.join(guest.workspace, "mine"), "wb") as file:
        file.write(b"mine")
    for path in paths_out(outside):
        client.upload("write", b"overwritten", path=path)
        client.upload("write", b"overwritten", path=path, append=True)
        client.do("copy", source="mine", target=path, overwrite=True)
    for path in paths_out(outside)[1:]:
        client.do("remove", path=path)
        client.do("move", source=path, target="taken")
    assert client.do("mkdir", path="directory/new").error["errno"] == errno.ENOENT
    assert client.do("remove", path="directory/.", recursive=True).error is not None
    assert client.do("exec", argv=["true"], cwd="directory").error["errno"] == errno.ENOENT
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_bytes() == SECRET


def test_writing_through_a_link_that_leads_out_stays_inside(guest, client, outside):
    """Absolute links are looked up in the root, as a process of the sandbox would see them."""
    target = str(outside / "secret")
    assert client.upload("write", b"inside", path="absolute", parents=True).error is not None
    assert client.do("mkdir", path=os.path.dirname(target), parents=True).error is None
    assert client.upload("write", b"inside", path="absolute").error is None
    assert client.do("read", path="absolute").stdout == b"inside"
    with open(guest.root + target, "rb") as file:
        assert file.read() == b"inside"
    assert (outside / "secret").read_bytes() == SECRET


def test_loops_of_links_are_told(guest, client):
    os.symlink("b", os.path.join(guest.workspace, "a"))
    os.symlink("a", os.path.join(guest.workspace, "b"))
    for op in ("stat", "read", "write", "list", "pack"):
        assert client.do(op, path="a").error["errno"] == errno.ELOOP, op
        assert client.do(op, path="a/x").error["errno"] == errno.ELOOP, op
    assert client.do("stat", path="a", follow=False).ok["info"]["type"] == "symlink"
    assert client.do("exec", argv=["true"], cwd="a").error["errno"] == errno.ELOOP
    assert client.do("remove", path="a").error is None


def test_the_magic_links_of_proc_are_not_followed(tmp_path):
    guest = Guest("/", workdir=str(tmp_path))
    client = guest.connect()
    for path in ("/proc/self/root/etc/passwd", "/proc/self/cwd/x", "/proc/self/fd/0", "/proc/1/root/etc/passwd"):
        assert client.do("read", path=path).error["errno"] in (errno.ELOOP, errno.EACCES), path
    assert client.do("read", path="/etc/passwd").error is None
    guest.close()


@pytest.mark.parametrize("name", [".", "..", "/", "x/..", "./"])
def test_what_names_no_entry_cannot_be_removed_or_moved(client, name):
    client.do("mkdir", path="x")
    assert client.do("remove", path=name, recursive=True).error["code"] == "invalid_path"
    assert client.do("move", source=name, target="y").error["code"] == "invalid_path"
    assert client.do("move", source="x", target=name, overwrite=True).error["code"] == "invalid_path"


def test_a_directory_that_is_exchanged_for_a_link_all_the_time_leads_nowhere(guest, client, outside):
    """Somebody inside swaps a directory and a link that leads out, while the API writes below it."""
    real, link, name = (os.path.join(guest.workspace, n) for n in ("real", "link", "name"))
    os.mkdir(name)
    os.symlink(str(outside), link)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(name, real)
            os.rename(link, name)
            os.rename(name, link)
            os.rename(real, name)

    swapper = threading.Thread(target=swap)
    swapper.start()
    wrote = 0
    for _ in range(300):
        wrote += client.upload("write", b"x", path="name/secret").error is None
        client.do("remove", path="name/secret")
        assert SECRET not in client.do("read", path="name/secret").stdout
    stop.set()
    swapper.join()
    assert (outside / "secret").read_bytes() == SECRET
    assert sorted(os.listdir(outside)) == ["secret"]
