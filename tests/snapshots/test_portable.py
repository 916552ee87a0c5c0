"""A snapshot through a file: all of it comes back, the same layer is always the same bytes, and is stored once."""

from __future__ import annotations

import json
import os
import stat
import tarfile

import pytest
from tests.snapshots import kinds

from atoll import FileError, InvalidInput, SnapshotNotFound, Unsupported
from atoll.engine.layers import Layers
from atoll.engine.layout import Layout


def layers_of(path):
    """The digests of the layers in a file."""
    with tarfile.open(path) as tar:
        return [name.removeprefix("layers/") for name in tar.getnames()[1:]]


def manifest_of(path):
    with tarfile.open(path) as tar:
        return json.load(tar.extractfile("atoll-snapshot.json"))


@pytest.mark.parametrize("name", ["kept.tar", "kept.tar.gz", "kept.tgz", "kept"])
def test_files_of_every_kind_come_back(make, snapshots, tmp_path, name):
    box = make()
    kinds.make(box)
    box.run_code("x = 42")
    box.snapshot("one")
    kinds.change(box)
    made = box.snapshot("two")
    told = kinds.tell(box)
    snapshots.export("two", tmp_path / name)
    box.destroy()
    for each in ("one", "two"):
        snapshots.delete(each)
    found = snapshots.import_file(tmp_path / name)
    assert (found.name, found.sandbox, found.created, len(found.layers)) == ("two", "", made.created, 2)
    assert not set(found.layers) & set(made.layers)
    back = make(snapshot="two")
    assert kinds.tell(back) == told
    assert back.run_code("x").text == "42"
    assert [each for each in os.listdir(tmp_path) if each != name] == []


def test_what_was_renamed_and_removed_stays_so(make, snapshots, tmp_path):
    box = make()
    box.run("mkdir -p a/b/c gone full && echo 1 > a/b/c/f && echo 2 > gone/g && echo 3 > full/old", check=True)
    box.snapshot("one")
    box.run("mv a z && rm z/b/c/f && echo 4 > z/b/c/new && rm -r gone && rm -r full && mkdir full && echo 5 > full/n",
            check=True)  # fmt: skip
    box.snapshot("two")
    box.run("mv z/b y && mkdir gone && touch gone/h", check=True)
    box.snapshot("three")
    told = kinds.tell(box)
    snapshots.export("three", tmp_path / "file")
    snapshots.import_file(tmp_path / "file", "back")
    back = make(snapshot="back")
    assert kinds.tell(back) == told
    back.run("echo more >> y/c/new && rm full/n", check=True)
    back.snapshot("again")
    assert make(snapshot="again").run("cat y/c/new; ls full").stdout == "4\nmore\n"


def test_the_same_layer_is_the_same_bytes_wherever_it_lies(make, snapshots, tmp_path):
    box = make()
    kinds.make(box)
    box.snapshot("one")
    snapshots.export("one", tmp_path / "first")
    snapshots.export("one", tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    snapshots.delete("one")
    box.destroy()
    snapshots.import_file(tmp_path / "first")
    snapshots.export("one", tmp_path / "third")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "third").read_bytes()


def test_a_layer_that_is_known_is_not_stored_twice(make, snapshots, tmp_path):
    box = make()
    kinds.make(box)
    one = box.snapshot("one")
    box.files.write("b", "x")
    box.snapshot("two")
    snapshots.export("one", tmp_path / "one")
    snapshots.export("two", tmp_path / "two")
    assert set(layers_of(tmp_path / "one")) < set(layers_of(tmp_path / "two"))
    assert snapshots.import_file(tmp_path / "one", "again").layers == one.layers, "the layer is here still"
    box.destroy()
    for name in ("one", "two", "again"):
        snapshots.delete(name)
    first, second = snapshots.import_file(tmp_path / "one"), snapshots.import_file(tmp_path / "two")
    assert second.layers[1:] == first.layers
    snapshots.delete("one")
    assert make(snapshot="two").files.read("b") == "x"


def test_holes_take_no_room(make, snapshots, tmp_path, home):
    box = make()
    box.run("truncate -s 800M holes && head -c 100000000 /dev/zero > zeros && echo x >> holes", check=True)
    box.snapshot("one")
    snapshots.export("one", tmp_path / "file")
    assert (tmp_path / "file").stat().st_size < 1 << 20
    snapshots.import_file(tmp_path / "file", "back")
    assert make(snapshot="back").run("stat -c %s holes zeros; tail -c 2 holes").stdout == "838860802\n100000000\nx\n"


@pytest.fixture
def source(tmp_path):
    place = tmp_path / "source"
    (place / "src").mkdir(parents=True)
    (place / "secrets").mkdir()
    for name, text in (("src/a.py", "1"), ("src/b.py", "2"), ("secrets/key", "hidden"), (".env", "hidden"), ("c", "3")):
        (place / name).write_text(text)
    (place / "link").symlink_to("src/a.py")
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    return place


def test_a_source_becomes_part_of_it(make, snapshots, source, tmp_path):
    box = make(source=source, preset="full-access")
    box.run("echo changed > src/a.py && rm src/b.py && echo new > n", check=True)
    box.snapshot("one")
    told = kinds.tell(box)
    snapshots.export("one", tmp_path / "file")
    assert str(source) not in json.dumps(manifest_of(tmp_path / "file"))
    for path in source.rglob("*"):
        if path.is_file():
            path.unlink()
    snapshots.import_file(tmp_path / "file", "back")
    back = make(snapshot="back")
    assert back.info.spec.source is None
    assert kinds.tell(back) == told
    assert back.run("cat src/a.py c .env; ls src").stdout == "changed\n3hiddena.py\n"


