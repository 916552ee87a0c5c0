"""`stat`, `list`, `read`, `write`, `mkdir`, `remove`."""

import errno
import os
import pathlib
import resource
import socket
import stat

import pytest
from tests.guest.rawclient import Guest, eventually
from tests.guest.support import get, names, put


def entries(ended):
    assert ended.error is None, ended.error
    return {entry["path"]: entry for event in ended.events for entry in event["entries"]}


def test_stat_tells_what_there_is(guest, client):
    path = put(guest, "d/file", b"12345", 0o640)
    os.utime(path, (1000.5, 2000.25))
    os.symlink("d/file", os.path.join(guest.workspace, "link"))
    expected = {
        "path": "/workspace/d/file",
        "name": "file",
        "type": "file",
        "size": 5,
        "mode": 0o640,
        "modified": 2000.25,
        "target": None,
    }
    assert client.do("stat", path="d/file").ok == {"info": expected}
    assert client.do("stat", path="/workspace/d/../d/file").ok == {"info": expected}
    assert client.do("stat", path="d").ok["info"]["type"] == "directory"
    assert client.do("stat", path="/").ok["info"]["name"] == "/"
    followed = client.do("stat", path="link").ok["info"]
    assert (followed["type"], followed["size"]) == ("file", 5)
    itself = client.do("stat", path="link", follow=False).ok["info"]
    assert (itself["type"], itself["target"]) == ("symlink", "d/file")


@pytest.mark.parametrize("op", ["stat", "list", "read", "remove"])
def test_what_is_not_there_is_an_error_with_errno_and_path(client, op):
    error = client.do(op, path="nowhere/to/be/found").error
    assert (error["errno"], error["path"]) == (errno.ENOENT, "/workspace/nowhere/to/be/found")
    assert "No such file" in error["message"]


def test_list_gives_the_entries_of_a_directory(guest, client):
    put(guest, "a/b/c")
    put(guest, "a/x")
    os.symlink("x", os.path.join(guest.workspace, "a/link"))
    found = entries(client.do("list", path="a"))
    assert sorted(found) == ["/workspace/a/b", "/workspace/a/link", "/workspace/a/x"]
    assert found["/workspace/a/link"]["target"] == "x"
    assert found["/workspace/a/link"]["type"] == "symlink"
    assert entries(client.do("list", path="a/b/..")) == found


def test_list_goes_down_but_follows_no_link(guest, client):
    put(guest, "a/b/c")
    os.symlink("..", os.path.join(guest.workspace, "a/up"))
    found = entries(client.do("list", path="a", recursive=True))
    assert sorted(found) == ["/workspace/a/b", "/workspace/a/b/c", "/workspace/a/up"]
    order = list(found)
    assert order.index("/workspace/a/b") < order.index("/workspace/a/b/c")


def test_list_copes_with_what_vanishes_or_may_not_be_read(tmp_path):
    guest = Guest("/", workdir=str(tmp_path))
    client = guest.connect()
    for _ in range(3):
        client.open("exec", argv=["sleep", "0.1"])
    found = entries(client.do("list", path=f"/proc/{guest.process.pid}", recursive=True))
    assert f"/proc/{guest.process.pid}/status" in found
    guest.close()


def test_list_of_a_file_is_an_error(guest, client):
    put(guest, "file")
    assert client.do("list", path="file").error["errno"] == errno.ENOTDIR


def test_a_large_directory_is_listed_in_bounded_pieces(guest, client):
    os.mkdir(os.path.join(guest.workspace, "many"))
    for number in range(2000):
        os.symlink("t" * 400, os.path.join(guest.workspace, f"many/{number:0200d}"))
    ended = client.do("list", path="many")
    assert len(entries(ended)) == 2000
    assert max(len(str(event)) for event in ended.events) < 1 << 19


def test_names_that_are_no_text_come_through_every_operation(guest, client):
    name = "odd\udcff\udcfe"
    raw = os.path.join(guest.workspace.encode(), b"odd\xff\xfe")
    assert client.upload("write", b"x", path=name).ok["size"] == 1
    assert os.path.exists(raw)
    assert list(entries(client.do("list", path="."))) == ["/workspace/" + name]
    assert client.do("stat", path=name).ok["info"]["name"] == name
    assert client.do("read", path=name).stdout == b"x"
    assert client.do("move", source=name, target=name + "2").error is None
    assert client.do("remove", path=name + "2").error is None
    assert names(guest) == []


