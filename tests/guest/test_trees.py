"""`pack` and `unpack`."""

import errno
import os
import stat

from tests.guest.support import get, names, put, shape

from atoll.wire.tree import DIRECTORY, FILE, SYMLINK, Entry, Reader, Writer


def stream(*items):
    writer = Writer()
    return b"".join(writer.entry(i) if isinstance(i, Entry) else writer.data(i) for i in items) + writer.end()


def test_what_is_packed_and_unpacked_is_the_same(guest, client, tree):
    packed = client.do("pack", path="tree")
    assert packed.ok == {"entries": 6, "skipped": 0}
    assert client.upload("unpack", packed.stdout, path="copy").ok == {"entries": 6}
    assert shape(guest, "copy") == shape(guest, "tree")


def test_names_and_targets_that_are_no_text_pass(guest, client):
    here = guest.workspace.encode()
    os.makedirs(here + b"/d/\xff")
    os.symlink(b"\xfe", here + b"/d/\xff/\xfd")
    packed = client.do("pack", path="d")
    assert client.upload("unpack", packed.stdout, path="copy").error is None
    assert os.readlink(here + b"/copy/\xff/\xfd") == b"\xfe"


def test_large_files_pass_at_the_pace_of_the_client(guest, client):
    put(guest, "d/big", os.urandom(1 << 20) * 20)
    put(guest, "d/empty", b"")
    packed = client.do("pack", path="d")
    assert client.upload("unpack", packed.stdout, path="copy").error is None
    assert get(guest, "copy/big") == get(guest, "d/big")
    assert get(guest, "copy/empty") == b""


def test_a_single_file_is_packed_under_its_name(guest, client):
    put(guest, "d/file", b"hello", 0o600)
    os.symlink("file", os.path.join(guest.workspace, "d/link"))
    reader = Reader()
    items = reader.feed(client.do("pack", path="d/file").stdout)
    assert items[0]._replace(mtime=0) == Entry("file", FILE, 0o600, 0, 5)
    assert items[1] == b"hello"
    assert reader.done
    assert Reader().feed(client.do("pack", path="d/link").stdout)[0].path == "link"


def test_pipes_and_sockets_are_skipped_and_counted(guest, client):
    put(guest, "d/file")
    os.mkfifo(os.path.join(guest.workspace, "d/fifo"))
    assert client.do("pack", path="d").ok == {"entries": 1, "skipped": 1}
    assert client.do("pack", path="d/fifo").error["errno"] == errno.EINVAL


def test_only_permission_bits_are_passed_on(guest, client):
    put(guest, "d/file", b"", 0o4755)
    assert Reader().feed(client.do("pack", path="d").stdout)[0].mode == 0o755


def test_unpacking_makes_and_merges_and_replaces(guest, client):
    put(guest, "there/old", b"old")
    put(guest, "there/own", b"own")
    sent = stream(
        Entry("old", FILE, 0o600, 5, 3),
        b"new",
        Entry("d", DIRECTORY, 0o711, 7),
        Entry("d/l", SYMLINK, 0o777, 9, 0, "x"),
    )
    assert client.upload("unpack", sent, path="there").ok == {"entries": 3}
    assert client.upload("unpack", sent, path="there").ok == {"entries": 3}
    assert (get(guest, "there/old"), get(guest, "there/own")) == (b"new", b"own")
    status = os.stat(os.path.join(guest.workspace, "there/old"))
    assert (stat.S_IMODE(status.st_mode), status.st_mtime) == (0o600, 5)
    status = os.stat(os.path.join(guest.workspace, "there/d"))
    assert (stat.S_IMODE(status.st_mode), status.st_mtime) == (0o711, 7)
    assert client.upload("unpack", sent, path="made/on/the/way").ok == {"entries": 3}


def test_unpacking_goes_through_no_link(guest, client, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    sent = stream(Entry("out", SYMLINK, 0o777, 0, 0, str(outside)), Entry("out/file", FILE, 0o644, 0, 1), b"x")
    assert client.upload("unpack", sent, path="d").error["errno"] == errno.ELOOP
    inside = stream(Entry("up", SYMLINK, 0o777, 0, 0, ".."), Entry("up/file", FILE, 0o644, 0, 1), b"x")
    assert client.upload("unpack", inside, path="d").error["errno"] == errno.ELOOP
    put(guest, "victim", b"victim")
    os.makedirs(os.path.join(guest.workspace, "e"))
    os.symlink("../victim", os.path.join(guest.workspace, "e/file"))
    assert client.upload("unpack", stream(Entry("file", FILE, 0o644, 0, 1), b"x"), path="e").error is None
    assert get(guest, "victim") == b"victim"
    assert get(guest, "e/file") == b"x"
    assert os.listdir(outside) == []
    assert names(guest) == ["d", "e", "victim"]


def test_a_broken_stream_is_refused_and_leaves_no_half_file(guest, client):
    for broken in (b"", b"nonsense", b"\xff\xff\xff\xff", stream(Entry("f", FILE, 0o644, 0, 5), b"12345")[:-6]):
        assert client.upload("unpack", broken, path="d").error["code"] == "invalid_input"
    assert names(guest, "d") == []
    assert client.upload("unpack", stream() + b"more", path="d").error["code"] == "invalid_input"


def test_a_file_where_a_directory_should_be_is_an_error(guest, client):
    put(guest, "d/x", b"file")
    sent = stream(Entry("x", DIRECTORY, 0o755))
    error = client.upload("unpack", sent, path="d").error
    assert (error["errno"], error["path"]) == (errno.EEXIST, "/workspace/d/x")
    missing = stream(Entry("no/parent", FILE, 0o644, 0, 0))
    assert client.upload("unpack", missing, path="d").error["errno"] == errno.ENOENT
    assert client.upload("unpack", stream(), path="d/x").error is not None


def test_a_file_that_shrinks_while_it_is_packed_is_told(guest, client):
    path = put(guest, "d/file", bytes(30 << 20))
    channel = client.open("pack", path="d")
    client.receive()
    os.truncate(path, 100)
    error = client.finish(channel).error
    assert error["code"] == "busy"
    assert "/workspace/d/file" in error["message"]