def test_what_the_rules_hide_of_a_source_is_not_in_it(make, snapshots, source, tmp_path):
    rules = [
        {"pattern": "**", "level": "read"},
        {"pattern": "/output/**", "level": "write"},
        {"pattern": "secrets/**", "level": "none"},
        {"pattern": ".env", "level": "none"},
        {"pattern": "c", "level": "view"},
    ]
    box = make(source=source, permissions=rules, ignore=["b.py"])
    box.run("echo out > output/o", check=True)
    assert not box.run("cat c").success
    seen = box.run("find . | sort").stdout
    box.snapshot("one")
    snapshots.export("one", tmp_path / "file")
    assert b"hidden" not in (tmp_path / "file").read_bytes()
    snapshots.import_file(tmp_path / "file", "back")
    back = make(snapshot="back")
    assert back.run("find . | sort").stdout == seen
    assert back.run("cat src/a.py output/o").stdout == "1out\n"
    assert back.run("stat -c '%s %a' c").stdout == "1 0\n"
    assert back.run("chmod 600 c; cat c | od -An -c").stdout.split() == ["\\0"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, for files of others")
def test_what_the_sandbox_could_not_read_of_a_source_is_not_in_it(make, snapshots, source, tmp_path):
    (source / "foreign").write_text("private to another")
    os.chown(source / "foreign", 12345, 12345)
    (source / "foreign").chmod(0o600)
    (source / "closed").mkdir()
    (source / "closed" / "x").write_text("private to another")
    os.chown(source / "closed", 12345, 12345)
    (source / "closed").chmod(0o700)
    box = make(source=source, preset="full-access")
    assert not box.run("cat foreign closed/x").success
    box.snapshot("one")
    snapshots.export("one", tmp_path / "file")
    assert b"private to another" not in (tmp_path / "file").read_bytes()
    assert b"hidden" in (tmp_path / "file").read_bytes(), "the control must see what was readable"


def test_a_source_that_is_gone_is_told(make, snapshots, source, tmp_path):
    make(source=source, preset="full-access").snapshot("one")
    source.rename(tmp_path / "moved")
    with pytest.raises(InvalidInput, match="no directory any more"):
        snapshots.export("one", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_no_ids_and_no_set_ids_of_this_machine_are_in_it(make, snapshots, tmp_path):
    box = make()
    box.run("touch f && chmod 6755 f && mkdir d && chmod 2755 d", check=True)
    box.snapshot("one")
    snapshots.export("one", tmp_path / "file")
    with tarfile.open(tmp_path / "file") as tar, tarfile.open(fileobj=tar.extractfile(tar.getnames()[1])) as layer:
        members = layer.getmembers()
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members} == {(0, 0, "", "")}
    assert {"work/f", "work/d"} <= {each.name for each in members}
    assert all(each.mode & 0o6000 == 0 for each in members)


def test_an_export_that_cannot_be_written_leaves_nothing(make, snapshots, tmp_path):
    make().snapshot("one")
    with pytest.raises(FileError, match="cannot be written"):
        snapshots.export("one", tmp_path / "no" / "file")
    (tmp_path / "directory").mkdir()
    with pytest.raises(FileError):
        snapshots.export("one", tmp_path / "directory")
    with pytest.raises(SnapshotNotFound):
        snapshots.export("none", tmp_path / "file")
    assert os.listdir(tmp_path) == ["directory"]


def test_an_export_replaces_what_was_there_and_is_private(make, snapshots, tmp_path):
    make().snapshot("one")
    (tmp_path / "file").write_text("old")
    snapshots.export("one", tmp_path / "file")
    assert layers_of(tmp_path / "file")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_one_with_an_image_is_not_exported(make, snapshots, tmp_path):
    image = tmp_path / "image"
    for name in ("usr", "bin"):
        (image / name).mkdir(parents=True)
    for each in (image, tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    make(image=image).snapshot("one")
    with pytest.raises(Unsupported, match="image"):
        snapshots.export("one", tmp_path / "file")


def test_paths_that_are_too_deep_are_told(make, snapshots, tmp_path):
    box = make()
    deep = "import os\nfor _ in range(60):\n    os.mkdir('d' * 100), os.chdir('d' * 100)\n"
    box.run(["python3", "-c", deep], check=True)
    box.snapshot("one")
    with pytest.raises(Unsupported, match="a path of more than"):
        snapshots.export("one", tmp_path / "file")


def test_an_imported_one_is_no_sandbox_s_own(make, snapshots, tmp_path):
    box = make()
    box.snapshot("one")
    snapshots.export("one", tmp_path / "file")
    snapshots.import_file(tmp_path / "file", "back")
    with pytest.raises(InvalidInput, match="from a file"):
        box.rollback("back")


def test_layers_of_imports_belong_to_nobody_else(make, snapshots, tmp_path, home):
    box = make()
    box.snapshot("one")
    snapshots.export("one", tmp_path / "file")
    box.destroy()
    snapshots.delete("one")
    found = snapshots.import_file(tmp_path / "file")
    about = Layers(Layout(home)).about(found.layers[0])
    assert about["digest"] == layers_of(tmp_path / "file")[0]
    assert about["uid"] == (1_900_000_000 if os.getuid() == 0 else None)
