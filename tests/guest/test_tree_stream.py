"""`wire.tree`: what is written is read, and what no honest writer makes is refused."""

import json
import struct

import pytest
from hypothesis import given, settings, strategies as st

from atoll.wire.tree import DIRECTORY, FILE, SYMLINK, BadTree, Entry, Reader, Writer

NAMES = st.text(min_size=1, max_size=20).filter(
    lambda name: (
        name not in (".", "..") and not set(name) & {"/", "\0"} and not any("\ud800" <= c <= "\udfff" for c in name)
    )
)


@st.composite
def trees(draw):
    """Entries and contents, in the order of a stream."""
    items = []
    for _ in range(draw(st.integers(0, 8))):
        path = "/".join(draw(st.lists(NAMES, min_size=1, max_size=4)))
        kind = draw(st.sampled_from([FILE, DIRECTORY, SYMLINK]))
        content = draw(st.binary(max_size=300)) if kind == FILE else b""
        target = draw(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=50)
        )
        mtime = draw(st.floats(-1e9, 1e10))
        entry = Entry(path, kind, draw(st.integers(0, 0o777)), mtime, len(content), target if kind == SYMLINK else None)
        items.append((entry, content))
    return items


def written(items):
    writer = Writer()
    return b"".join(writer.entry(entry) + writer.data(content) for entry, content in items) + writer.end()


def read(stream, size):
    reader, found = Reader(), []
    for start in range(0, len(stream), size):
        for item in reader.feed(stream[start : start + size]):
            if isinstance(item, Entry):
                found.append((item, b""))
            else:
                found[-1] = (found[-1][0], found[-1][1] + item)
    reader.close()
    return found


@given(trees(), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_in_pieces_of_any_size(items, size):
    assert read(written(items), size) == items


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused_or_harmless(noise):
    reader = Reader()
    try:
        for item in reader.feed(noise):
            assert isinstance(item, (Entry, bytes))
        reader.close()
    except BadTree:
        pass


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=9), x),
        max_leaves=8,
    )
)
@settings(max_examples=100, deadline=None)
def test_any_json_is_refused_unless_it_is_an_entry(value):
    with pytest.raises(BadTree):
        Reader().feed(framed(value))


def framed(value):
    header = json.dumps(value).encode()
    return struct.pack("<I", len(header)) + header


GOOD = Entry("a/b", FILE, 0o644, 1.5, 0, None)._asdict()
BAD = [
    {"path": path}
    for path in (
        "",
        "/",
        "/etc/passwd",
        "..",
        "a/../b",
        "../a",
        "a//b",
        "a/",
        "./a",
        "a/.",
        ".",
        "a\0b",
        5,
        None,
        "x" * 300,
    )
]
BAD += [{"path": "/".join(["x" * 200] * 30)}, {"path": "\ud800"}]
BAD += [{"type": kind} for kind in ("fifo", "", None, 5)]
BAD += [{"mode": mode} for mode in (-1, 0o1000, 0o4755, 1.0, True, None, "644")]
BAD += [{"mtime": time} for time in (float("nan"), float("inf"), 2**50, None, "now", True)]
BAD += [{"size": size} for size in (-1, 1.0, True, None, 2**63)]
BAD += [{"target": "x"}, {"type": "symlink"}, {"type": "symlink", "target": ""}, {"type": "symlink", "target": "a\0b"}]
BAD += [{"type": "symlink", "target": "x" * 5000}, {"type": "directory", "size": 1}, {"extra": 1}]


@pytest.mark.parametrize("change", BAD, ids=lambda change: str(change)[:40])
def test_a_header_that_is_no_proper_entry_is_refused(change):
    with pytest.raises(BadTree):
        Reader().feed(framed({**GOOD, **change}))


def test_the_header_that_the_others_are_changed_from_is_proper():
    assert Reader().feed(framed(GOOD)) == [Entry(**GOOD)]


def test_a_header_without_a_member_is_refused():
    for name in GOOD:
        with pytest.raises(BadTree):
            Reader().feed(framed({key: value for key, value in GOOD.items() if key != name}))


def test_a_huge_header_is_refused_before_it_is_kept():
    with pytest.raises(BadTree):
        Reader().feed(struct.pack("<I", 1 << 20))


def test_the_end_must_come_and_be_the_end():
    with pytest.raises(BadTree):
        Reader().close()
    reader = Reader()
    reader.feed(written([]))
    reader.close()
    with pytest.raises(BadTree):
        reader.feed(b"x")


def test_limits_on_what_is_believed():
    stream = written([(Entry("a", FILE, size=5), b"12345"), (Entry("b", FILE, size=5), b"12345")])
    assert len(Reader(max_entries=2, max_bytes=10).feed(stream)) == 4
    with pytest.raises(BadTree):
        Reader(max_entries=1).feed(stream)
    with pytest.raises(BadTree):
        Reader(max_bytes=9).feed(stream)


def test_a_writer_refuses_to_make_what_no_reader_takes():
    writer = Writer()
    with pytest.raises(ValueError, match="simply go down"):
        writer.entry(Entry("../x", FILE))
    writer.entry(Entry("x", FILE, size=2))
    with pytest.raises(ValueError, match="more content"):
        writer.data(b"123")
    with pytest.raises(ValueError, match="missing"):
        writer.entry(Entry("y", FILE))
    with pytest.raises(ValueError, match="missing"):
        writer.end()
