"""The table of permissions, as operations by classes of paths, in views of every recipe, each with its control."""

import ctypes
import errno
import mmap
import os
import shutil
import struct

import pytest
from tests.views import trees
from tests.views.worlds import RECIPES, World, fresh

FILES = {
    "readme.md": "read me",
    "code/main.py": "read main",
    "code/hidden.key": "SECRET hidden",
    "code/seen.bin": "SECRET seen",
    "code/open.txt": "write open",
    "hidden/inside.txt": "SECRET inside",
    "hidden/deep/inside.txt": "SECRET deep",
    "work/own.txt": "write own",
    "work/fixed.txt": "read fixed",
    "work/seen.bin": "SECRET work seen",
    "work/hidden.key": "SECRET work hidden",
    "work/sub/other.txt": "write other",
    "work/sub/deep/fixed.txt": "read deep",
    "work/sub/deep/hidden.key": "SECRET",
    "work/closed/page.txt": "read page",
    "free/own.txt": "write free",
    "free/dir/more.txt": "write more",
}
RULES = [
    ("**", "read"),
    ("hidden", "none"),
    ("/work/**", "write"),
    ("/free/**", "write"),
    ("/output/**", "write"),
    {"pattern": "/code/open.txt", "level": "write", "kind": "file"},
    {"pattern": "/work/closed/**", "level": "read", "priority": 3},
    {"pattern": "fixed.txt", "level": "read", "priority": 5},
    {"pattern": "*.bin", "level": "view", "priority": 5},
    {"pattern": "*.key", "level": "none", "priority": 5},
]
HIDDEN = ("code/hidden.key", "hidden", "hidden/inside.txt", "work/hidden.key", "work/sub/deep/hidden.key")
# Hidden ones in a writable directory: the sandbox may make a file of that name, and does not learn of the other.
FREE_NAMES = ("work/hidden.key", "work/sub/deep/hidden.key")
SEEN = ("code/seen.bin", "work/seen.bin")
READ = ("readme.md", "code/main.py", "work/fixed.txt", "work/sub/deep/fixed.txt", "work/closed/page.txt")
WRITE = ("code/open.txt", "work/own.txt", "work/sub/other.txt", "free/own.txt", "free/dir/more.txt")
READ_DIRECTORIES = ("", "code", "work/closed")
KEPT_DIRECTORIES = ("code", "work/closed", "work/sub", "work/sub/deep")
DENIED = {"ENOENT", "EACCES", "EPERM", "EROFS", "EBUSY", "EXDEV"}


class _World(World):
    """Knows the source as it was."""

    def check_source(self):
        assert trees.told(self.source) == self.before


@pytest.fixture(scope="module", params=RECIPES)
def world(request, lasting_place):
    top = fresh(f"{lasting_place}/{request.param}")
    source = trees.grow(f"{top}/source", FILES)
    world = _World(request.param, source, RULES, top)
    world.before = trees.told(source)
    with world:
        yield world
    assert trees.told(source) == world.before


@pytest.fixture(params=["user", "root"])
def as_root(request):
    return request.param == "root"


def picture():
    """What the view shows of everything protected."""
    found = {}
    for path in (*HIDDEN, *SEEN, *READ, *KEPT_DIRECTORIES):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            found[path] = None
            continue
        content = None
        if path in READ:
            with open(path, encoding="ascii") as file:
                content = file.read()
        is_directory = path in KEPT_DIRECTORIES
        times = () if is_directory else (status.st_size, status.st_mtime_ns)
        found[path] = (status.st_mode, *times, content)
    return found


def outcomes(attempt, paths):
    """The name of the errno with which an attempt fails on each path; None where it succeeds."""
    found = {}
    for path in paths:
        try:
            attempt(path)
            found[path] = None
        except OSError as error:
            found[path] = errno.errorcode[error.errno]
    return found


def expect_denied(world, as_root, attempt, paths, allowed=DENIED):
    before = world.run(picture)
    found = world.run(outcomes, attempt, paths, as_root=as_root)
    assert found.keys() == set(paths)
    assert set(found.values()) <= allowed, f"{attempt.__name__}: {found}"
    assert world.run(picture) == before
    world.check_source()


def expect_allowed(world, as_root, attempt, paths):
    found = world.run(outcomes, attempt, paths, as_root=as_root)
    assert set(found.values()) == {None}, f"{attempt.__name__}: {found}"


