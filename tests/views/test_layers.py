"""Views over the layers of earlier snapshots, with the same rules and with other ones; views that are passed on."""

import json
import os
import shutil
import socket

import pytest
from tests.views import trees
from tests.views.worlds import SANDBOX, USER, Failed, World

from atoll.engine import views
from atoll.engine.views import view as view_module
from atoll.engine.views.zones import Zone
from atoll.errors import Unsupported
from atoll.policy.rules import Matcher

MASKED = ("A", "B", "C")
FILES = {
    "docs/guide.md": "guide", "docs/secret.key": "SECRET", "work/edited": "as it was", "work/deleted": "deleted",
    "work/kept": "kept", "work/dir/one": "one", "work/dir/two": "two", "work/fixed": "fixed", "later": "later",
    "seen": "SECRET seen",
}  # fmt: skip
RULES = [
    ("**", "read"), ("/work/**", "write"), ("/output/**", "write"), ("seen", "view"),
    {"pattern": "*.key", "level": "none", "priority": 5}, {"pattern": "fixed", "level": "read", "priority": 5},
]  # fmt: skip
OTHER_RULES = [
    ("**", "write"), {"pattern": "/work/edited", "level": "view", "priority": 9},
    {"pattern": "/work/made", "level": "read", "priority": 9}, {"pattern": "docs", "level": "read", "priority": 9},
    {"pattern": "*.key", "level": "read", "priority": 10}, {"pattern": "kept", "level": "none", "priority": 9},
]  # fmt: skip


@pytest.fixture(params=MASKED)
def recipe(request):
    return request.param


class Story:
    """A sandbox's snapshots, one after the other, each restored in a sandbox of another user."""

    def __init__(self, recipe, place):
        self.recipe = recipe
        self.place = place
        self.source = trees.grow(f"{place}/source", FILES)
        self.before = trees.told(self.source)
        self.layers = []

    def go_on(self, rules=RULES, covers=0):
        number = len(self.layers)
        top = f"{self.place}/{number}"
        os.mkdir(top, 0o755)
        world = World(self.recipe, self.source, rules, top, lowers=self.layers, covers=covers, uid=SANDBOX + number)
        layer = world.upper if world.rootless else views.Layer(world.upper, world.uid)
        self.layers = [layer, *self.layers]
        return world


@pytest.fixture
def story(recipe, place):
    story = Story(recipe, place)
    yield story
    assert trees.told(story.source) == story.before


def work_on_it():
    """What an agent does between two snapshots."""
    write("work/edited", "edited")
    os.unlink("work/deleted")
    shutil.rmtree("work/dir")
    os.mkdir("work/dir")
    write("work/dir/three", "three")
    write("work/made", "made")
    write("output/result", "result")
    os.chmod("output/result", 0o755)
    os.symlink("result", "output/link")
    write("work/.wh.kept", "no whiteout")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"+")


def contents():
    found = {}
    for directory, _, names in os.walk("."):
        for name in names:
            path = os.path.relpath(f"{directory}/{name}")
            try:
                with open(path, encoding="ascii") as file:
                    found[path] = file.read()
            except PermissionError:
                found[path] = None
    return found


AFTER = {
    "docs/guide.md": "guide", "work/edited": "edited", "work/kept": "kept", "work/dir/three": "three",
    "work/fixed": "fixed", "later": "later", "seen": None, "work/made": "made", "output/result": "result",
    "output/link": "result", "work/.wh.kept": "no whiteout",
}  # fmt: skip


def test_a_snapshot_is_gone_on_with_under_the_same_rules(story):
    with story.go_on() as first:
        first.run(work_on_it)
        assert first.run(contents) == AFTER
    with story.go_on() as second:
        assert second.run(contents) == AFTER
        assert second.fails(append, "work/fixed") in ("EACCES", "EROFS")
        assert second.fails(append, "later") in ("EACCES", "EROFS")
        assert second.fails(append, "seen") in ("EACCES", "EROFS")
        for path in ("work/edited", "work/made", "output/result", "work/dir/three", "work/kept"):
            second.run(append, path)
        second.run(os.unlink, "work/made")
    with story.go_on() as third:
        now = {**AFTER, "work/edited": "edited+", "work/kept": "kept+", "work/dir/three": "three+",
               "output/result": "result+", "output/link": "result+"}  # fmt: skip
        del now["work/made"]
        assert third.run(contents) == now


def test_other_rules_judge_what_the_agent_has_made_of_the_source(story):
    with story.go_on() as first:
        first.run(work_on_it)
    with story.go_on(OTHER_RULES, covers=1) as second:
        assert second.run(contents) == {
            "docs/guide.md": "guide", "docs/secret.key": "SECRET", "work/edited": None, "work/dir/three": "three",
            "work/fixed": "fixed", "later": "later", "seen": "SECRET seen", "work/made": "made",
            "output/result": "result", "output/link": "result", "work/.wh.kept": "no whiteout",
        }  # fmt: skip
        for path in ("work/edited", "work/made", "docs/guide.md", "docs/secret.key"):
            assert second.fails(append, path) in ("EACCES", "EROFS")
        for path in ("later", "seen", "output/result", "work/fixed", "work/.wh.kept"):
            second.run(append, path)
        assert second.run(mode, "output/result") == 0o755