def test_read_gives_all_or_a_part(guest, client):
    content = os.urandom(3_000_000)
    put(guest, "file", content)
    whole = client.do("read", path="file")
    assert whole.stdout == content
    assert whole.ok == {"size": len(content)}
    assert client.do("read", path="file", offset=100, size=50).stdout == content[100:150]
    assert client.do("read", path="file", offset=2_999_990).stdout == content[-10:]
    past = client.do("read", path="file", offset=1 << 40)
    assert (past.stdout, past.ok) == (b"", {"size": 0})
    assert client.do("read", path="file", size=0).stdout == b""


def test_a_sparse_file_is_read_in_part_without_reading_all_of_it(guest, client):
    path = put(guest, "sparse", b"")
    os.truncate(path, 1 << 40)
    assert client.do("read", path="sparse", offset=(1 << 40) - 5).stdout == bytes(5)
    assert client.do("stat", path="sparse").ok["info"]["size"] == 1 << 40


def test_reading_can_be_cancelled(guest, client):
    path = put(guest, "sparse", b"")
    os.truncate(path, 1 << 40)
    channel = client.open("read", path="sparse")
    client.receive()
    client.cancel(channel)
    assert client.finish(channel).error["code"] == "cancelled"


def test_files_that_say_they_are_empty_are_read_to_their_end(tmp_path):
    guest = Guest("/", workdir=str(tmp_path))
    client = guest.connect()
    assert b"Name:" in client.do("read", path="/proc/self/status").stdout
    client.close()
    guest.close()


@pytest.fixture
def special(guest):
    """Things that are neither files nor directories."""
    os.mkfifo(os.path.join(guest.workspace, "fifo"))
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(os.path.join(guest.workspace, "socket"))
    yield ["fifo", "socket"]
    sock.close()


def test_pipes_sockets_and_devices_are_refused_at_once(guest, client, special):
    for name in special:
        for op in ("read", "write"):
            error = client.do(op, path=name).error
            assert error["errno"] in (errno.EINVAL, errno.ENXIO), (op, name)
        assert client.do("write", path=name, append=True).error["errno"] == errno.EINVAL
        assert client.do("stat", path=name).ok["info"]["type"] == "other"
    assert client.do("list", path="fifo").error["errno"] == errno.ENOTDIR


def test_directories_are_not_read_or_written(guest, client):
    os.mkdir(os.path.join(guest.workspace, "d"))
    assert client.do("read", path="d").error["errno"] == errno.EISDIR
    assert client.do("write", path="d").error["errno"] == errno.EISDIR
    assert client.do("write", path="d", append=True).error["errno"] == errno.EISDIR


def test_write_makes_a_file_with_the_usual_mode(guest, client):
    assert client.upload("write", b"hello", path="new").ok == {"size": 5}
    assert get(guest, "new") == b"hello"
    assert stat.S_IMODE(os.stat(os.path.join(guest.workspace, "new")).st_mode) == 0o644
    assert client.upload("write", b"", path="script", mode=0o750).ok == {"size": 0}
    assert stat.S_IMODE(os.stat(os.path.join(guest.workspace, "script")).st_mode) == 0o750


def test_write_replaces_the_content_and_keeps_the_mode(guest, client):
    path = put(guest, "file", b"old and longer", 0o755)
    client.upload("write", b"new", path="file")
    assert get(guest, "file") == b"new"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o755
    assert names(guest) == ["file"]


def test_the_old_content_stays_until_the_new_is_whole(guest, client):
    put(guest, "file", b"old")
    channel = client.open("write", path="file")
    client.data(channel, b"half of the new")
    client.run("true")
    assert get(guest, "file") == b"old"
    client.cancel(channel)
    assert client.finish(channel).error["code"] == "cancelled"
    assert get(guest, "file") == b"old"
    assert names(guest) == ["file"]


def test_write_goes_to_the_file_that_is_there(guest, client):
    path = put(guest, "file", b"old and longer", 0o640)
    os.link(path, os.path.join(guest.workspace, "hard"))
    before = os.stat(path)
    for content in (b"new", b"", b"large" * 1_000_000):
        assert client.upload("write", content, path="file").ok == {"size": len(content)}
        assert get(guest, "hard") == content
    after = os.stat(path)
    assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
    assert names(guest) == ["file", "hard"]
    client.upload("write", b"mine", path="file", mode=0o755)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o755


def test_an_atomic_write_replaces_it(guest, client):
    path = put(guest, "file", b"old", 0o640)
    os.link(path, os.path.join(guest.workspace, "hard"))
    assert client.upload("write", b"new", path="file", atomic=True).ok == {"size": 3}
    assert (get(guest, "file"), get(guest, "hard")) == (b"new", b"old")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640