# Looking


def look(path):
    return os.lstat(path).st_size


def test_what_is_hidden_does_not_exist(world, as_root):
    assert set(world.run(outcomes, look, HIDDEN, as_root=as_root).values()) == {"ENOENT"}
    expect_allowed(world, as_root, look, (*SEEN, *READ, *WRITE))


def listing(path):
    return sorted(os.listdir(path))


def test_listings_have_everything_but_what_is_hidden(world, as_root):
    assert world.run(listing, "code", as_root=as_root) == ["main.py", "open.txt", "seen.bin"]
    assert {"code", "free", "output", "readme.md", "work"} == set(world.run(listing, ".", as_root=as_root))
    assert world.run(listing, "work/sub/deep", as_root=as_root) == ["fixed.txt"]


def size_and_time(path):
    status = os.lstat(path)
    return status.st_size, status.st_mtime_ns


def test_sizes_and_times_are_those_of_the_source(world, as_root):
    for path in (*SEEN, *READ):
        status = os.lstat(f"{world.source}/{path}")
        assert world.run(size_and_time, path, as_root=as_root) == (status.st_size, status.st_mtime_ns)


# Reading


def read(path):
    with open(path, encoding="latin-1") as file:
        return file.read()


def read_by_map(path):
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as found:
        return found[:].decode("latin-1")


def read_again_through_proc(path):
    fd = os.open(path, os.O_PATH)
    with open(f"/proc/self/fd/{fd}", encoding="latin-1") as file:
        return file.read()


def read_through_a_link(path):
    link = f"output/link-{os.getpid()}"
    os.symlink(os.path.abspath(path), link)
    try:
        return read(link)
    finally:
        os.unlink(link)


def read_by_truncating_another(path):
    """copy_file_range and sendfile open nothing themselves, but a descriptor is needed all the same."""
    source = os.open(path, os.O_RDONLY)
    target = os.open(f"output/copy-{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
    os.sendfile(target, source, 0, 100)
    return os.pread(target, 100, 0).decode("latin-1")


READERS = (read, read_by_map, read_again_through_proc, read_through_a_link, read_by_truncating_another)


@pytest.mark.parametrize("reader", READERS)
def test_what_may_be_read_is_read(world, as_root, reader):
    for path in (*READ, *WRITE):
        assert world.run(reader, path, as_root=as_root) == FILES[path]


@pytest.mark.parametrize("reader", READERS)
def test_what_may_only_be_seen_or_is_hidden_is_not_read(world, as_root, reader):
    denied = (*HIDDEN, *SEEN)
    if as_root and world.recipe.startswith("B"):
        # A root with one user has all rights over its files: what it reads there is a hole.
        for path in SEEN:
            assert world.run(reader, path, as_root=True) == "\0" * len(FILES[path])
        denied = HIDDEN
    expect_denied(world, as_root, reader, denied)


# Changing a file


def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"more")


def open_both_ways(path):
    os.close(os.open(path, os.O_RDWR))


def truncate(path):
    os.truncate(path, 0)


def truncate_at_open(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def truncate_read_only(path):
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


def change_mode(path):
    os.chmod(path, 0o666)


def change_times(path):
    os.utime(path, (1, 1))


def touch(path):
    os.utime(path)


def set_attribute(path):
    os.setxattr(path, "user.note", b"mine")


def pretend_opaque(path):
    os.setxattr(path, "user.overlay.opaque", b"y")


def pretend_redirect(path):
    os.setxattr(path, "user.overlay.redirect", b"/hidden/inside.txt")


def set_trusted(path):
    os.setxattr(path, "trusted.overlay.redirect", b"/hidden/inside.txt")


def write_by_map(path):
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 0) as found:
        found[0:1] = b"!"


def write_again_through_proc(path):
    fd = os.open(path, os.O_PATH)
    append(f"/proc/self/fd/{fd}")


def write_after_mode(path):
    os.chmod(path, 0o777)
    append(path)


def replace_by_rename(path):
    own = f"free/new-{os.getpid()}"
    with open(own, "w", encoding="ascii") as file:
        file.write("replaced")
    try:
        os.rename(own, path)
    except OSError:
        os.unlink(own)
        raise


def allocate(path):
    fd = os.open(path, os.O_WRONLY)
    os.posix_fallocate(fd, 0, 4096)


