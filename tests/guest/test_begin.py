"""A guest that starts from one file has the same modules as any other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from atoll.engine import roottree
from atoll.guest import begin

PROBE = """
import sys
sys.argv = ["begin"]
sys.path.insert(0, {place!r})
import begin
begin.__file__ = {file!r}
kept = sys.meta_path[:]
try:
    begin.main()
except SystemExit as told:
    usage = str(told)
import json, inspect, traceback
names = ("atoll.guest.server", "json", "atoll.guest.paths")
print(json.dumps({{
    "usage": usage,
    "paths": [sys.modules[name].__file__ for name in names],
    "loaders": [type(sys.modules[name].__spec__.loader).__name__ for name in names],
    "packages": list(sys.modules["atoll.guest"].__path__),
    "meta_path": sys.meta_path == kept,
    "path": {package!r} in sys.path,
    "source": inspect.getsource(traceback.format_exc)[:16],
    "late": __import__("wave").__name__,
}}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return roottree.build(str(tmp_path_factory.mktemp("home")))


def probe(package, python, root=None):
    program = PROBE.format(place=f"{package}/atoll/guest", file=f"{package}/atoll/guest/begin.py", package=package)
    inside = ["unshare", "--map-root-user", "chroot", root] if root else []
    done = subprocess.run([*inside, python, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_finds_its_modules_in_one_file_and_leaves_no_trace(tree):
    seen = probe(roottree.GUEST, roottree.PYTHON, tree)
    assert seen["usage"].startswith("usage:")
    assert seen["paths"] == [
        f"{roottree.GUEST}/atoll/guest/server.py",
        f"{roottree.LIBRARY}/json/__init__.py",
        f"{roottree.GUEST}/atoll/guest/paths.py",
    ]
    assert seen["loaders"] == ["Loader", "Loader", "Loader"]
    assert seen["packages"] == [f"{roottree.GUEST}/atoll/guest"]
    assert seen["meta_path"]
    assert not seen["path"]
    assert seen["source"] == "def format_exc(l"
    assert seen["late"] == "wave"


def test_without_the_file_modules_are_looked_for_one_by_one(tree):
    package = roottree.package_directory()
    seen = probe(package, sys.executable)
    assert seen["usage"].startswith("usage:")
    assert "Loader" not in seen["loaders"][1:2]


def test_a_module_that_is_not_in_the_file_is_not_found_there(tree):
    finder = begin.Finder(f"{tree}{roottree.GUEST}/{begin.MODULES}")
    assert finder.find_spec("json") is not None
    assert finder.find_spec("no_such_module") is None