def test_a_write_over_a_file_that_breaks_off_changes_nothing(guest, client):
    put(guest, "file", b"old")
    channel = client.open("write", path="file")
    for _ in range(3):
        client.data(channel, bytes(65536))
    client.cancel(channel)
    assert client.finish(channel).error["code"] == "cancelled"
    assert (get(guest, "file"), names(guest)) == (b"old", ["file"])


def test_what_takes_the_place_of_a_file_meanwhile_is_not_written_to(guest, client):
    """A process that changes between a file, a pipe and a link to a file of /proc, as fast as it can."""
    put(guest, "file", b"old")
    code = (
        "import os\nos.mkfifo('pipe'); os.symlink('/proc/self/comm', 'link')\n"
        "while True:\n for each in ('pipe', 'link', 'plain'):\n"
        "  open('plain', 'w').close(); os.path.lexists('n') and os.unlink('n')\n"
        "  os.symlink('/proc/self/comm', 'n') if each == 'link' else os.link(each, 'n'); os.rename('n', 'file')"
    )
    swapper = client.open("exec", argv=["python3", "-c", code])
    client.event(swapper)
    other = guest.connect()
    for _ in range(300):
        error = other.upload("write", b"hostile", path="file").error
        assert error is None or error["errno"] in (errno.EINVAL, errno.ENXIO, errno.ENOENT), error
    client.cancel(swapper)
    client.finish(swapper)
    assert "hostile" not in pathlib.Path(f"/proc/{guest.process.pid}/comm").read_text()


def test_a_client_that_disconnects_while_writing_leaves_nothing_behind(guest, client):
    other = guest.connect()
    channel = other.open("write", path="file")
    other.data(channel, b"half")
    eventually(lambda: names(guest))
    other.close()
    eventually(lambda: names(guest) == [])


def test_write_follows_a_link_and_does_not_replace_it(guest, client):
    put(guest, "d/real", b"old")
    os.symlink("d/real", os.path.join(guest.workspace, "link"))
    os.symlink("d/missing", os.path.join(guest.workspace, "dangling"))
    client.upload("write", b"new", path="link")
    assert get(guest, "d/real") == b"new"
    client.upload("write", b"made", path="dangling")
    assert get(guest, "d/missing") == b"made"
    assert os.path.islink(os.path.join(guest.workspace, "link"))
    assert names(guest, "d") == ["missing", "real"]


def test_append(guest, client):
    put(guest, "log", b"one\n")
    assert client.upload("write", b"two\n", path="log", append=True).ok == {"size": 4}
    assert client.upload("write", b"three\n", path="log", append=True).error is None
    assert get(guest, "log") == b"one\ntwo\nthree\n"
    client.upload("write", b"first", path="newlog", append=True)
    assert get(guest, "newlog") == b"first"


def test_missing_directories_are_made_on_request(guest, client):
    assert client.do("write", path="a/b/c").error["errno"] == errno.ENOENT
    assert client.upload("write", b"x", path="a/b/c", parents=True).error is None
    assert get(guest, "a/b/c") == b"x"
    assert client.upload("write", b"x", path="a/b/c/d", parents=True).error["errno"] in (errno.ENOTDIR, errno.EEXIST)


def test_a_large_upload_arrives_whole(guest, client):
    content = os.urandom(1 << 20) * 40
    assert client.upload("write", content, path="large").ok == {"size": len(content)}
    assert get(guest, "large") == content