CHANGERS = (append, open_both_ways, truncate, truncate_at_open, truncate_read_only, change_mode, change_times, touch,
            set_attribute, write_by_map, write_again_through_proc, write_after_mode, allocate)  # fmt: skip


@pytest.mark.parametrize("changer", [*CHANGERS, pretend_opaque, pretend_redirect, set_trusted, replace_by_rename])
def test_protected_files_are_not_changed(world, as_root, changer):
    # For the other names see test_a_hidden_name_can_be_taken_and_gives_nothing_away.
    hidden = [path for path in HIDDEN if changer is not replace_by_rename or path not in FREE_NAMES]
    expect_denied(world, as_root, changer, (*hidden, *SEEN, *READ))


def make_own(path):
    with open(path, "w", encoding="ascii") as file:
        file.write("content")


@pytest.mark.parametrize("changer", CHANGERS)
def test_writable_files_are_changed(world, as_root, changer):
    expect_allowed(world, as_root, changer, WRITE)
    # They are needed again as they were.
    for path in WRITE:
        world.run(restore, path, FILES[path])


def restore(path, content):
    with open(path, "w", encoding="ascii") as file:
        file.write(content)
    os.chmod(path, 0o644)


# Names


def unlink(path):
    os.unlink(path)


def rename_away(path):
    os.rename(path, f"output/away-{os.path.basename(path)}-{os.getpid()}")


def rename_beside(path):
    os.rename(path, path + ".old")


_libc = ctypes.CDLL(None, use_errno=True)


def _exchange(one, other):
    if _libc.renameat2(-100, one.encode(), -100, other.encode(), 2) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def exchange(path):
    make_own("free/exchanged")
    try:
        _exchange(path, "free/exchanged")
    finally:
        os.unlink("free/exchanged")


def exchange_beside(path):
    own = f"{os.path.dirname(path)}/exchanged"
    make_own(own)
    try:
        _exchange(path, own)
    finally:
        os.unlink(own)


def hard_link(path):
    """A link alone changes nothing, and is gone again."""
    target = f"output/linked-{os.getpid()}"
    os.link(path, target)
    try:
        append(target)
    finally:
        os.unlink(target)


def hard_link_beside(path):
    target = path + ".linked"
    os.link(path, target)
    try:
        append(target)
    finally:
        os.unlink(target)


NAMERS = (unlink, rename_away, rename_beside, exchange, exchange_beside, hard_link, hard_link_beside)


@pytest.mark.parametrize("namer", NAMERS)
def test_protected_names_stay(world, as_root, namer):
    expect_denied(world, as_root, namer, (*HIDDEN, *SEEN, *READ))


@pytest.mark.parametrize("namer", NAMERS)
def test_own_names_can_be_changed(world, as_root, namer):
    # With one user each of these directories is a mount, and nothing is renamed or linked from one to another.
    near = {rename_away: "output", hard_link: "output", exchange: "free"}.get(namer)
    directories = [near] if near and world.rootless else ["work", "free", "output"]
    paths = [f"{directory}/mine-{namer.__name__}-{as_root}" for directory in directories]
    expect_allowed(world, as_root, make_own, paths)
    expect_allowed(world, as_root, namer, paths)


def replace_hidden(path):
    make_own(path)
    found = read(path)
    os.unlink(path)
    return found


def test_a_hidden_name_can_be_taken_and_gives_nothing_away(world, as_root):
    for path in FREE_NAMES:
        assert world.run(replace_hidden, path, as_root=as_root) == "content"
        assert world.fails(look, path) == "ENOENT"
    world.check_source()


# Directories


def create_in(path):
    make_own(os.path.join(path, "created"))


def make_directory_in(path):
    os.mkdir(os.path.join(path, "made"))


def make_link_in(path):
    os.symlink("/etc", os.path.join(path, "made"))


def make_pipe_in(path):
    os.mkfifo(os.path.join(path, "made"))


def move_into(path):
    own = f"output/moved-{os.getpid()}"
    make_own(own)
    try:
        os.rename(own, os.path.join(path, "moved"))
    except OSError:
        os.unlink(own)
        raise


