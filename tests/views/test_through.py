"""What comes through a view: every kind of file, every name, and nothing that only looks like something."""

import os
import socket
import stat

import pytest
from tests.views import trees
from tests.views.worlds import MOUNTED, RECIPES, USER, Failed, World

from atoll.engine import views
from atoll.engine.views import farm
from atoll.errors import Unsupported
from atoll.policy.ignores import Ignores
from atoll.policy.rules import Matcher

ALL = [("**", "read")]
ODD_NAMES = [
    "new\nline", "tab\tspace ", "quote\"'`$(x)", "comma,colon:back\\slash", "*?[a]", "ü☃", "\udcff\udcfe", "-rf", "=",
    "%s", ".wh.x", ".wh..wh..opq", ".wh...", "#0", "...", " ",
]  # fmt: skip


@pytest.fixture(params=RECIPES)
def recipe(request):
    return request.param


@pytest.fixture(params=MOUNTED)
def mounted(request):
    return request.param


def grow(place, files):
    return trees.grow(f"{place}/source", files)


def shape(path="."):
    """Every path of the view with its type, permission bits for the sandbox's user, size and content."""
    found = {}
    for directory, names, others in os.walk(os.fsencode(path)):
        for name in [*names, *others]:
            full = os.path.join(directory, name)
            status = os.lstat(full)
            content = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(full)
            elif stat.S_ISREG(status.st_mode) and os.access(full, os.R_OK):
                try:
                    with open(full, "rb") as file:
                        content = file.read()
                except FileNotFoundError:
                    content = "gone"
            key = os.fsdecode(os.path.relpath(full, os.fsencode(path)))
            kind = stat.filemode(status.st_mode)[0]
            found[key] = (kind, os.access(full, os.X_OK, follow_symlinks=False), status.st_size, content)
    return found


def test_odd_names_come_through(place, recipe):
    source = grow(place, {f"{name}/{name}": name.encode(errors="surrogateescape") for name in ODD_NAMES})
    with World(recipe, source, ALL, place) as world:
        seen = world.run(shape)
    for name in ODD_NAMES:
        assert seen[f"{name}/{name}"][3] == os.fsencode(name)
    assert len(seen) == 2 * len(ODD_NAMES)


