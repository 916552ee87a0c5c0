"""language="restricted" is a guard rail and not a wall: what it refuses, what it lets pass, and what gets around it."""

from __future__ import annotations

import pytest

from atoll import Sandbox

pytestmark = pytest.mark.escape

# What has got others out of a language filter, and some more of the kind; each needs no more than one cell.
ESCAPES = {
    "a class by its underscores": "().__class__.__base__.__subclasses__()",
    "getattr with a text": "getattr((), '__class__')",
    "getattr with a text that lies": "class T(str):\n    pass\ngetattr((), T('__class__'))",
    "str.format": "'{0.__class__}'.format(1)",
    "str.format of the class": "str.format('{0.__class__}', 1)",
    "str.format_map": "'{a.__class__}'.format_map({'a': 1})",
    "string.Formatter": "import string\nstring.Formatter().format('{0.__class__}', 1)",
    "Formatter by from": "from string import Formatter\nFormatter().format('{0.__class__}', 1)",
    "UserString": "import collections\ncollections.UserString('{0.__class__}').format(1)",
    "pathlib.os": "import pathlib\npathlib.os.popen('id').read()",
    "typing.sys": "import typing\ntyping.sys.modules['os'].popen('id').read()",
    "sys by from": "from typing import sys\nsys.modules",
    "json.codecs": "import json\njson.codecs.builtins.open('/etc/passwd').read()",
    "operator.attrgetter": "import operator\noperator.attrgetter('__class__')(1)",
    "update_wrapper": "from functools import update_wrapper as w\nimport json\ndef f():\n    pass\nw(f, json.dumps)",
    "wraps": "import functools\nfunctools.wraps(print)(lambda: 0)",
    "an annotation that is text": "import typing\ndef f(a: '1+1'):\n    pass\ntyping.get_type_hints(f)",
    "singledispatch": "import functools\n@functools.singledispatch\ndef f(a):\n    pass",
    "a dataclass of made-up names": "import typing\ntyping.TypedDict('X', {'a=().__class__': int})",
    "a forward reference": "import typing\ntyping.get_args(typing.List['().real'])[0].evaluate()",
    "a generator's frame": "(x for x in ()).gi_frame.f_back.f_builtins",
    "a traceback's frame": "try:\n    1/0\nexcept Exception as e:\n    e.with_traceback(None).__traceback__.tb_frame",
    "except*": "try:\n    1/0\nexcept* ZeroDivisionError:\n    pass",
    "import by underscores": "__import__('os').popen('id').read()",
    "an import of os": "import os\nos.listdir('/')",
    "an import of ctypes": "import ctypes",
    "a relative import": "from . import anything",
    "open": "open('/etc/passwd').read()",
    "eval": "eval('1')",
    "eval by another name": "e = eval\ne('1')",
    "exec": "exec('import os')",
    "compile": "compile('1', '', 'eval')",
    "globals": "globals()",
    "vars": "vars()",
    "type of three": "type('X', (), {})",
    "a metaclass": "class A(metaclass=dict):\n    pass",
    "a magic method": "class A:\n    def __getattr__(self, name):\n        return 1",
    "a change of a module": "import json\njson.dumps = print",
    "setattr": "import json\nsetattr(json, 'dumps', print)",
    "a change of a class of the library": "import collections\ncollections.Counter.update = None",
    "breakpoint": "breakpoint()",
    "help": "help()",
    "async": "async def f():\n    pass",
}