def mode(path):
    return os.lstat(path).st_mode & 0o777


def test_snapshots_go_on_after_a_change_of_rules(story):
    with story.go_on() as first:
        first.run(work_on_it)
    with story.go_on() as second:
        second.run(append, "work/made")
    with story.go_on(OTHER_RULES, covers=2) as third:
        third.run(append, "later")
        third.run(os.unlink, "work/.wh.kept")
        assert third.run(contents)["work/made"] == "made+"
        assert third.fails(append, "work/made") in ("EACCES", "EROFS")
    with story.go_on(OTHER_RULES, covers=2) as fourth:
        assert fourth.run(contents)["later"] == "later+"
        assert "work/.wh.kept" not in fourth.run(contents)
        assert fourth.fails(append, "work/made") in ("EACCES", "EROFS")
        fourth.run(append, "later")


def replace_directories():
    shutil.rmtree("work/dir")
    write("work/dir", "a file now")
    os.unlink("work/edited")
    os.mkdir("work/edited")
    write("work/edited/inside", "inside")
    os.unlink("work/deleted")
    os.symlink("../docs/guide.md", "work/deleted")


def test_what_has_become_something_else_is_judged_as_that(story):
    with story.go_on() as first:
        first.run(replace_directories)
    rules = [("**", "read"), {"pattern": "inside", "level": "write"}]
    with story.go_on(rules, covers=1) as second:
        found = second.run(contents)
        assert found["work/dir"] == "a file now"
        assert found["work/edited/inside"] == "inside"
        assert found["work/deleted"] == "guide"
        second.run(append, "work/edited/inside")
        assert second.fails(append, "work/dir") in ("EACCES", "EROFS")


SAFE = [("**", "read"), ("/output/**", "write"), ("/docs/made/**", "write"), ("seen", "view"),
        {"pattern": "*.key", "level": "none", "priority": 5}]  # fmt: skip


def make_output():
    write("output/result", "result")
    os.mkdir("output/dir")
    write("docs/made/page", "page")


def test_a_source_without_writable_files_goes_on_too(story):
    """Its mask is in two parts."""
    with story.go_on(SAFE) as first:
        if story.recipe == "A":
            assert first.facts["parts"] == ("own", "rest")
        first.run(make_output)
        assert first.fails(append, "docs/guide.md") in ("EACCES", "EROFS")
        assert first.fails(write, "docs/new", "x") in ("EACCES", "EROFS")
    with story.go_on(SAFE) as second:
        found = second.run(contents)
        assert found.keys() == (FILES.keys() - {"docs/secret.key"}) | {"output/result", "docs/made/page"}
        assert found["docs/made/page"] == "page"
        second.run(append, "output/result")
        second.run(os.rmdir, "output/dir")
        assert second.fails(os.unlink, "work/kept") in ("EACCES", "EROFS", "EPERM")
        assert second.fails(os.rename, "docs/made", "docs/moved") in ("EACCES", "EROFS", "EPERM", "EBUSY", "EXDEV")
    with story.go_on([("**", "read")], covers=2) as third:
        assert third.run(contents)["output/result"] == "result+"
        assert third.fails(append, "output/result") in ("EACCES", "EROFS")


def test_an_old_kernel_does_not_change_rules_over_layers(place):
    story = Story("A-old", place)
    with story.go_on() as first:
        first.run(work_on_it)
    with story.go_on() as second:
        assert second.run(contents) == AFTER
    with pytest.raises(Failed, match=r"needs Linux 6\.16"), story.go_on(OTHER_RULES, covers=2):
        pass


# Passed on


