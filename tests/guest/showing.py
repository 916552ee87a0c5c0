"""`Displays` in a Python of its own: the cells run one after the other, and all that they show and say comes back."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import atoll.guest

SOURCE = os.path.dirname(os.path.dirname(atoll.guest.__file__))

HARNESS = """
import ast, json, sys, types
package = types.ModuleType("atoll")
package.__path__ = [sys.argv[1]]
sys.modules["atoll"] = package
from atoll.guest.display import Displays
before = set(sys.modules)
for name in sys.argv[2:]:
    __import__(name)

log = []

class Stream:
    def __init__(self, name):
        self.name = name
    def write(self, text):
        log.append([self.name, text])
        return len(text)
    def flush(self):
        pass

real, sys.stdout, sys.stderr = sys.stdout, Stream("out"), Stream("err")
displays = Displays(lambda bundle, main: log.append(["main" if main else "side", bundle]))
for name in [name for name in sys.modules if name.startswith("atoll")]:
    del sys.modules[name]
displays.install()
namespace = {"__name__": "__main__"}
for cell in json.load(sys.stdin):
    log.append(["cell", None])
    tree = ast.parse(cell)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "<cell>", "exec"), namespace)
        value = eval(compile(last, "<cell>", "eval"), namespace) if last else None
        if value is not None:
            displays.show_main(value)
    except BaseException as error:
        log.append(["error", type(error).__name__ + ": " + str(error)])
    displays.end_of_cell()
modules = sorted(set(sys.modules) - before)
json.dump({"log": log, "modules": modules, "truncated": displays.truncated}, real)
real.flush()
"""


class Shown(NamedTuple):
    """What one cell did, in order: ("out" or "err", text), ("main" or "side", bundle), ("error", text)."""

    log: list
    modules: list
    truncated: bool

    def bundles(self, kind=None) -> list[dict[str, Any]]:
        return [what for name, what in self.log if name in ((kind,) if kind else ("main", "side"))]

    @property
    def only(self) -> dict[str, Any]:
        """The bundle, when there is one and nothing else was said."""
        assert [name for name, _ in self.log if name != "out"] in (["main"], ["side"]), self.log
        return self.bundles()[0]

    @property
    def main(self) -> dict[str, Any]:
        (bundle,) = self.bundles("main")
        return bundle

    def text(self, name) -> str:
        return "".join(what for kind, what in self.log if kind == name)

    @property
    def order(self) -> list[str]:
        """The kinds, without repetitions that are only a matter of how `print` writes."""
        kinds = [name for name, _ in self.log]
        return [kind for at, kind in enumerate(kinds) if not (at and kind in ("out", "err") and kinds[at - 1] == kind)]


def show(*cells, python=sys.executable, env=None, preload=()) -> list[Shown]:
    """Run cells in one context, and say what each of them showed. `preload`: modules that the zygote would have."""
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run(
            [python, "-I", "-c", HARNESS, SOURCE, *preload],
            input=json.dumps(cells),
            capture_output=True,
            text=True,
            cwd=directory,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **(env or {})},
            timeout=100,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    said = json.loads(ended.stdout)
    logs: list[list] = []
    for kind, what in said["log"]:
        if kind == "cell":
            logs.append([])
        else:
            logs[-1].append((kind, what))
    return [Shown(log, said["modules"], said["truncated"]) for log in logs]