WELL_MEANT = {
    "sum(n * n for n in range(4))": "14",
    "import math\nround(math.sqrt(2), 3)": "1.414",
    "from collections import Counter\nCounter('abca').most_common(1)": "[('a', 2)]",
    "counts = {}\nfor c in 'aab':\n    counts[c] = counts.get(c, 0)\n    counts[c] += 1\ncounts": "{'a': 2, 'b': 1}",
    "class P:\n    def __init__(self, x):\n        self.x = x\np = P(1)\np.x += 1\np.x": "2",
    "from dataclasses import dataclass\n@dataclass\nclass D:\n    a: int\n    b: int = 2\nD(1)": "D(a=1, b=2)",
    "from enum import Enum\nclass C(Enum):\n    RED = 1\nC.RED.value": "1",
    "a, (b, c) = 1, (2, 3)\n[x + y for x, y in [(a, b), (b, c)]]": "[3, 5]",
    "x: int = 3\nf'{x:03}'": "'003'",
    "import json\njson.loads(json.dumps({'a': [1, None]}))": "{'a': [1, None]}",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    said = str(error)\nsaid": "'division by zero'",
    "getattr('a', 'nothing', 7), hasattr('a', 'upper')": "(7, True)",
    "import datetime\ndatetime.date(2024, 2, 29).isoformat()": "'2024-02-29'",
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create("inprocess", lifetime=600) as made:
        yield made


def run(sandbox, code, **how):
    return sandbox.run_code(code, language="restricted", **how)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_known_way_around_is_refused(sandbox, name):
    refused = run(sandbox, ESCAPES[name])
    assert refused.error is not None, refused
    known = ("SyntaxError", "NameError", "AttributeError", "ImportError", "NotImplementedError", "TypeError")
    assert refused.error.name in known, refused.error


@pytest.mark.parametrize("code", WELL_MEANT)
def test_what_well_meant_code_does_works(sandbox, code):
    done = run(sandbox, code)
    assert done.error is None, done.error
    assert done.text == WELL_MEANT[code]


def test_state_lasts_output_is_live_and_values_come_out(sandbox):
    run(sandbox, "kept = [1, 2]")
    chunks = []
    done = run(sandbox, "print('said')\nkept.append(3)\nkept", on_stdout=chunks.append)
    assert (done.text, done.stdout, "".join(chunks)) == ("[1, 2, 3]", "said\n", "said\n")
    assert sandbox.variables.get("kept", context="restricted") == [1, 2, 3]
    sandbox.variables.set("given", {"a": 1}, context="restricted")
    assert run(sandbox, "given['a']").text == "1"


def test_an_error_tells_where(sandbox):
    broken = run(sandbox, "def f():\n    return 1 / 0\n\nf()")
    assert broken.error.name == "ZeroDivisionError"
    assert 'File "<cell' in broken.error.traceback
    assert "line 2, in f" in broken.error.traceback


def test_a_loop_ends_with_its_time_and_the_variables_stay(sandbox):
    run(sandbox, "before = 1")
    slow = run(sandbox, "while True:\n    pass", timeout=0.5)
    assert slow.timed_out
    assert not slow.success
    assert run(sandbox, "before").text == "1"


def test_functions_of_the_host_can_be_called():
    with Sandbox.create("inprocess", lifetime=600, tools={"double": lambda n: 2 * n}) as sandbox:
        assert run(sandbox, "tools.double(21), double(4)").text == "(42, 8)"


def test_other_modules_are_the_callers_to_allow_and_carry_their_rights(sandbox, tmp_path):
    (tmp_path / "secret").write_text("of the host")
    code = f"import pathlib\npathlib.Path({str(tmp_path / 'secret')!r}).read_text()"
    assert run(sandbox, code).error.name == "ImportError"
    allowed = sandbox.contexts.create("more", language="restricted", env={"ATOLL_RESTRICTED_MODULES": "pathlib"})
    # This guard rail is not a wall: one module too many, and the files of the host are open.
    assert sandbox.run_code(code, context=allowed).text == "'of the host'"


def test_this_guard_rail_is_not_a_wall(sandbox, tmp_path):
    """It is about the cells of one context. What else runs in the sandbox has all the rights of its user."""
    (tmp_path / "secret").write_text("of the host")
    read = f"open({str(tmp_path / 'secret')!r}).read()"
    assert run(sandbox, read).error.name == "NameError"
    assert sandbox.run_code(read).text == "'of the host'"
    assert sandbox.run(["cat", str(tmp_path / "secret")]).stdout == "of the host"
    assert sandbox.refresh().walls == ()


def test_without_the_package_the_error_says_how_to_get_it():
    with Sandbox.create("fake", lifetime=600) as bare:
        missing = run(bare, "1")
    assert missing.error.name == "Unsupported"
    assert "pip install 'atoll[restricted]'" in missing.error.value


def test_behind_a_wall_the_guard_rail_works_as_well():
    with Sandbox.create(packages=["RestrictedPython"], lifetime=600) as walled:
        assert run(walled, "1 + 1").text == "2"
        assert run(walled, "import os").error.name == "ImportError"
