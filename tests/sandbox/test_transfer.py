from __future__ import annotations

import errno
import os
import socket
import stat

import pytest

from atoll import FileError, FileMissing, FilePresent, IsDirectory, NotDirectory


@pytest.fixture
def files(sandbox):
    sandbox.run("chmod -R u+rwx .; rm -rf -- * .[!.]*")
    return sandbox.files


def tree_of(root):
    """Path to content, or to the target of a link, or to None for a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = os.readlink(path) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def test_a_file_goes_in_and_out_with_its_mode(files, tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "in.bin").write_bytes(data)
    (tmp_path / "in.bin").chmod(0o755)
    assert files.upload(tmp_path / "in.bin", "sub/out.bin") == (1, 0, 0, len(data), (), 0)
    assert files.read_bytes("sub/out.bin") == data
    assert files.info("sub/out.bin").mode == 0o755
    assert files.download("sub/out.bin", tmp_path / "back.bin") == (1, 0, 0, len(data), (), 0)
    assert (tmp_path / "back.bin").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "back.bin").stat().st_mode) & 0o711 == 0o711


def test_a_tree_goes_in_and_out(files, tmp_path):
    source = tmp_path / "tree"
    (source / "a" / "b").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a" / "b" / "x").write_bytes(b"x" * 200_000)
    (source / "a" / "none").write_bytes(b"")
    (source / "run.sh").write_text("echo hi")
    (source / "run.sh").chmod(0o755)
    (source / "a" / "link").symlink_to("../run.sh")
    (source / os.fsdecode(b"caf\xe9")).write_bytes(b"coffee")
    moved = files.upload(source, "copy")
    assert (moved.files, moved.directories, moved.symlinks, moved.skipped) == (4, 3, 1, ())
    assert files.read("copy/run.sh") == "echo hi"
    assert files.info("copy/run.sh").mode == 0o755
    assert files.info("copy/a/link", follow=False).target == "../run.sh"

    back = files.download("copy", tmp_path / "back", symlinks=True)
    assert back == moved
    assert tree_of(tmp_path / "back") == tree_of(source)
    assert os.access(tmp_path / "back" / "run.sh", os.X_OK)
    assert sorted(os.listdir(tmp_path)) == ["back", "tree"]


def test_an_upload_into_a_directory_that_is_there_adds_to_it_and_replaces_files(files, tmp_path):
    files.write("d/old", "old")
    files.write("d/same", "before")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "same").write_text("after")
    files.upload(tmp_path / "t", "d")
    assert (files.read("d/old"), files.read("d/same")) == ("old", "after")


def test_an_upload_leaves_out_what_is_no_file_and_says_so(files, tmp_path):
    (tmp_path / "t").mkdir()
    os.mkfifo(tmp_path / "t" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "t" / "socket"))
        (tmp_path / "t" / "x").write_text("x")
        moved = files.upload(tmp_path / "t", "t")
    assert (moved.files, sorted(moved.skipped), moved.special) == (1, ["pipe", "socket"], 2)


def test_a_download_counts_what_is_no_file(files, sandbox, tmp_path):
    sandbox.run("mkdir t; mkfifo t/pipe; echo x > t/x")
    moved = files.download("t", tmp_path / "t")
    assert (moved.files, moved.skipped, moved.special) == (1, (), 1)
    assert os.listdir(tmp_path / "t") == ["x"]


def test_an_upload_follows_no_link_of_the_host(files, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "secret")
    files.upload(tmp_path / "t", "t")
    assert files.info("t/link", follow=False).type == "symlink"
    assert not files.exists("t/link")


def test_what_cannot_be_uploaded_is_an_error(files, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileMissing):
        files.upload(tmp_path / "missing", "x")
    with pytest.raises(FileError, match="read to an end"):
        files.upload(tmp_path / "pipe", "x")
    (tmp_path / "d").mkdir()
    files.write("file", "")
    with pytest.raises(FileError):
        files.upload(tmp_path / "d", "file")
    assert files.read("file") == ""


def test_a_downloaded_file_replaces_an_old_one_only_when_it_is_whole(files, tmp_path):
    files.write("x", "n" * 100_000)
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(FileError, match="larger than max_size") as caught:
        files.download("x", target, max_size=1000)
    assert caught.value.errno == errno.EFBIG
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]
    files.download("x", target)
    assert target.read_text() == "n" * 100_000


def test_a_downloaded_file_does_not_go_through_a_link_of_the_host(files, tmp_path):
    files.write("x", "new")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "x").symlink_to("precious")
    files.download("x", tmp_path / "x")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "x").read_text() == "new"


def test_a_tree_that_cannot_be_finished_leaves_nothing(files, tmp_path):
    files.write("t/a", "a" * 1000)
    files.write("t/b", "b" * 1000)
    with pytest.raises(FileError, match="larger than max_size"):
        files.download("t", tmp_path / "t", max_size=1500)
    assert os.listdir(tmp_path) == []
    files.download("t", tmp_path / "t", max_size=2000)
    assert sorted(os.listdir(tmp_path / "t")) == ["a", "b"]


def test_a_tree_goes_into_a_directory_with_something_in_it_only_when_asked(files, tmp_path):
    files.write("t/a", "new")
    files.write("t/sub/b", "b")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("old")
    (tmp_path / "sub" / "mine").write_text("mine")
    with pytest.raises(FilePresent, match="overwrite=True"):
        files.download("t", tmp_path)
    assert (tmp_path / "a").read_text() == "old"
    files.download("t", tmp_path, overwrite=True)
    assert tree_of(tmp_path) == {"a": b"new", "sub": None, "sub/b": b"b", "sub/mine": b"mine"}


def test_an_empty_directory_is_filled_without_being_asked(files, tmp_path):
    files.write("t/a", "A")
    files.download("t", tmp_path)
    assert tree_of(tmp_path) == {"a": b"A"}


def test_overwriting_follows_no_link_of_the_host(files, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("safe")
    target = tmp_path / "target"
    target.mkdir()
    (target / "dir").symlink_to(outside)
    (target / "file").symlink_to(outside / "x")
    files.write("t/file", "new")
    files.download("t", target, overwrite=True)
    assert (target / "file").read_text() == "new"
    assert (outside / "x").read_text() == "safe"
    files.write("t/dir/x", "evil")
    with pytest.raises((NotDirectory, FileError)):
        files.download("t", target, overwrite=True)
    assert (outside / "x").read_text() == "safe"


def test_links_are_left_out_unless_asked_for(files, sandbox, tmp_path):
    sandbox.run("mkdir t; ln -s /etc/passwd t/link; echo x > t/x")
    moved = files.download("t", tmp_path / "t")
    assert (moved.files, moved.symlinks, moved.skipped) == (1, 0, ("link",))
    assert tree_of(tmp_path / "t") == {"x": b"x\n"}
    assert files.download("t", tmp_path / "u", symlinks=True).symlinks == 1
    assert os.readlink(tmp_path / "u" / "link") == "/etc/passwd"


def test_modes_never_lock_the_caller_out_nor_give_more_than_permissions(files, sandbox, tmp_path):
    sandbox.run("mkdir t; echo x > t/x; chmod 4000 t/x; mkdir t/d; echo y > t/d/y; chmod 500 t/d")
    files.download("t", tmp_path / "t")
    assert stat.S_IMODE((tmp_path / "t" / "x").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "t" / "d").stat().st_mode) & 0o700 == 0o700
    assert (tmp_path / "t" / "d" / "y").read_text() == "y\n"


def test_the_longest_names_pass(files, tmp_path):
    name = "ü" * 127
    files.write(f"t/{name}", "x")
    files.download(f"t/{name}", tmp_path / name)
    files.download("t", tmp_path / "t")
    files.upload(tmp_path / "t", "u")
    assert files.read(f"u/{name}") == (tmp_path / name).read_text() == "x"


def test_what_cannot_be_downloaded_is_an_error(files, tmp_path):
    with pytest.raises(FileMissing):
        files.download("missing", tmp_path / "x")
    files.write("x", "")
    with pytest.raises(IsDirectory):
        files.download("x", tmp_path)
    with pytest.raises(FileMissing):
        files.download("x", tmp_path / "no" / "such" / "x")
    files.mkdir("d")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotDirectory):
        files.download("d", tmp_path / "file")
    with pytest.raises(FileMissing):
        files.download("d", tmp_path / "no" / "such" / "d")
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_a_deep_tree_passes_and_needs_few_descriptors(files, sandbox, tmp_path):
    sandbox.run(["sh", "-c", "mkdir t; cd t; for i in $(seq 100); do mkdir d; cd d; done; echo x > x"])
    moved = files.download("t", tmp_path / "t")
    assert (moved.files, moved.directories) == (1, 100)
    assert files.upload(tmp_path / "t", "u") == moved