def hand_over(view):
    """To another process and back, as a curator does it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    text = json.dumps(view.to_json())
    socket.send_fds(ours, [text.encode()], [view.mask])
    view.close()
    data, fds, _, _ = socket.recv_fds(theirs, 1 << 16, 1)
    return view_module.from_json(json.loads(data), fds[0])


def test_a_view_can_be_passed_on(place, recipe):
    source = trees.grow(f"{place}/source", FILES)
    with World(recipe, source, RULES, place, through=hand_over) as world:
        assert world.run(contents)["docs/guide.md"] == "guide"
        assert world.fails(append, "work/fixed") in ("EACCES", "EROFS")
        world.run(append, "work/kept")


def test_a_view_is_the_same_when_it_has_been_passed_on(place):
    source = trees.grow(f"{place}/source", FILES)
    view = views.prepare(views.compile_tree(source, Matcher(RULES)), recipe="A")
    again = views.from_json(json.loads(json.dumps(view.to_json())), view.mask)
    assert again == view
    zoned = view._replace(zones=(Zone("", True), Zone("a", False)), recipe="B")
    assert views.from_json(json.loads(json.dumps(zoned.to_json())), view.mask) == zoned
    view.close()


def test_one_mask_serves_sandboxes_of_different_users(place):
    source = trees.grow(f"{place}/source", FILES)
    view = views.prepare(views.compile_tree(source, Matcher(RULES)), recipe="A")
    worlds = []
    for number in range(3):
        top = f"{place}/{number}"
        os.mkdir(top, 0o755)
        worlds.append(World("A", source, RULES, top, uid=SANDBOX + number, through=lambda made: made.close() or view))
    with worlds[0] as first, worlds[1] as second, worlds[2] as third:
        first.run(append, "work/kept")
        second.run(write, "work/kept", "second")
        assert first.run(contents)["work/kept"] == "kept+"
        assert second.run(contents)["work/kept"] == "second"
        assert third.run(contents)["work/kept"] == "kept"
        assert first.run(owner, "work/kept") == 1000
    view.close()


def owner(path):
    return os.lstat(path).st_uid


def test_a_mask_can_be_made_for_one_sandbox_where_ids_cannot_be_mapped(place):
    source = trees.grow(f"{place}/source", FILES)

    def private(view):
        view.close()
        return views.prepare(views.compile_tree(source, Matcher(RULES)), recipe="A", uid=SANDBOX)

    with World("A", source, RULES, place, through=private) as world:
        world.run(append, "work/kept")
        assert world.fails(append, "work/fixed") == "EACCES"


# Plans


def test_the_recipe_follows_from_what_the_host_allows():
    assert views.choose(rootless=False, has_subids=False, can_overlay=True) == "A"
    assert views.choose(rootless=False, has_subids=True, can_overlay=False) == "D"
    assert views.choose(rootless=True, has_subids=True, can_overlay=True) == "C"
    assert views.choose(rootless=True, has_subids=False, can_overlay=True) == "B"
    with pytest.raises(Unsupported, match="cannot be enforced"):
        views.choose(rootless=True, has_subids=True, can_overlay=False)


def test_this_host_takes_masks_as_root():
    assert views.can_mask(rootless=False)
    assert views.can_overlay(rootless=False)
    assert views.has_subids(), "root has every id"


def test_landlock_is_told_where_may_be_written(place):
    source = trees.grow(f"{place}/source", FILES)
    rules = [*RULES, {"pattern": "later", "level": "write", "kind": "file"}]
    tree = views.compile_tree(source, Matcher(rules))
    assert set(views.writable_places(tree)) == {"work", "output", "later"}
    assert views.writable_places(views.compile_tree(source, Matcher([("**", "write")]))) == ("",)
    assert views.writable_places(views.compile_tree(source, Matcher([("**", "read")]))) == ()


def test_what_needs_too_many_mounts_is_refused(place, monkeypatch):
    from atoll.engine.views import zones

    monkeypatch.setattr(zones, "MOST", 3)
    source = trees.grow(f"{place}/source", {f"file{number}": "x" for number in range(6)})
    tree = views.compile_tree(source, Matcher([("**", "write"), ("file[2-5]", "read")]))
    with pytest.raises(Unsupported, match="5 mounts"):
        zones.plan(tree)
    zones.plan(views.compile_tree(source, Matcher([("**", "write"), ("file[45]", "read")])))


@pytest.mark.parametrize("recipe", ["B", "C"])
def test_links_that_no_mount_protects_are_told(place, recipe):
    source = trees.grow(f"{place}/source", {"a": "a", "link": ("a",)})
    with World(recipe, source, [("**", "write"), ("link", "read")], place) as world:
        assert world.facts["unenforced"] == ("link",)


def test_as_root_a_link_is_protected_by_its_owner(place):
    source = trees.grow(f"{place}/source", {"a": "a", "link": ("a",)})
    with World("A", source, [("**", "write"), ("link", "read")], place) as world:
        assert world.facts["unenforced"] == ()
        assert world.fails(os.unlink, "link") == "EPERM"
        world.run(os.unlink, "a")


@pytest.mark.parametrize("recipe", ["B", "C"])
def test_all_that_an_ordinary_users_sandbox_leaves_is_that_users(place, recipe):
    source = trees.grow(f"{place}/source", FILES)
    with World(recipe, source, RULES, place) as world:
        world.run(work_on_it)
        upper = world.upper
    owners = {os.lstat(f"{directory}/{name}").st_uid for directory, names, others in os.walk(upper)
              for name in [*names, *others, "."]}  # fmt: skip
    assert owners == {USER}
    # Without anybody's help.
    assert os.waitstatus_to_exitcode(os.waitpid(remove_as_user(upper), 0)[1]) == 0
    assert os.listdir(upper) == []


def remove_as_user(directory):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            for name in os.listdir(directory):
                shutil.rmtree(f"{directory}/{name}")
            code = 0
        finally:
            os._exit(code)
    return pid
