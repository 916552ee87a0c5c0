"""`move` and `copy`."""

import errno
import os
import stat

from tests.guest.rawclient import Guest
from tests.guest.support import get, names, put, shape


def test_move_renames_files_trees_and_links(guest, client, tree):
    before = shape(guest, "tree")
    assert client.do("move", source="tree", target="moved").ok == {}
    assert shape(guest, "moved") == before
    assert client.do("move", source="moved/a", target="a").ok == {}
    os.symlink("a", os.path.join(guest.workspace, "link"))
    assert client.do("move", source="link", target="link2").ok == {}
    assert os.readlink(os.path.join(guest.workspace, "link2")) == "a"
    assert names(guest) == ["a", "link2", "moved"]


def test_move_replaces_only_on_request(guest, client):
    put(guest, "a", b"a")
    put(guest, "b", b"b")
    assert client.do("move", source="a", target="b").error["errno"] == errno.EEXIST
    assert (get(guest, "a"), get(guest, "b")) == (b"a", b"b")
    assert client.do("move", source="a", target="b", overwrite=True).ok == {}
    assert get(guest, "b") == b"a"
    put(guest, "full/x")
    put(guest, "other/y")
    assert client.do("move", source="other", target="full", overwrite=True).error["errno"] == errno.ENOTEMPTY
    assert client.do("move", source="b", target="full", overwrite=True).error["errno"] == errno.EISDIR


def test_move_of_what_is_not_there_or_into_itself_is_an_error(guest, client, tree):
    error = client.do("move", source="nowhere", target="x").error
    assert (error["errno"], error["path"]) == (errno.ENOENT, "/workspace/nowhere")
    assert client.do("move", source="tree", target="no/such/place").error["errno"] == errno.ENOENT
    assert client.do("move", source="tree", target="tree/d/inside").error["errno"] == errno.EINVAL
    assert sorted(names(guest)) == ["tree"]


def test_move_between_file_systems(tmp_path):
    """/dev/shm is another file system than the temporary directory."""
    guest = Guest("/", workdir=str(tmp_path))
    client = guest.connect()
    put(guest, "tree/d/file", b"content", 0o750)
    os.symlink("d/file", tmp_path / "tree/link")
    other = f"/dev/shm/atoll-test-{os.getpid()}"
    try:
        assert os.stat("/dev/shm").st_dev != os.stat(tmp_path).st_dev
        assert client.do("move", source="tree", target=other).ok == {}
        assert not os.path.exists(tmp_path / "tree")
        assert os.readlink(other + "/link") == "d/file"
        assert stat.S_IMODE(os.stat(other + "/d/file").st_mode) == 0o750
        put(guest, "file", b"single")
        assert client.do("move", source="file", target=other + "/d/file").error["errno"] == errno.EEXIST
        assert client.do("move", source="file", target=other + "/d/file", overwrite=True).ok == {}
        assert client.do("read", path=other + "/d/file").stdout == b"single"
    finally:
        client.do("remove", path=other, recursive=True)
        guest.close()


def test_copy_of_a_file_has_its_content_mode_and_time(guest, client):
    path = put(guest, "file", os.urandom(3_000_000), 0o754)
    os.utime(path, (1000, 2000))
    assert client.do("copy", source="file", target="copy").ok == {}
    assert get(guest, "copy") == get(guest, "file")
    status = os.stat(os.path.join(guest.workspace, "copy"))
    assert (stat.S_IMODE(status.st_mode), status.st_mtime) == (0o754, 2000)


def test_copy_replaces_only_on_request(guest, client):
    put(guest, "a", b"a")
    put(guest, "b", b"b")
    os.mkdir(os.path.join(guest.workspace, "d"))
    assert client.do("copy", source="a", target="b").error["errno"] == errno.EEXIST
    assert get(guest, "b") == b"b"
    assert client.do("copy", source="a", target="b", overwrite=True).ok == {}
    assert get(guest, "b") == b"a"
    assert client.do("copy", source="a", target="d", overwrite=True).error["errno"] == errno.EISDIR
    assert client.do("copy", source="a", target="a", overwrite=True).error["errno"] == errno.EINVAL
    assert names(guest) == ["a", "b", "d"]


def test_copy_follows_a_link_as_its_source_and_replaces_one_as_its_target(guest, client):
    put(guest, "real", b"real")
    put(guest, "victim", b"victim")
    os.symlink("real", os.path.join(guest.workspace, "link"))
    os.symlink("victim", os.path.join(guest.workspace, "target"))
    assert client.do("copy", source="link", target="target", overwrite=True).ok == {}
    assert get(guest, "target") == b"real"
    assert get(guest, "victim") == b"victim"
    assert not os.path.islink(os.path.join(guest.workspace, "target"))


def test_copy_of_a_tree_is_its_like(guest, client, tree):
    assert client.do("copy", source="tree", target="copy").ok == {}
    assert shape(guest, "copy") == shape(guest, "tree")
    assert os.stat(os.path.join(guest.workspace, "copy/d")).st_mtime == 2000


def test_copy_onto_a_tree_goes_file_by_file(guest, client, tree):
    put(guest, "there/a", b"old")
    put(guest, "there/own", b"own")
    assert client.do("copy", source="tree", target="there").error["errno"] == errno.EEXIST
    assert client.do("copy", source="tree", target="there", overwrite=True).ok == {}
    assert get(guest, "there/a") == b"a"
    assert get(guest, "there/own") == b"own"
    put(guest, "other/d", b"a file where the tree has a directory")
    assert client.do("copy", source="tree", target="other", overwrite=True).error["errno"] == errno.ENOTDIR


def test_a_tree_is_not_copied_into_itself(guest, client, tree):
    for target in ("tree/d/copy", "tree/copy"):
        assert client.do("copy", source="tree", target=target).error["errno"] == errno.EINVAL
    assert client.do("copy", source="tree", target="tree2").ok == {}


def test_a_sparse_file_stays_sparse(guest, client):
    path = put(guest, "sparse", b"begin")
    os.truncate(path, 1 << 34)
    with open(path, "r+b") as file:
        file.seek(1 << 33)
        file.write(b"middle")
    assert client.do("copy", source="sparse", target="copy").ok == {}
    copy = os.path.join(guest.workspace, "copy")
    assert os.stat(copy).st_size == 1 << 34
    assert os.stat(copy).st_blocks * 512 < 1 << 20
    with open(copy, "rb") as file:
        assert file.read(5) == b"begin"
        file.seek(1 << 33)
        assert file.read(6) == b"middle"


def test_files_of_proc_are_copied_to_their_end(tmp_path):
    guest = Guest("/", workdir=str(tmp_path))
    client = guest.connect()
    assert client.do("copy", source="/proc/self/status", target="status").ok == {}
    assert b"Name:" in get(guest, "status")
    guest.close()


def test_pipes_are_refused_at_once_and_named(guest, client):
    put(guest, "d/file")
    os.mkfifo(os.path.join(guest.workspace, "d/fifo"))
    assert client.do("copy", source="d/fifo", target="x").error["errno"] == errno.EINVAL
    error = client.do("copy", source="d", target="x").error
    assert (error["errno"], error["path"]) == (errno.EINVAL, "/workspace/d/fifo")


def test_a_copy_can_be_cancelled_and_leaves_no_half_file(guest, client):
    with open(put(guest, "big"), "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(100))
    channel = client.open("copy", source="big", target="copy")
    client.cancel(channel)
    ended = client.finish(channel)
    if ended.error is not None:
        assert ended.error["code"] == "cancelled"
        assert names(guest) == ["big"]
