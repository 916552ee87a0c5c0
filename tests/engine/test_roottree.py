"""The root file system that is made from this machine: whole, small, and with nothing of its users in it."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import subprocess
import sys

import pytest

from atoll.engine import roottree

PYTHON_IN_TREE = [roottree.PYTHON, "-I", "-S", "-c"]
MODULES = "ctypes ssl sqlite3 zlib bz2 lzma hashlib json asyncio multiprocessing decimal readline uuid"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return str(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def tree(home):
    return roottree.build(home)


def inside(root, command):
    """Run with `root` as the whole file system."""
    done = subprocess.run(
        ["unshare", "--map-root-user", "chroot", root, *command], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "echo a b | awk '{print $2}' | sed s/b/c/ | grep c",
        "test -x /usr/bin/env && find /etc -name passwd -exec cat {} + | sort | head -n 1",
        "diff /etc/passwd /etc/passwd && tar --version | head -n 1 && printf x | gzip | gunzip",
        "id -u && ls -la / && date && od -c /etc/hostname && bash -c 'echo ${BASH_VERSION}'",
    ],
)
def test_its_shell_and_tools_run(tree, command):
    code, out, error = inside(tree, ["/bin/sh", "-ec", command])
    assert (code, error) == (0, "")
    assert out


def test_its_python_has_the_whole_standard_library_and_is_this_one(tree):
    code, out, error = inside(
        tree, [*PYTHON_IN_TREE, f"import sys, {MODULES.replace(' ', ', ')}; print(sys.version, sys.prefix)"]
    )
    assert (code, error) == (0, "")
    assert out.strip() == f"{sys.version} /usr/local"


def test_its_python_finds_certificates(tree):
    probe = "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 10)"
    assert inside(tree, [*PYTHON_IN_TREE, probe])[1] == f"{os.path.exists('/etc/ssl/certs/ca-certificates.crt')}\n"


def test_every_program_in_it_finds_its_libraries(tree):
    listing = inside(tree, ["/bin/sh", "-c", "for f in /usr/bin/*; do ldd $f 2>/dev/null; done"])[1]
    assert "libc.so.6" in listing
    assert "not found" not in listing


def test_the_guest_is_in_it_compiled_and_starts(tree):
    code, _, error = inside(tree, [roottree.PYTHON, "-I", "-S", f"{roottree.GUEST}/atoll/guest/__main__.py"])
    assert code == 1
    assert error.startswith("usage:")
    assert os.listdir(f"{tree}{roottree.GUEST}/atoll/guest/__pycache__")


def test_nothing_of_this_host_or_its_users_is_in_it(tree):
    names = {os.path.relpath(os.path.join(place, name), tree) for place, _, names in os.walk(tree) for name in names}
    assert "usr/bin/env" in names
    assert not any(name.startswith(("root/", "home/", "var/lib", "proc/", "tmp/")) for name in names)
    assert {name for name in names if "shadow" in name or "id_rsa" in name or "machine-id" in name} == set()
    with open(f"{tree}/etc/passwd", encoding="utf-8") as file:
        assert [line.split(":")[:3] for line in file][1] == ["user", "x", "1000"]


def test_nothing_in_it_gains_rights_and_everybody_can_read_it(tree):
    for place, _, names in os.walk(tree):
        assert os.stat(place).st_mode & 0o555 == 0o555, place
        for name in names:
            mode = os.lstat(os.path.join(place, name)).st_mode
            assert not mode & (stat.S_ISUID | stat.S_ISGID), name
            assert mode & 0o444 == 0o444, name


def test_it_is_made_once_also_by_many_at_once_and_over_a_draft_that_somebody_left(tmp_path):
    draft = tmp_path / "roots" / roottree.tag() / "tree.draft"
    (draft / "usr").mkdir(parents=True)
    (draft / "usr" / "half").write_text("half")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        places = pool.map(roottree.build, [str(tmp_path)] * 3)
    assert len(set(places)) == 1
    assert os.listdir(os.path.dirname(places[0])) == ["tree"]
    assert not os.path.exists(f"{places[0]}/usr/half")
    inode = os.stat(places[0]).st_ino
    assert roottree.build(str(tmp_path)) == places[0]
    assert os.stat(places[0]).st_ino == inode


def test_old_ones_go_when_a_new_one_is_made_unless_somebody_holds_them(home, tree):
    roots = os.path.dirname(os.path.dirname(tree))
    places = {name: os.path.join(roots, name, "tree") for name in ("held", "old", "young")}
    for path in places.values():
        os.makedirs(path)
    lock = roottree.hold(places["held"])
    for name in ("held", "old"):
        os.utime(os.path.dirname(places[name]), (0, 0))
    roottree._forget_old(roots)
    os.close(lock)
    assert sorted(name for name, path in places.items() if os.path.exists(path)) == ["held", "young"]
    assert roottree.build(home) == tree


def test_the_python_that_stands_alone_runs_where_there_is_nothing_else(home, tmp_path):
    alone = roottree.self_contained(home)
    place = f"{tmp_path}{roottree.ALONE}"
    shutil.copytree(alone, place, symlinks=True)
    probe = f"import sys, {MODULES.replace(' ', ', ')}; print(sys.version, sys.prefix)"
    code, out, error = inside(str(tmp_path), [*roottree.alone_command(), "-I", "-S", "-c", probe])
    assert (code, error) == (0, "")
    assert out.strip() == f"{sys.version} {roottree.ALONE}"
    assert inside(str(tmp_path), ["/bin/sh"])[0] == 127
