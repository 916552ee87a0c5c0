"""`watch`."""

import errno
import os

import pytest
from tests.guest.support import put

from atoll.wire.frames import END, EVENT


class Watching:
    def __init__(self, client, **arguments):
        self.client = client
        self.channel = client.open("watch", **arguments)
        self.seen = []
        assert client.event(self.channel) == {"ready": True}

    def until(self, kind, path):
        """Read events up to one; those before it are in `seen`."""
        wanted = {"type": kind, "path": "/workspace/" + path if path else "/workspace"}
        while wanted not in self.seen:
            for event in self.client.event(self.channel)["events"]:
                self.seen.append(event)
        return [(event["type"], event["path"].removeprefix("/workspace/")) for event in self.seen]


def test_changes_in_a_directory_are_told_in_their_order(guest, client):
    put(guest, "old", b"x")
    watch = Watching(client, path=".")
    here = guest.workspace
    put(guest, "file", b"x")
    os.rename(os.path.join(here, "file"), os.path.join(here, "moved"))
    os.chmod(os.path.join(here, "old"), 0o600)
    os.remove(os.path.join(here, "moved"))
    events = watch.until("removed", "moved")
    expected = [
        ("created", "file"),
        ("modified", "file"),
        ("moved", "file"),
        ("created", "moved"),
        ("modified", "old"),
        ("removed", "moved"),
    ]
    assert events == expected


def test_without_recursion_nothing_below_is_told(guest, client):
    put(guest, "d/old")
    watch = Watching(client, path=".", recursive=False)
    put(guest, "d/new")
    put(guest, "end")
    assert ("created", "d/new") not in watch.until("created", "end")


def test_below_and_in_new_directories_everything_is_told(guest, client):
    put(guest, "a/b/old")
    watch = Watching(client, path=".", recursive=True)
    put(guest, "a/b/new")
    watch.until("created", "a/b/new")
    for number in range(20):
        put(guest, f"x{number}/y/z/file")
    for number in range(20):
        events = watch.until("created", f"x{number}/y/z/file")
        for path in (f"x{number}", f"x{number}/y", f"x{number}/y/z"):
            assert events.count(("created", path)) == 1, path
    put(guest, "x3/y/late")
    watch.until("created", "x3/y/late")


def test_a_directory_that_moves_is_told_under_its_new_name(guest, client):
    put(guest, "a/b/file")
    watch = Watching(client, path=".", recursive=True)
    os.rename(os.path.join(guest.workspace, "a"), os.path.join(guest.workspace, "c"))
    events = watch.until("created", "c/b/file")
    assert ("moved", "a") in events
    put(guest, "c/b/late")
    events = watch.until("created", "c/b/late")
    assert not any(path.startswith("a/") for _, path in events)


def test_our_own_temporary_files_are_not_told(guest, client):
    watch = Watching(client, path=".", recursive=True)
    other = guest.connect()
    other.upload("write", b"new", path="file")
    other.do("mkdir", path="end")
    assert watch.until("created", "end") == [("created", "file"), ("created", "end")]


def test_a_single_file_can_be_watched(guest, client):
    path = put(guest, "file", b"")
    watch = Watching(client, path="file")
    with open(path, "ab") as file:
        file.write(b"x")
    watch.until("modified", "file")
    os.remove(path)
    watch.until("removed", "file")


def test_the_end_of_the_watched_directory_is_told(guest, client):
    os.mkdir(os.path.join(guest.workspace, "d"))
    watch = Watching(client, path="d")
    os.rmdir(os.path.join(guest.workspace, "d"))
    watch.until("removed", "d")


def test_names_that_are_no_text_are_told(guest, client):
    watch = Watching(client, path=".")
    with open(os.path.join(guest.workspace.encode(), b"\xff"), "wb"):
        pass
    watch.until("created", "\udcff")


def test_closing_ends_it_well(client):
    watch = Watching(client, path=".")
    client.cancel(watch.channel)
    assert client.finish(watch.channel).ok == {}


def test_what_is_not_there_cannot_be_watched(client):
    assert client.do("watch", path="nowhere").error["errno"] == errno.ENOENT


def test_events_that_a_slow_client_loses_are_told_as_an_overflow(guest, client):
    """The kernel keeps a limited number; the guest keeps none."""
    watch = Watching(client, path=".")
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        queue = int(file.read())
    paths = [put(guest, letter * 200) for letter in "ab"]
    for number in range((1 << 20) // 200 + queue + 5000):
        os.utime(paths[number % 2])
    kinds = set()
    while "overflow" not in kinds:
        frame = client.receive()
        assert frame.kind == EVENT
        kinds |= {event["type"] for event in frame.json()["events"]}
        client.give(watch.channel, len(frame.payload))
    client.cancel(watch.channel)
    while client.receive().kind != END:
        pass


def test_watches_give_back_their_descriptors(guest, client):
    def descriptors():
        return len(os.listdir(f"/proc/{guest.process.pid}/fd"))

    before = descriptors()
    for _ in range(10):
        watch = Watching(client, path=".", recursive=True)
        client.cancel(watch.channel)
        client.finish(watch.channel)
    assert descriptors() == before


@pytest.mark.parametrize("count", [300])
def test_there_are_only_so_many_watches_and_that_is_told(client, count):
    for _ in range(count):
        channel = client.open("watch", path=".")
        frame = client.receive()
        assert frame.channel == channel
        if frame.kind == END:
            assert frame.json()["error"]["code"] == "busy"
            return
    with open("/proc/sys/fs/inotify/max_user_instances") as file:
        assert int(file.read()) > count
