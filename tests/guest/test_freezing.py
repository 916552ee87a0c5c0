"""Variables that outlive their process: what comes back is what was there, and what does not is named."""

import json
import os
import pathlib
import subprocess
import sys
import time

import cloudpickle
import pytest

import atoll

SOURCE = os.path.dirname(os.path.dirname(atoll.__file__))
LENT = os.path.dirname(cloudpickle.__file__)
STAGE = os.path.join(os.path.dirname(__file__), "stage.py")
OTHERS = sorted(
    str(path)
    for path in (pathlib.Path.home() / ".pyenv" / "versions").glob("3.*/bin/python")
    if int(path.parent.parent.name.split(".")[1]) >= 8
)


class Stage:
    def __init__(self, directory, python=sys.executable, lent=LENT):
        self._directory = directory
        self._python = python
        self._lent = lent
        self.path = str(directory / "frozen")

    def play(self, **job):
        done = subprocess.run(
            [self._python, "-W", "error::ResourceWarning", STAGE, SOURCE, self._lent],
            input=json.dumps({"path": self.path, **job}),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=self._directory,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return json.loads(done.stdout.splitlines()[-1])

    def freeze(self, *cells, **more):
        report = self.play(cells=cells, freeze=True, **more)["frozen"]
        assert report.pop("more") == 0
        return report

    def thaw(self, *ask, cells=()):
        """What the questions are answered after the cells have run on what came back."""
        said = self.play(thaw=True, cells=cells, ask=ask)
        assert said["modules"] == [], "nothing of ours is to be seen by cells"
        return said["answers"]

    def lost(self):
        return self.play(thaw=True)["thawed"]["lost"]


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def test_data_functions_classes_instances_and_imports_come_back(stage):
    report = stage.freeze(
        "import math, os.path as p\nfrom json import dumps\nx = {'a': [1, (2, 3)], 'b': {4}}",
        "def double(n: int = 21) -> int:\n    'Twice.'\n    return n * 2",
        "class Point:\n    count = 0\n    def __init__(self, x):\n        self.x = x\n        Point.count += 1\n"
        "    def far(self):\n        return math.hypot(self.x, double(self.x))",
        "point = Point(3)\n_private = 1",
    )
    assert report == {"saved": 8, "lost": {}}
    assert stage.thaw(
        "x", "double()", "double.__doc__", "double.__annotations__", "isinstance(point, Point)", "point.x",
        "round(point.far(), 3)", "Point.count", "Point(1).x + Point.count", "dumps([1])", "p.join('a', 'b')",
        "_private", "double.__module__, Point.__module__, Point.__qualname__",
    ) == [
        "{'a': [1, (2, 3)], 'b': {4}}", "42", "'Twice.'", "{'n': <class 'int'>, 'return': <class 'int'>}", "True", "3",
        "6.708", "1", "3", "'[1]'", "'a/b'", "1", "('__main__', '__main__', 'Point')",
    ]  # fmt: skip


def test_restored_functions_see_later_changes_of_their_globals(stage):
    stage.freeze("x = 1\ndef f(): return x\ndef g(): return f() * 10\nh = lambda: g() + 1")
    assert stage.thaw("f()", "h()", cells=["x = 2"]) == ["2", "21"]
    assert stage.thaw("x", cells=["def put():\n    global x\n    x = 5\nput()"]) == ["5"]
    assert stage.thaw("h()", cells=["def f(): return 7"]) == ["71"]
    assert stage.thaw("f.__globals__ is globals()", "__builtins__.__name__") == ["True", "'builtins'"]


def test_a_function_may_use_what_is_defined_after_the_restart_only(stage):
    stage.freeze("def f(): return later")
    assert stage.thaw("f()", cells=["later = 3"]) == ["3"]


def test_what_two_variables_share_they_still_share(stage):
    stage.freeze(
        "a = b = []\nc = {'a': a}\nclass C: items = a\nc1 = C(); c2 = C(); pair = (c1, c2)\n"
        "def f(): return a\nhandlers = [f]\nouter = []; inner = [outer]; outer.append(inner)\napart = []",
        "def maker():\n    n = 0\n    def bump():\n        nonlocal n\n        n += 1\n    def look(): return n\n"
        "    return bump, look\nbump, look = maker()\nbump()",
        "g = globals()",
    )
    assert stage.thaw(
        "a", "b is a", "c['a'] is a", "C.items is a", "pair[0] is c1 and type(c1) is C and type(pair[1]) is C",
        "handlers[0] is f", "outer[0] is inner and inner[0] is outer", "apart", "look()", "g is globals()",
        cells=["b.append(1); bump()"],
    ) == ["[1]", "True", "True", "True", "True", "True", "True", "[]", "2", "True"]  # fmt: skip


def test_what_cannot_be_kept_is_named_and_loses_only_itself(stage):
    report = stage.freeze(
        "import threading, socket\n"
        "file = open('f', 'w+')\nbinary = open('f', 'rb')\nsock = socket.socket()\ngenerator = (x for x in [1])\n"
        "lock = threading.Lock()\nthread = threading.Thread()\nview = memoryview(b'x')\n"
        "class Bad:\n    def __reduce__(self): raise ValueError('not\\nme')\n"
        "bad = Bad()\nholder = [lock]\nfine = 1\nsock2 = [sock]\nout = __import__('sys').stdout",
        "import sys\nclose = lambda: [each.close() for each in (file, binary, sock)]",
        ask=["close()"],
    )
    assert set(report["lost"]) == {
        "file", "binary", "sock", "sock2", "generator", "lock", "thread", "view", "bad", "holder",
    }  # fmt: skip
    assert report["lost"]["file"] == "an open file cannot be kept"
    assert "generator" in report["lost"]["generator"]
    assert report["lost"]["bad"] == "ValueError: not"
    assert stage.thaw("fine", "Bad.__name__", "out is sys.stdout") == ["1", "'Bad'", "True"]
    assert stage.lost() == report["lost"]


def test_a_value_that_hangs_or_crashes_costs_only_itself(stage):
    began = time.monotonic()
    report = stage.freeze(
        "import os, time, signal\n"
        "class Hangs:\n    def __reduce__(self): time.sleep(1000)\n"
        "class Crashes:\n    def __reduce__(self): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "class Leaves:\n    def __reduce__(self): os._exit(3)\n"
        "a = 1\nhangs = Hangs()\nb = 2\ncrashes = Crashes()\nleaves = Leaves()\nc = 3",
        seconds=8,
    )
    assert time.monotonic() - began < 60
    assert set(report["lost"]) == {"hangs", "crashes", "leaves"}
    assert report["lost"]["crashes"] == "keeping it crashed Python with signal 11"
    assert report["lost"]["hangs"] == "keeping it took too long"
    assert stage.thaw("a, b, c") == ["(1, 2, 3)"]


def test_a_checkpoint_that_fails_leaves_the_last_one(stage):
    stage.freeze("x = 1")
    said = stage.play(
        cells=["import time\nclass H:\n    def __reduce__(self): time.sleep(1000)\nx = 2\nh = [H() for _ in range(3)]",
               "a, b, c, d = H(), H(), H(), H()"],
        freeze=True, seconds=0.6,
    )  # fmt: skip
    assert said["refused"][0] == "busy"
    assert stage.thaw("x") == ["1"]
    assert sorted(os.listdir(os.path.dirname(stage.path))) == ["frozen"]


def test_deep_structures_are_kept_or_named_and_harm_nobody(stage):
    report = stage.freeze(
        "x = None\nfor _ in range(3000): x = [x]", "y = None\nfor _ in range(10**6): y = [y]", "z = 1"
    )
    assert set(report["lost"]) <= {"x", "y"}
    assert "y" in report["lost"]
    assert stage.thaw("z") == ["1"]


def test_a_value_that_cannot_be_restored_is_named_and_its_friends_come_back(stage):
    stage.freeze(
        "shared = []\n"
        "class Stubborn:\n    def __init__(self): self.s = shared\n"
        "    def __setstate__(self, state): raise RuntimeError('never again')\n"
        "class Quits:\n    def __setstate__(self, state): raise SystemExit(3)\n    def __init__(self): self.x = 1\n"
        "stubborn = Stubborn()\nfriend = [shared]\nquits = Quits()"
    )
    assert stage.lost() == {"stubborn": "RuntimeError: never again", "quits": "SystemExit: 3"}
    assert stage.thaw("friend", "shared", "Stubborn.__name__") == ["[[]]", "[]", "'Stubborn'"]


def test_what_is_made_with_help_of_others_finds_them(stage):
    stage.freeze(
        "class A:\n    x = 0\n    def __init__(self): self.x = 1\n"
        "    def __setstate__(self, state): self.__dict__ = helper(state)\n"
        "first = A()\ndef helper(state): return {**state, 'helped': table['yes']}\ntable = {'yes': 1}"
    )
    assert stage.thaw("first.helped") == ["1"]


def test_also_when_they_must_be_made_together(stage):
    stage.freeze(
        "class A:\n    def __init__(self): self.x = 1\n    def __setstate__(self, state): helper(self, state)\n"
        "first = A()\ndef helper(self, state): self.helped = True\nall = [A, first, helper]"
    )
    assert stage.thaw("first.helped", "all[0] is A and all[1] is first and all[2] is helper") == ["True", "True"]


def test_directory_environment_and_import_path_come_back(stage, tmp_path):
    (tmp_path / "deep" / "lib").mkdir(parents=True)
    (tmp_path / "deep" / "lib" / "of_mine.py").write_text("class Thing:\n    def hi(self): return 'hi'\n")
    stage.freeze(
        "import os, sys\nos.chdir('deep')\nos.environ['NEW'] = 'n\\udcff'\nos.environ.pop('HOME', None)\n"
        "sys.path.insert(0, os.path.abspath('lib'))\nsys.path.append('/nowhere')\n"
        "import of_mine\nthing = of_mine.Thing()"
    )
    answers = stage.thaw(
        "os.getcwd()", "os.environ['NEW']", "'HOME' in os.environ", "sys.path[0]", "sys.path[-1]", "thing.hi()",
        "of_mine.Thing is type(thing)",
    )  # fmt: skip
    assert answers == [
        repr(str(tmp_path / "deep")), "'n\\udcff'", "False", repr(str(tmp_path / "deep/lib")), "'/nowhere'", "'hi'",
        "True",
    ]  # fmt: skip


def test_a_directory_that_is_gone_is_named(stage, tmp_path):
    (tmp_path / "gone").mkdir()
    stage.freeze("import os\nos.chdir('gone')\nx = 1")
    (tmp_path / "gone").rmdir()
    assert list(stage.lost()) == ["the working directory"]
    assert stage.thaw("x") == ["1"]


def test_files_of_the_workspace_with_names_of_the_standard_library_do_no_harm(stage, tmp_path):
    for name in ("pickle", "logging", "uuid", "cloudpickle", "dataclasses", "platform"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('shadowed')\n")
    stage.freeze("import sys\nsys.path.insert(0, '')\ndef f(): return 1\nclass C: pass\nc = C()")
    assert stage.thaw("f()", "isinstance(c, C)") == ["1", "True"]


def test_the_compilers_flags_and_the_order_come_back(stage):
    stage.freeze("b = 1\ndef a(): pass\nc = 2\nimport os")
    said = stage.play(thaw=True, ask=["[name for name in globals() if not name.startswith('__')]"])
    assert said["thawed"]["flags"] == 7
    assert said["answers"] == ["['b', 'a', 'c', 'os']"]


def test_enums_dataclasses_named_tuples_and_generics_come_back(stage):
    stage.freeze(
        "import enum, dataclasses, typing, collections, abc\n"
        "class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n"
        "@dataclasses.dataclass\nclass D:\n    x: int = 1\n    y: list = dataclasses.field(default_factory=list)\n"
        "class N(typing.NamedTuple):\n    a: int\n    b: str = 'b'\n"
        "M = collections.namedtuple('M', 'p q')\n"
        "class Base(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\n"
        "class Impl(Base):\n    def m(self): return __class__.__name__\n"
        "    @property\n    def p(self): return 5\n    @classmethod\n    def make(cls): return cls()\n"
        "    @staticmethod\n    def s(): return 's'\n"
        "d, n, m, i, red = D(y=[1]), N(1), M(1, 2), Impl(), Color.RED\nmethod = i.m"
    )
    assert stage.thaw(
        "d", "n", "m", "i.m(), i.p, Impl.s(), type(Impl.make()) is Impl", "red is Color.RED", "method()", "D(2)",
        "method.__self__ is i",
    ) == [
        "D(x=1, y=[1])", "N(a=1, b='b')", "M(p=1, q=2)", "('Impl', 5, 's', True)", "True", "'Impl'", "D(x=2, y=[])",
        "True",
    ]  # fmt: skip


def test_frozen_again_and_again_nothing_changes(stage):
    stage.freeze("class C:\n    def f(self): return n\nc = C()\nn = 1")
    for round_ in range(3):
        said = stage.play(thaw=True, cells=[f"n += {round_}"], freeze=True, ask=["c.f()", "type(c) is C"])
        assert said["frozen"] == {"saved": 3, "lost": {}, "more": 0}
    assert said["answers"] == ["4", "True"]


def test_without_cloudpickle_data_comes_back_and_code_is_named(tmp_path):
    stage = Stage(tmp_path, lent="")
    report = stage.freeze("import math\nx = [1]\ny = {'x': x}\ndef f(): pass\nclass C: pass\nc = C()")
    assert set(report["lost"]) == {"f", "C", "c"}
    assert "cloudpickle" in report["lost"]["f"]
    assert stage.thaw("y['x'] is x", "math.pi > 3") == ["True", "True"]


def test_a_damaged_file_is_refused_and_none_is_told(stage):
    stage.freeze("x = 1")
    content = pathlib.Path(stage.path).read_bytes()
    for damaged in (b"", content[:-1], content[:-30] + b"x" * 30, b"\0" * 100):
        pathlib.Path(stage.path).write_bytes(damaged)
        assert stage.play(thaw=True)["refused"][0] == "internal"
    os.unlink(stage.path)
    assert stage.play(thaw=True)["refused"][0] == "file_error"


def test_the_file_is_for_its_owner_only(stage):
    stage.freeze("x = 1")
    assert os.stat(stage.path).st_mode & 0o777 == 0o600


def test_a_child_of_the_checkpoint_leaves_no_process(stage):
    children = "pathlib.Path('/proc/self/task/%d/children' % os.getpid()).read_text()"
    assert stage.play(cells=["import os, pathlib"], freeze=True, ask=[children])["answers"] == ["''"]


@pytest.mark.parametrize("python", OTHERS)
def test_on_every_python_that_a_guest_may_meet(tmp_path, python):
    stage = Stage(tmp_path, python)
    report = stage.freeze(
        "x = y = [1]\ndef f(n=2): return x[0] + n\nclass C:\n    def m(self): return f()\nc = C()\n"
        "def outer():\n    v = 5\n    return lambda: v\nclosure = outer()\ngenerator = iter(f for f in [])"
    )
    assert list(report["lost"]) == ["generator"]
    assert stage.thaw("x is y", "f()", "c.m()", "closure()") == ["True", "3", "3", "5"]


@pytest.mark.skipif(len(OTHERS) < 2, reason="there is one Python only")
def test_code_for_another_python_is_named_and_data_comes_back(tmp_path):
    Stage(tmp_path, OTHERS[-1]).freeze("x = [1]\ndef f(): pass")
    other = Stage(tmp_path, OTHERS[0])
    assert "code for Python" in other.lost()["f"]
    assert other.thaw("x") == ["[1]"]