@pytest.mark.parametrize("maker", [create_in, make_directory_in, make_link_in, make_pipe_in, move_into])
def test_nothing_is_made_in_a_directory_that_may_only_be_read(world, as_root, maker):
    expect_denied(world, as_root, maker, READ_DIRECTORIES)
    # The control: in a directory of one's own.
    base = f"output/{maker.__name__}-{as_root}"
    world.run(os.mkdir, base, as_root=as_root)
    assert world.fails(maker, base, as_root=as_root) is None


def remove_directory(path):
    os.rmdir(path)


def remove_tree(path):
    shutil.rmtree(path)


def rename_directory(path):
    os.rename(path, path + "-old")


def rename_directory_over(path):
    own = f"free/directory-{os.getpid()}"
    os.mkdir(own)
    try:
        os.rename(own, path)
    except OSError:
        os.rmdir(own)
        raise


def exchange_directory(path):
    own = f"free/directory-{os.getpid()}"
    os.mkdir(own)
    try:
        _exchange(path, own)
    finally:
        os.rmdir(own)


def replace_with_link(path):
    os.rename(path, path + "-old")
    os.symlink("/etc", path)


@pytest.mark.parametrize(
    "change",
    [remove_directory, rename_directory, rename_directory_over, exchange_directory, replace_with_link],
)
def test_directories_with_something_protected_stay(world, as_root, change):
    expect_denied(world, as_root, change, KEPT_DIRECTORIES, DENIED | {"ENOTEMPTY"})


@pytest.mark.parametrize("change", [rename_directory, rename_directory_over, exchange_directory, replace_with_link])
def test_owners_alone_keep_such_directories(place, change):
    """Where an old kernel lets directories of lower layers be renamed."""
    source = trees.grow(f"{place}/source", FILES)
    with World("A-old", source, RULES, place) as world:
        before = world.run(picture)
        found = world.run(outcomes, change, KEPT_DIRECTORIES)
        assert set(found.values()) <= DENIED | {"ENOTEMPTY"}, found
        assert world.run(picture) == before
        world.run(rename_directory, "free/dir")


def remove_own_directory():
    os.makedirs("output/a/b/c")
    os.rename("output/a/b", "output/a/moved")
    os.rename("output/a/moved", "output/elsewhere")
    shutil.rmtree("output/a")
    os.rmdir("output/elsewhere/c")
    os.rmdir("output/elsewhere")


def test_own_directories_can_be_moved_and_removed(world, as_root):
    assert world.fails(remove_own_directory, as_root=as_root) is None


def test_a_tree_is_not_removed_with_what_is_protected_in_it(world, as_root):
    before = world.run(picture)
    world.fails(remove_tree, "work/sub/deep", as_root=as_root)
    world.fails(remove_tree, "work/closed", as_root=as_root)
    assert world.run(picture) == before
    world.check_source()


# Mounts


def _mount(source, target, kind, flags, data=None):
    if _libc.mount(source, target.encode(), kind, flags, data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unmount(path):
    if _libc.umount2(os.path.abspath(path).encode(), 2) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def remount_writable(path):
    _mount(None, os.path.abspath(path), None, 32 | 4096)


def clear_read_only(path):
    packed = struct.pack("QQQQ", 0, 1, 0, 0)
    if _libc.syscall(442, -100, os.path.abspath(path).encode(), 0x8000, packed, 32) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def clone_writable(path):
    fd = _libc.syscall(428, -100, os.path.abspath(path).encode(), 1)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    packed = struct.pack("QQQQ", 0, 1, 0, 0)
    if _libc.syscall(442, fd, b"", 0x1000, packed, 32) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))


def mount_own():
    _mount(b"none", os.path.abspath("output"), b"tmpfs", 0)
    unmount("output")


@pytest.mark.parametrize("undo", [unmount, remount_writable, clear_read_only, clone_writable])
def test_not_even_a_namespaces_root_undoes_the_mounts(world, undo):
    for path in (".", "work/fixed.txt", "work/closed", "code"):
        failure = world.fails(undo, path, as_root=True)
        # Where owners protect, a mount that changes nothing may be allowed.
        assert failure is not None or not world.rootless, f"{undo.__name__} {path}"
        expect_denied(world, True, append, ["work/fixed.txt"])
    assert world.fails(mount_own, as_root=True) is None, "the control: a mount of its own it can undo"


def test_denials_are_what_the_table_calls_denials():
    assert {errno.errorcode[getattr(errno, name)] for name in DENIED} == DENIED