def special_tree(place):
    source = grow(place, {"dir/": "", "run.sh": "#!/bin/sh\necho ran", "empty": b"", "plain": "plain", "linked": "both",
                          "to-plain": ("plain",), "to-nowhere": ("missing",), "to-root": ("/etc/hostname",),
                          "to-hidden": ("dark/secret",), "dark/secret": "SECRET"})  # fmt: skip
    os.chmod(f"{source}/run.sh", 0o750)
    os.link(f"{source}/linked", f"{source}/dir/other-name")
    os.mkfifo(f"{source}/pipe", 0o666)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{source}/socket")
    os.mknod(f"{source}/whiteout", stat.S_IFCHR | 0o666, os.makedev(0, 0))
    os.mknod(f"{source}/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with open(f"{source}/sparse", "wb") as file:
        file.seek(1 << 30)
        file.write(b"end")
    for name in ("pipe", "socket", "linked", "run.sh", "sparse"):
        os.chown(f"{source}/{name}", USER, USER)
    return source


def kinds():
    found = {}
    for name in os.listdir("."):
        found[name] = stat.filemode(os.lstat(name).st_mode)[0]
    return found


def run_it():
    pid = os.posix_spawn("./run.sh", ["./run.sh"], {"PATH": "/bin"})
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def sparse_blocks():
    fd = os.open("sparse", os.O_RDONLY)
    status = os.fstat(fd)
    return status.st_size, os.lseek(fd, 0, os.SEEK_DATA), os.pread(fd, 3, 1 << 30)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def lookup(path):
    return os.stat(path).st_size


def readlink(path):
    return os.readlink(path)


def test_every_kind_of_file_comes_through_but_devices(place, recipe):
    source = special_tree(place)
    with World(recipe, source, [*ALL, ("dark", "none")], place) as world:
        assert world.run(kinds) == {
            "dir": "d", "run.sh": "-", "empty": "-", "plain": "-", "linked": "-", "to-plain": "l", "to-nowhere": "l",
            "to-root": "l", "to-hidden": "l", "pipe": "p", "socket": "s", "sparse": "-",
        }  # fmt: skip
        assert world.run(run_it) == 0
        assert world.run(read, "empty") == b""
        assert world.run(read, "to-plain") == b"plain"
        assert world.run(read, "linked") == world.run(read, "dir/other-name") == b"both"
        assert world.run(readlink, "to-root") == "/etc/hostname"
        assert world.fails(read, "to-nowhere") == "ENOENT"
        assert world.fails(lookup, "to-hidden") == "ENOENT"
        size, data, end = world.run(sparse_blocks)
        assert (size, end) == ((1 << 30) + 3, b"end")
        assert data > 0, "the hole is a hole"


def connect():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("socket")


def test_nobody_of_the_host_is_at_the_other_end_of_a_socket_or_pipe(place, mounted):
    source = grow(place, {"a": "a"})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{source}/socket")
        os.chmod(f"{source}/socket", 0o666)
        listener.listen()
        os.mkfifo(f"{source}/pipe")
        os.chmod(f"{source}/pipe", 0o666)
        reader = os.open(f"{source}/pipe", os.O_RDWR | os.O_NONBLOCK)
        with World(mounted, source, [("**", "write")], place) as world:
            assert world.fails(connect) == "ECONNREFUSED"
            world.run(write_pipe)
            with pytest.raises(BlockingIOError):
                os.read(reader, 10)
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(f"{source}/socket")
        os.close(reader)


def write_pipe():
    fd = os.open("pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(fd, b"hello")


def test_a_link_that_may_only_be_seen_does_not_tell_where_it_leads(place, recipe):
    source = grow(place, {"link": ("somewhere/secret",), "other": ("somewhere/open",)})
    with World(recipe, source, [*ALL, ("/link", "view")], place) as world:
        assert world.run(readlink, "link") == "?" * len("somewhere/secret")
        assert world.run(readlink, "other") == "somewhere/open"


def test_directories_that_rules_name_are_made(place, recipe):
    source = grow(place, {"a/file": "a", "taken": "a file", "there/old": "old"})
    rules = [*ALL, ("/output/**", "write"), ("/a/b/c/**", "write"), ("/taken/**", "write"), ("/x/*/y/**", "write"),
             ("*.tmp", "write"), {"pattern": "logs", "level": "write", "kind": "directory"}, ("/there/**", "write"),
             ("/gone/**", "write"), {"pattern": "gone", "level": "none", "priority": 1}]  # fmt: skip
    with World(recipe, source, rules, place) as world:
        seen = world.run(shape)
        assert {path for path, (kind, *_) in seen.items() if kind == "d"} == {
            "a", "a/b", "a/b/c", "output", "logs", "there",
        }  # fmt: skip
        for path in ("output", "a/b/c", "logs", "there"):
            world.run(make, f"{path}/made")
        for path in ("a", "a/b", "."):
            assert world.fails(make, f"{path}/made") in ("EACCES", "EROFS")
    assert sorted(os.listdir(source)) == ["a", "taken", "there"]


def make(path):
    with open(path, "x", encoding="ascii") as file:
        file.write("made")


def test_ignored_paths_do_not_exist(place, recipe):
    source = grow(place, {"keep.py": "k", "drop.pyc": "d", "cache/x": "x", "sub/drop.pyc": "d", "sub/keep": "k"})
    with World(recipe, source, ALL, place, ignores=Ignores(["*.pyc", "cache/"])) as world:
        assert set(world.run(shape)) == {"keep.py", "sub", "sub/keep"}


def test_what_its_owner_may_not_read_is_for_the_rules_to_decide_as_root(place):
    source = grow(place, {"closed": "closed", "seen": "SECRET"})
    for name in ("closed", "seen"):
        os.chmod(f"{source}/{name}", 0)
    for recipe in ("A", "D"):
        top = f"{place}/{recipe}"
        os.mkdir(top, 0o755)
        with World(recipe, source, [("closed", "read"), ("seen", "view")], top) as world:
            assert world.run(read, "closed") == b"closed"
            assert world.fails(read, "seen") == "EACCES"


@pytest.mark.parametrize("recipe", ["B", "B-links", "C"])
def test_without_root_nobody_reads_what_the_maker_cannot(place, recipe):
    source = grow(place, {"foreign": "SECRET of root", "plain": "plain", "closed/file": "x"})
    os.chown(f"{source}/foreign", 0, 0)
    os.chmod(f"{source}/foreign", 0o600)
    os.chown(f"{source}/closed", 0, 0)
    os.chmod(f"{source}/closed", 0o700)
    with World(recipe, source, ALL, place) as world:
        assert world.run(read, "plain") == b"plain"
        assert world.fails(read, "foreign") == "EACCES"
        assert world.run(os.listdir, "closed") == []


@pytest.mark.parametrize("namespace", ["trusted", "user"])
def test_what_looks_like_overlay_state_in_the_source_is_not(place, recipe, namespace):
    source = grow(place, {"file": "its own", "other": "another", "dir/inside": "inside", "secret": "SECRET",
                          "small": b""})  # fmt: skip
    for path, name, value in (
        ("file", "metacopy", b""), ("file", "redirect", b"/secret"), ("dir", "opaque", b"y"), ("dir", "redirect", b"/"),
        ("dir", "opaque", b"x"), ("small", "whiteout", b"y"), (".", "opaque", b"x"),
    ):  # fmt: skip
        os.setxattr(f"{source}/{path}", f"{namespace}.overlay.{name}", value)
    before = trees.told(source)
    with World(recipe, source, [*ALL, ("secret", "none")], place) as world:
        assert world.run(read, "file") == b"its own"
        assert world.run(read, "dir/inside") == b"inside"
        assert world.run(os.listdir, "dir") == ["inside"]
        assert sorted(world.run(os.listdir, ".")) == ["dir", "file", "other", "small"]
    assert trees.told(source) == before


# A source that the host goes on changing


def test_what_the_host_makes_later_is_not_seen(place, recipe):
    source = grow(place, {"dir/file": "old", "gone": "gone", "moved/secret.key": "SECRET", "edited": "one"})
    with World(recipe, source, [*ALL, {"pattern": "*.key", "level": "none", "priority": 1}], place) as world:
        trees.grow(source, {"dir/new": "new", "top": "top", "dir/late.key": "SECRET"})
        os.unlink(f"{source}/gone")
        os.rename(f"{source}/moved/secret.key", f"{source}/moved/open.txt")
        with open(f"{source}/edited", "w", encoding="ascii") as file:
            file.write("two, and longer")
        seen = world.run(shape)
        assert {"dir/new", "top", "dir/late.key", "moved/open.txt", "moved/secret.key"}.isdisjoint(seen)
        assert world.run(read, "dir/file") == b"old"
        # A copy, or a link, has what was there; else what is seen is the source's.
        assert world.run(read, "edited") == b"two, and longer"
        if recipe in ("A", "B", "C"):
            assert world.fails(read, "gone") in ("EIO", "ENOENT", "ESTALE")
            assert seen["gone"][2:] == (4, "gone"), "its name is still there"
        else:
            assert world.run(read, "gone") == b"gone"


def test_a_file_that_the_host_replaces_by_a_link_or_a_directory_leads_nowhere(place, recipe):
    source = grow(place, {"file": "file", "dir/inside": "inside", "hidden/secret": "SECRET", "other/x": "x"})
    os.mkdir(f"{place}/outside", 0o755)
    trees.grow(f"{place}/outside", {"inside": "SECRET outside"})
    with World(recipe, source, [*ALL, ("hidden", "none")], place) as world:
        os.unlink(f"{source}/file")
        os.symlink("hidden/secret", f"{source}/file")
        os.rename(f"{source}/dir", f"{source}/was")
        os.symlink(f"{place}/outside", f"{source}/dir")
        for path in ("file", "dir/inside"):
            try:
                assert b"SECRET" not in world.run(read, path)
            except OSError:
                continue
        assert world.run(read, "other/x") == b"x", "the control"


# The judge


def test_a_tree_tells_every_path_with_its_level(place):
    source = special_tree(place)
    tree = views.compile_tree(source, Matcher([*ALL, ("dark", "none"), ("plain", "view"), ("dir/**", "write")]))
    told = {path.path: (path.kind, path.level) for path in tree.paths()}
    assert told["plain"] == ("file", "view")
    assert told["dir/other-name"] == ("file", "write")
    assert told["dark"] == ("directory", "none")
    assert told["to-hidden"] == ("symlink", "read")
    assert told["pipe"] == ("fifo", "read")
    assert told["null"] == ("other", "none")


def test_a_directory_is_visible_when_anything_below_it_is(place):
    source = grow(place, {"a/b/c/deep.txt": "deep", "a/x/hidden": "h", "e/": ""})
    tree = views.compile_tree(source, Matcher([("deep.txt", "read")]))
    assert {directory.path for directory in tree.visible()} == {"", "a", "a/b", "a/b/c"}


def test_a_source_that_is_no_directory_is_an_error(place):
    trees.grow(f"{place}/source", {"file": "x"})
    for path in ("missing", "source/file"):
        with pytest.raises(OSError, match=r"No such|Not a directory"):
            views.compile_tree(f"{place}/{path}", Matcher(ALL))


def test_what_is_mounted_in_a_source_is_not_looked_into(place):
    from atoll.engine import kernel

    source = grow(place, {"a": "a", "mounted/": ""})
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            kernel.mount("x", f"{source}/mounted", "tmpfs")
            os.mkdir(f"{source}/mounted/inside")
            tree = views.compile_tree(source, Matcher(ALL))
            code = 0 if {path.path for path in tree.paths()} == {"a", "mounted"} else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_ordinary_user_is_told_of_mounts_below_a_source(place):
    from atoll.engine import kernel

    source = grow(place, {"a": "a", "mounted/": ""})
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            kernel.unshare(kernel.CLONE_NEWNS)
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
            kernel.mount("x", f"{source}/mounted", "tmpfs")
            with pytest.raises(Failed, match="something is mounted below"), World("B", source, ALL, place):
                pass
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_farm_is_refused_where_it_protects_nothing(place):
    source = grow(place, {"a": "a"})
    tree = views.compile_tree(source, Matcher(ALL))
    os.mkdir(f"{place}/farm")
    for users in (farm.Users(5, 5), farm.Users(0, 5), farm.Users(5, 0)):
        with pytest.raises(Unsupported, match="two users"):
            farm.plant(tree, source, f"{place}/farm", users)
    with pytest.raises(Unsupported, match=r"farm\.plant"):
        views.prepare(tree, recipe="D")
    farm.plant(tree, source, f"{place}/farm", farm.Users(5, 6))
    assert os.listdir(f"{place}/farm") == ["a"]


def test_a_farm_links_only_what_is_safe_to_link(place):
    names = ["plain", "open", "private", "script", "own"]
    source = trees.grow(f"{place}/source", dict.fromkeys(names, "x"), owner=0)
    for name, mode in (("open", 0o666), ("private", 0o600), ("script", 0o744)):
        os.chmod(f"{source}/{name}", mode)
    os.chown(f"{source}/own", 5, 5)
    os.mkdir(f"{place}/farm")
    farm.plant(views.compile_tree(source, Matcher(ALL)), source, f"{place}/farm", farm.Users(5, 6))
    linked = {name for name in names if os.path.samefile(f"{source}/{name}", f"{place}/farm/{name}")}
    assert linked == {"plain"}


def test_a_very_deep_tree_is_seen_as_far_as_a_path_reaches(place):
    source = grow(place, {"a": "a"})
    fd = os.open(source, os.O_RDONLY)
    depth = 30
    for _ in range(depth):
        os.mkdir("d" * 200, dir_fd=fd)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    tree = views.compile_tree(source, Matcher(ALL))
    assert 15 < len(tree.directories) <= depth + 1
    # The mask can be made of it.
    views.prepare(tree, recipe="A").close()
