"""Files that were made to harm whoever imports them: each is refused, and nothing is left of it.

The same file without its one fault is imported: that is the control.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
import zlib

import pytest
from hypothesis import given, strategies as st
from tests import thorough
from tests.snapshots import forging
from tests.snapshots.conftest import leftovers

from atoll import DiskFull, FileMissing, InvalidInput, IsDirectory
from atoll.engine.layout import Layout
from atoll.engine.portable import Damaged, headers, holes
from atoll.engine.portable.headers import Entry
from atoll.engine.portable.planting import Ground, Planter
from atoll.engine.portable.stream import Member, Source

FINE = (forging.file(b"work/a", b"content"), Entry(b"work/d", "directory", 0o755, 5), forging.file(b"work/d/b"))


@pytest.fixture
def refused(snapshots, home, tmp_path):
    """Imports bytes that must be refused; gives the sentence."""

    def check(data, match=None, **keywords):
        path = tmp_path / "forged.tar"
        path.write_bytes(data)
        with pytest.raises(InvalidInput, match=match) as error:
            snapshots.import_file(path, **keywords)
        assert str(error.value).isprintable()
        assert snapshots.list() == []
        assert leftovers(home) == []
        return str(error.value)

    return check


@pytest.fixture
def accepted(snapshots, make, tmp_path):
    """Imports bytes that are fine; gives a sandbox of them."""

    def check(data, **keywords):
        path = tmp_path / "fine.tar"
        path.write_bytes(data)
        name = snapshots.import_file(path, **keywords).name
        return make(snapshot=name)

    return check


def test_the_control_is_imported(accepted):
    box = accepted(forging.snapshot(forging.usual(*FINE)))
    assert box.files.read("a") == "content"
    assert box.files.exists("d/b")


def test_names_that_are_only_odd_are_imported(accepted):
    names = [b"\n", b" ", b"\xff\xfe", b"-rf", b".wh.a", b"a=b", b"n" * 255, "ä".encode()]
    entries = [forging.file(b"work/" + name) for name in sorted(names)]
    box = accepted(forging.snapshot(forging.usual(*entries), packed=True))
    assert sorted(os.fsencode(entry.name) for entry in box.files.list()) == sorted(names)


@pytest.mark.parametrize(
    "path",
    [
        b"work/..", b"work/../x", b"work/../../x", b"/work/x", b"/etc/x", b"etc/x", b"..", b".", b"work/.", b"work//x",
        b"work/", b"work/x/", b"work/a\0b", b"work/" + b"n" * 256, b"work/" + b"n/" * 2100 + b"x", b"zzz", b"",
        b"work/\0", b"upper/x", b"../layers/x",
    ],
)  # fmt: skip
def test_no_path_leads_out(refused, path):
    refused(forging.snapshot(forging.usual(forging.file(path))))


def test_nothing_is_written_through_a_link(refused, tmp_path):
    (tmp_path / "outside").mkdir()
    for target in (os.fsencode(tmp_path / "outside"), b"..", b"d"):
        there = [Entry(b"work/d", "directory", 0o755), Entry(b"work/l", "symlink", target=target)]
        refused(forging.snapshot(forging.usual(*there, forging.file(b"work/l/x"))), "lies in no directory")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "whiteout", "fifo", "socket"])
def test_nothing_is_written_below_what_is_no_directory(refused, kind):
    refused(forging.snapshot(forging.usual(Entry(b"work/l", kind), forging.file(b"work/l/x"))), "lies in no directory")
    refused(forging.snapshot(forging.usual(forging.file(b"work/no/x"))), "lies in no directory")


def test_links_that_only_say_where_they_lead_are_imported(accepted):
    box = accepted(forging.snapshot(forging.usual(Entry(b"work/l", "symlink", target=b"/etc/shadow"))))
    assert box.run("readlink l").stdout == "/etc/shadow\n"
    assert not box.run("cat l").success


@pytest.mark.parametrize(
    "target",
    [b"/etc/passwd", b"../../../../etc/passwd", b"work/../../about", b"about", b"work/d", b"work/l", b"work/zz",
     b"work/none", b"tmp/t", b"work/x", b"work/w", b"work"],
)  # fmt: skip
def test_hard_links_lead_to_files_of_the_same_place_that_came_before(refused, target):
    entries = [
        forging.root("home"), forging.root("tmp"), forging.file(b"tmp/t"), forging.root("work"),
        Entry(b"work/d", "directory", 0o755), Entry(b"work/l", "symlink", target=b"/etc/passwd"),
        Entry(b"work/w", "whiteout"), Entry(b"work/x", "link", target=target), forging.file(b"work/zz"),
    ]  # fmt: skip
    refused(forging.snapshot(forging.layer(*entries)), "is a link to what")


def test_a_proper_hard_link_is_imported(accepted):
    link = Entry(b"work/b", "link", target=b"work/a")
    box = accepted(forging.snapshot(forging.usual(forging.file(b"work/a", b"x"), link)))
    assert box.run("stat -c %h a b").stdout == "2\n2\n"


def plain(entry, **fields):
    """The headers of an entry with bytes of the ordinary one replaced, and its checksum put right."""
    raw = bytearray(headers.encode(entry))
    block = raw[-512:]
    for at, value in fields.values():
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(raw[:-512] + block)


@pytest.mark.parametrize("kind", [b"3", b"4", b"7", b"L", b"K", b"S", b"g", b"x", b"\0", b"D", b"N", b"V"])
def test_devices_and_other_kinds_are_none(refused, kind):
    entry = Entry(b"work/x", "fifo", 0o644)
    forged = plain(entry, kind=(156, kind), numbers=(329, b"0000001\x000000003\0"))
    refused(forging.snapshot(forging.usual(forged)), "none that atoll writes")
    assert plain(entry) == headers.encode(entry), "the forger is right but for the forgery"


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6777, 0o100755, 0o7777])
def test_modes_have_no_more_than_permissions(refused, mode):
    refused(forging.snapshot(forging.usual(forging.file(b"work/a")[0]._replace(mode=mode))))


def test_ids_are_none(refused):
    refused(forging.snapshot(forging.usual(plain(forging.file(b"work/a")[0], uid=(108, b"0000001\0")))))


@pytest.mark.parametrize(
    "entries",
    [
        [forging.file(b"work/a"), forging.file(b"work/a")],
        [forging.file(b"work/b"), forging.file(b"work/a")],
        [Entry(b"work/a", "symlink", target=b"/etc"), Entry(b"work/a", "directory", 0o755), forging.file(b"work/a/x")],
        [Entry(b"work/d", "directory", 0o755), forging.file(b"work/e"), forging.file(b"work/d/late")],
        [forging.root("work")],
        [forging.root("home")],
    ],
)
def test_no_path_comes_twice_or_late(refused, entries):
    refused(forging.snapshot(forging.usual(*entries)), "comes where it cannot be")


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"work", "directory", 0o777),
        Entry(b"work", "directory", 0o755, opaque=True),
        Entry(b"work", "directory", 0o755, 1),
        Entry(b"work", "symlink", target=b"/etc"),
        Entry(b"work", "file"),
    ],
)
def test_a_place_is_a_plain_directory(refused, entry):
    refused(forging.snapshot(forging.layer(entry)), "not the beginning of a place")


@pytest.mark.parametrize(
    "name", [b"overlay.opaque", b"overlay.redirect", b"overlay.metacopy", b"overlay.whiteout", b"a/b", b"", b"n" * 300]
)
def test_attributes_that_imitate_overlay_state_are_refused(refused, name):
    entry = Entry(b"work/d", "directory", 0o755, xattrs=((name, b"y"),))
    refused(forging.snapshot(forging.usual(entry)))


@pytest.mark.parametrize("kind", ["trusted.overlay.opaque", "security.capability", "system.posix_acl_access"])
def test_attributes_of_other_kinds_are_refused(refused, kind):
    record = f"SCHILY.xattr.{kind}=y\n"
    entry = Entry(b"work/d", "directory", 0o755)
    size = len(record) + 4 if len(record) + 4 < 100 else len(record) + 5
    records = headers._records(entry)
    text = b"".join(headers._record(*each) for each in records)
    raw = headers._with_records(f"{size - 1} {record}".encode() + text, headers.encode(entry)[-512:])
    refused(forging.snapshot(forging.usual(raw)))


def test_an_ordinary_attribute_is_imported(accepted):
    entry = forging.file(b"work/a", xattrs=((b"note", b"hi"),))
    box = accepted(forging.snapshot(forging.usual(entry)))
    assert box.run(["python3", "-c", "import os; print(os.getxattr('a', 'user.note'))"]).stdout == "b'hi'\n"


def test_flags_of_what_cannot_have_them_are_refused(refused):
    for entry in (
        Entry(b"work/a", "file", opaque=True),
        Entry(b"work/a", "whiteout", 0o644),
        Entry(b"work/a", "symlink", 0o777, target=b"x"),
        Entry(b"work/a", "fifo", stored=512),
        Entry(b"work/a", "directory", target=b"x"),
        Entry(b"work/a", "symlink"),
        Entry(b"work/a", "nothing"),
    ):
        refused(forging.snapshot(forging.usual(entry)), "none that atoll writes")


def sparse(size, text, content=b"", stored=None):
    text += headers.padding(len(text))
    stored = len(text) + len(content) if stored is None else stored
    return Entry(b"work/s", "file", 0o644, 0, size, stored, sparse=True), text + content


def test_a_file_with_holes_is_imported(accepted):
    text = holes.encode_map([(8192, 4096), (1 << 40, 1)])
    box = accepted(forging.snapshot(forging.usual(sparse((1 << 40) + 1, text, b"x" * 4096 + b"y"))))
    assert box.run("stat -c %s s && tail -c 1 s && du -k s | cut -f1").stdout.split("\n")[0] == str((1 << 40) + 1)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1 << 60, b"0\n"),
        (8192, b"1\n0\n8193\n"),
        (8192, b"1\n4096\n8192\n"),
        (8192, b"2\n0\n4096\n0\n4096\n"),
        (8192, b"2\n4096\n4096\n0\n4096\n"),
        (8192, b"1\n1\n4096\n"),
        (8192, b"1\n0\n0\n"),
        (8192, b"1\n-1\n4096\n"),
        (8192, b"1\n0\n" + b"9" * 30 + b"\n"),
        (8192, b"99999999999999\n"),
        (8192, b"00\n"),
        (8192, b"x\n"),
        (8192, b"1 \n0\n4096\n"),
    ],
)
def test_maps_of_holes_that_cannot_be_are_refused(refused, size, text):
    refused(forging.snapshot(forging.usual(sparse(size, text, b"x" * 8192))))


def test_a_map_that_never_ends_is_not_read_for_ever(refused):
    endless = b"1000000\n" + b"1\n" * 100_000
    refused(forging.snapshot(forging.usual(sparse(8192, endless))))


def test_content_that_is_not_what_its_digest_says_is_refused(refused):
    good = forging.snapshot(forging.usual(*FINE))
    refused(good.replace(b"content", b"cOntent"), "was changed")
    data = forging.usual(*FINE)
    other = forging.member(f"layers/{'0' * 64}", data)
    said = forging.manifest([data]).replace(forging.digest(data).encode(), b"0" * 64)
    refused(forging.member("atoll-snapshot.json", said) + other + headers.END, "was changed")


def test_a_known_layer_is_checked_all_the_same(accepted, snapshots, tmp_path):
    good = forging.snapshot(forging.usual(*FINE))
    accepted(good)
    (tmp_path / "bad").write_bytes(good.replace(b"content", b"cOntent"))
    with pytest.raises(InvalidInput, match="was changed"):
        snapshots.import_file(tmp_path / "bad", "bad")


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_ends_early_is_refused_wherever_it_ends(refused, packed):
    whole = forging.snapshot(forging.usual(*FINE), packed=packed)
    size = len(whole)
    for end in sorted({0, 1, 100, 511, 512, size // 3, size // 2, size - 513, size - 512, size - 4, size - 1}):
        refused(whole[:end])


def test_what_follows_after_the_end_is_refused(refused):
    good = forging.snapshot(forging.usual(*FINE))
    refused(good + b"x", "follows")
    refused(good + bytes(512), "follows")
    refused(gzip.compress(good) + gzip.compress(b"more"), "follows")
    refused(gzip.compress(good + b"x"), "follows")
    refused(forging.snapshot(forging.usual(*FINE, end=headers.END + bytes(512))), "follows")


def test_layers_are_those_that_are_named(refused):
    one, other = forging.usual(*FINE), forging.usual()
    both = [forging.member(f"layers/{forging.digest(each)}", each) for each in (one, other)]
    head = forging.member("atoll-snapshot.json", forging.manifest([one]))
    refused(head + headers.END, "is not in it")
    refused(head + both[1] + headers.END, "does not name")
    refused(head + both[0] + both[1] + headers.END, "does not name")
    refused(head + both[0] + both[0] + headers.END, "does not name")
    refused(head + head + both[0] + headers.END, "does not name")
    refused(both[0] + head + headers.END, "does not begin")
    refused(head + forging.member("layers/../../etc/x", one) + headers.END, "does not name")


def with_fields(**changes):
    data = forging.usual(*FINE)
    return forging.snapshot(data, said=forging.manifest([data], **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"more": 1}, {"source": "/etc"}, {"image": "/"}, {"version": 2}, {"version": "1"}, {"atoll": "x"},
        {"name": "../x"}, {"name": ""}, {"name": 1}, {"name": ".x"}, {"name": "x" * 1000}, {"created": "now"},
        {"created": None}, {"created": True}, {"workdir": "relative"}, {"workdir": "/proc/x"}, {"workdir": 5},
        {"packages": "numpy"}, {"packages": ["--index-url=http://x"]}, {"packages": [1]}, {"packages": {"a": 1}},
        {"lost": []}, {"lost": {"a": 1}}, {"lost": {str(n): "" for n in range(2000)}}, {"lost": {"a": "x" * 5000}},
        {"places": {}}, {"places": {"work": []}}, {"places": []}, {"layers": {}}, {"layers": []},
        {"layers": {"0" * 64: {"entries": 1, "size": 1}}}, {"layers": {"..": {"entries": 1, "size": 1}}},
        {"places": {"work": ["/etc"], "tmp": [], "home": []}}, {"places": {"work": "x", "tmp": [], "home": []}},
        {"places": {"work": [["x"]], "tmp": [], "home": []}},
    ],
    ids=range(35),
)  # fmt: skip
def test_what_it_says_of_itself_is_checked(refused, changes):
    refused(with_fields(**changes))


def test_numbers_of_layers_are_checked(refused):
    data = forging.usual(*FINE)
    fine = {"entries": 1, "size": 1}
    for blob in ({**fine, "entries": -1}, {**fine, "entries": 1.5}, {"entries": 1}, {**fine, "size": 1 << 60}):
        said = forging.manifest([data], layers={forging.digest(data): blob})
        refused(forging.snapshot(data, said=said))


def test_a_layer_is_named_once_and_there_are_not_too_many(refused):
    data = forging.usual(*FINE)
    twice = {place: [forging.digest(data)] * 2 for place in forging.PLACES}
    refused(forging.snapshot(data, said=forging.manifest([data], places=twice)), "twice")
    many = [forging.usual(forging.file(b"work/%03d" % number)) for number in range(100)]
    refused(forging.snapshot(*many))


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"version": ' + b"9" * 100_000 + b"}", b'{"created": NaN}', b'{"atoll": "snapshot", "atoll": "snapshot"}',
        b'{"created": 1e999}',
    ],
    ids=range(11),
)  # fmt: skip
def test_a_manifest_that_cannot_be_read_is_refused(refused, text):
    refused(forging.snapshot(forging.usual(*FINE), said=text))


def test_a_manifest_of_any_length_is_refused(refused):
    refused(forging.snapshot(said=b" " * (2 << 20)), "does not begin")


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(100_000), bytes(100_000), b"\x1f\x8b" + os.urandom(1000)])
def test_what_is_no_snapshot_at_all_is_refused(refused, data):
    refused(data)


def test_another_tar_is_refused(refused, tmp_path):
    with tarfile.open(tmp_path / "other.tar", "w") as tar:
        tar.add(__file__, "file")
    refused((tmp_path / "other.tar").read_bytes())


def test_a_path_that_cannot_be_read_is_a_file_error(snapshots, tmp_path):
    with pytest.raises(FileMissing):
        snapshots.import_file(tmp_path / "none")
    with pytest.raises(IsDirectory):
        snapshots.import_file(tmp_path)


def test_a_limit_holds_for_content_and_for_counts(refused, accepted):
    content = forging.snapshot(forging.usual(forging.file(b"work/a", b"x" * 3_000_000)))
    refused(content, "limit of 2097152", limit="2M")
    count = forging.snapshot(forging.usual(*(forging.file(b"work/%05d" % n) for n in range(3000))))
    refused(count, "limit of 1048576", limit="1M")
    accepted(count, limit="8M")


def test_a_packed_bomb_is_read_no_further_than_the_limit(refused):
    size = 8 << 30
    head = forging.member("atoll-snapshot.json", forging.manifest([b""]))
    entry = Entry(b"work/bomb", "file", 0o644, 0, size, size)
    start = head + headers.member(f"layers/{forging.digest(b'')}", size + 8192)
    packer = zlib.compressobj(9, wbits=31)
    data = packer.compress(start + forging.usual(entry, end=b""))
    megabyte = bytes(1 << 20)
    data += b"".join(packer.compress(megabyte) for _ in range(1 << 8)) + packer.flush()
    assert len(data) < 4 << 20, "it is a bomb"
    began = time.monotonic()
    refused(data, "limit of 33554432", limit="32M")
    assert time.monotonic() - began < 20


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, for layers that lie on disks of their own")
def test_who_lies_about_the_size_runs_into_it(snapshots, home, tmp_path):
    data = forging.usual(forging.file(b"work/a", random.Random(1).randbytes(100 << 20)))
    said = forging.manifest([data], layers={forging.digest(data): {"entries": 0, "size": 0}})
    (tmp_path / "file").write_bytes(forging.snapshot(data, said=said))
    with pytest.raises(DiskFull):
        snapshots.import_file(tmp_path / "file")
    assert leftovers(home) == []


def test_who_asks_for_more_than_there_is_is_refused_early(snapshots, home, tmp_path):
    data = forging.usual(*FINE)
    said = forging.manifest([data], layers={forging.digest(data): {"entries": 1, "size": 1 << 52}})
    (tmp_path / "file").write_bytes(forging.snapshot(data, said=said))
    with pytest.raises(DiskFull):
        snapshots.import_file(tmp_path / "file")
    assert leftovers(home) == []


def test_an_import_that_is_killed_leaves_nothing(snapshots, home, tmp_path, eventually):
    Layout(home).make()
    data = forging.usual(*(forging.file(b"work/%06d" % n, b"x" * 1000) for n in range(12_000)))
    path = tmp_path / "large"
    path.write_bytes(forging.snapshot(data))
    program = f"from atoll import Snapshots; Snapshots().import_file({str(path)!r})"
    for delay in thorough.turns((0.2, 0.5, 0.8)):
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        try:
            eventually(lambda: [n for n in os.listdir(f"{home}/jail/layers") if n.startswith("ly-")])
            time.sleep(delay)  # somewhere in the middle
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        eventually(lambda: leftovers(home) == [])
        assert snapshots.list() == []
    assert snapshots.import_file(path).name == "forged"


def test_a_name_that_is_taken_is_refused(snapshots, tmp_path):
    (tmp_path / "file").write_bytes(forging.snapshot(forging.usual(*FINE)))
    snapshots.import_file(tmp_path / "file")
    with pytest.raises(InvalidInput, match="already a snapshot 'forged'"):
        snapshots.import_file(tmp_path / "file")
    assert snapshots.import_file(tmp_path / "file", "other").layers == snapshots.get("forged").layers


GOOD = forging.snapshot(
    forging.usual(
        *FINE,
        Entry(b"work/l", "symlink", target=b"a"),
        Entry(b"work/m", "link", target=b"work/a"),
        sparse(8192, holes.encode_map([(4096, 4096)]), b"x" * 4096),
        Entry(b"work/w", "whiteout"),
    )
)


def plant(data, directory):
    """What an import does with the layers of a file, without the rest."""
    (directory / "file").write_bytes(data)
    fd = os.open(directory / "file", os.O_RDONLY)
    root = os.open(directory, os.O_RDONLY)
    try:
        source = Source(fd, 1 << 20)
        while member := source.member():
            if member[0].startswith("layers/"):
                part = Member(source, member[1])
                planter = Planter(root, Ground(None, str(directory)))
                try:
                    planter.plant(part)
                finally:
                    planter.close()
            else:
                source.read(member[1])
            source.skip_padding(member[1])
    finally:
        os.close(fd)
        os.close(root)


@given(st.data())
def test_whatever_is_changed_in_a_file_is_refused_or_harmless(tmp_path_factory, data):
    forged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(forged) - 1))
        forged[at : at + data.draw(st.sampled_from([0, 1, 1, 1, 512]))] = data.draw(st.binary(max_size=3))
    directory = tmp_path_factory.mktemp("planted")
    outside = sorted(os.listdir(directory.parent))
    with contextlib.suppress(Damaged, OSError):
        plant(bytes(forged), directory)
    assert sorted(os.listdir(directory.parent)) == outside
    assert set(os.listdir(directory)) <= {"file", *forging.PLACES}


def test_the_control_of_the_changes_is_planted(tmp_path):
    plant(GOOD, tmp_path)
    assert sorted(os.listdir(tmp_path / "work")) == ["a", "d", "l", "m", "s", "w"]
    assert (tmp_path / "work" / "s").read_bytes() == bytes(4096) + b"x" * 4096


def test_the_forger_writes_what_an_export_writes(snapshots, make, tmp_path):
    box = make()
    box.snapshot("real")
    snapshots.export("real", tmp_path / "real.tar")
    with tarfile.open(tmp_path / "real.tar") as tar:
        said = json.load(tar.extractfile("atoll-snapshot.json"))
    assert set(said) == set(json.loads(forging.manifest([])))