def test_a_full_disk_arrives_as_its_errno_and_leaves_the_old_content(guest, client):
    put(guest, "file", b"old")
    resource.prlimit(guest.process.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    error = client.upload("write", bytes(1_000_000), path="file").error
    assert error["errno"] == errno.EFBIG
    assert error["path"] == "/workspace/file"
    assert get(guest, "file") == b"old"
    assert names(guest) == ["file"]
    assert client.upload("write", bytes(1000), path="file").error is None


def test_mkdir(guest, client):
    assert client.do("mkdir", path="d").error is None
    assert client.do("mkdir", path="d").error["errno"] == errno.EEXIST
    assert client.do("mkdir", path="d", exist_ok=True).error is None
    assert client.do("mkdir", path="x/y/z").error["errno"] == errno.ENOENT
    assert client.do("mkdir", path="x/y/z", parents=True).error is None
    assert client.do("mkdir", path="private", mode=0o700).error is None
    assert stat.S_IMODE(os.stat(os.path.join(guest.workspace, "private")).st_mode) == 0o700
    put(guest, "file")
    assert client.do("mkdir", path="file", exist_ok=True).error["errno"] == errno.EEXIST
    assert client.do("mkdir", path="file/x", parents=True).error["errno"] in (errno.ENOTDIR, errno.EEXIST)
    os.symlink("nowhere", os.path.join(guest.workspace, "dangling"))
    assert client.do("mkdir", path="dangling", exist_ok=True).error is not None
    assert client.do("mkdir", path="dangling/x", parents=True).error is not None
    os.symlink("d", os.path.join(guest.workspace, "link"))
    assert client.do("mkdir", path="link", exist_ok=True).error is None


def test_remove(guest, client):
    put(guest, "file")
    put(guest, "d/e/f")
    os.mkdir(os.path.join(guest.workspace, "empty"))
    assert client.do("remove", path="file").error is None
    assert client.do("remove", path="file").error["errno"] == errno.ENOENT
    assert client.do("remove", path="file", missing_ok=True).error is None
    assert client.do("remove", path="no/such/file", missing_ok=True).error is None
    assert client.do("remove", path="empty").error is None
    assert client.do("remove", path="d").error["errno"] == errno.ENOTEMPTY
    assert client.do("remove", path="d", recursive=True).error is None
    assert names(guest) == []


def test_remove_takes_a_link_and_not_what_it_points_to(guest, client):
    put(guest, "d/keep")
    os.mkdir(os.path.join(guest.workspace, "gone"))
    os.symlink("../d", os.path.join(guest.workspace, "gone/link"))
    os.symlink("d", os.path.join(guest.workspace, "link"))
    assert client.do("remove", path="link", recursive=True).error is None
    assert client.do("remove", path="gone", recursive=True).error is None
    assert names(guest) == ["d"]
    assert names(guest, "d") == ["keep"]


def test_a_deep_tree_is_refused_clearly_and_others_go_on(guest, client):
    path = guest.workspace
    for _ in range(200):
        path += "/d"
        os.mkdir(path)
    for op in ("remove", "pack", "watch"):
        error = client.do(op, path="d", recursive=True).error
        assert "Deeper than" in error["message"], op
        assert len(error["message"]) < 300
    assert client.run("rm", "-r", "d").ok["exit_code"] == 0


def test_what_lies_too_deep_is_left_out_of_a_listing_and_told(guest, client):
    path = guest.workspace
    for _ in range(130):
        path += "/d"
        os.mkdir(path)
    put(guest, "e/near", b"x")
    listed = client.do("list", path=".", recursive=True)
    found = [entry["path"] for event in listed.events for entry in event["entries"]]
    assert "/workspace/e/near" in found
    assert max(path.count("/d") for path in found) == 128
    assert listed.ok == {"skipped": 1}
    assert client.do("list", path="d", recursive=False).ok == {"skipped": 0}
    searched = client.do("search", path=".", content="x")
    assert [hit["path"] for event in searched.events for hit in event["matches"]] == ["/workspace/e/near"]
    assert searched.ok == {"truncated": False, "skipped": 1}


def test_a_long_operation_does_not_hold_up_others(guest, client):
    for outer in range(60):
        os.mkdir(os.path.join(guest.workspace, str(outer)))
        for inner in range(100):
            os.mkdir(os.path.join(guest.workspace, str(outer), str(inner)))
    other = guest.connect()
    channel = other.open("remove", path=".", recursive=True)
    other.finish(channel)
    channel = other.open("remove", path="/workspace", recursive=True)
    assert client.run("echo", "quick", cwd="/").stdout == b"quick\n"
    other.cancel(channel)
    other.finish(channel)
    other.close()


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "x" * 300, "/".join(["y" * 200] * 30)])
def test_a_path_that_no_file_can_have_is_refused(client, path):
    for op in ("stat", "list", "read", "write", "mkdir", "remove", "pack", "unpack", "watch", "search"):
        error = client.do(op, path=path, content="x").error
        assert error["code"] == "invalid_path", op
    for op in ("move", "copy"):
        assert client.do(op, source=path, target="x").error["code"] == "invalid_path", op
    client.do("mkdir", path="there")
    for op in ("move", "copy"):
        assert client.do(op, source="there", target=path).error["code"] == "invalid_path", op


@pytest.mark.parametrize("path", [None, 7, ["x"], "\ud800"])
def test_a_path_that_is_no_path_is_refused(client, path):
    for op in ("stat", "list", "read", "write", "mkdir", "remove", "pack", "unpack", "watch"):
        assert client.do(op, path=path).error["code"] == "invalid_input", op
