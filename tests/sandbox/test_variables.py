"""Variables of a context, read and written from outside."""

from __future__ import annotations

import math
import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from atoll import InvalidInput, ProtocolError, Unsupported, Variable
from atoll.client import values

LIBRARIES = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})"


@pytest.fixture(scope="module")
def box(sandbox):
    """With the libraries of this Python inside."""
    assert sandbox.run_code(LIBRARIES).success
    return sandbox


def test_what_is_set_is_there_and_what_is_there_is_got(sandbox):
    sandbox.variables.set("x", {"a": [1, None, True], "b": "ü"})
    assert sandbox.run_code("x['a'].append(2.5); x").text == "{'a': [1, None, True, 2.5], 'b': 'ü'}"
    assert sandbox.variables.get("x") == {"a": [1, None, True, 2.5], "b": "ü"}
    sandbox.variables.update({"y": b"\0\xff", "z": (1, 2)})
    assert sandbox.run_code("y, z").text == "(b'\\x00\\xff', [1, 2])"
    sandbox.run_code("w = (1, (2,)); s = '\\ud800'; n = float('nan'); i = 3 ** 20000")
    assert sandbox.variables.get("w") == [1, [2]]
    assert sandbox.variables.get("s") == "\ud800"
    assert math.isnan(sandbox.variables.get("n"))
    assert sandbox.variables.get("i") == 3**20000
    sandbox.variables.clear()


@given(st.recursive(st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists, max_leaves=10))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_there_and_back_nothing_changes(sandbox, value):
    sandbox.variables.set("back", value)
    assert sandbox.variables.get("back") == value


def test_contexts_have_variables_of_their_own(sandbox):
    sandbox.variables.set("mine", 1, "one")
    sandbox.variables.set("mine", 2, context="two")
    assert (sandbox.variables.get("mine", "one"), sandbox.run_code("mine", context="two").text) == (1, "2")
    assert [each.name for each in sandbox.variables.list("one")] == ["mine"]


def test_the_list_names_type_size_and_a_short_text_and_leaves_out_what_is_not_data(sandbox):
    sandbox.run_code("import os\n_hidden = 1\nbig = list(range(100000))\ndef f(a, b): pass", context="listed")
    listed = sandbox.variables.list("listed")
    assert [each.name for each in listed] == ["big", "f"]
    assert listed[0] == Variable("big", "list", listed[0].size, "[0, 1, 2, 3, 4, 5, … 99994 more]")
    assert listed[0].size > 800_000
    assert (listed[1].type, listed[1].text) == ("function", "f(a, b)")


def test_clear_forgets_some_or_all(sandbox):
    sandbox.run_code("import os\na, b, c, _d = 1, 2, 3, 4", context="cleared")
    sandbox.variables.clear("a", "b", context="cleared")
    assert [each.name for each in sandbox.variables.list("cleared")] == ["c"]
    with pytest.raises(InvalidInput, match="no variable 'a'; there are: c"):
        sandbox.variables.clear("c", "a", context="cleared")
    sandbox.variables.clear(context="cleared")
    assert sandbox.variables.list("cleared") == []
    assert sandbox.run_code("_d, os.sep", context="cleared").text == "(4, '/')"


def test_what_does_not_pass_is_refused_with_ways_out(sandbox):
    sandbox.run_code("import datetime\nthings = {1, 2}\nclass C: pass\nc = C()", context="refused")
    for name, word in (("things", "set"), ("c", "C"), ("datetime", "module")):
        with pytest.raises(InvalidInput, match=rf"{word}.*numpy arrays.*run code"):
            sandbox.variables.get(name, "refused")
    for value in ({1, 2}, object(), 1j, {1: 2}, [b"x"]):
        with pytest.raises(InvalidInput, match="run code"):
            sandbox.variables.set("x", value, "refused")
    with pytest.raises(InvalidInput, match="no variable 'nothing'"):
        sandbox.variables.get("nothing", "refused")
    for name in ("a b", "class", "__builtins__", ""):
        with pytest.raises(InvalidInput):
            sandbox.variables.set(name, 1, "refused")
    for wrong in (lambda: sandbox.variables.get(1), lambda: sandbox.variables.get("x", 1)):
        with pytest.raises(InvalidInput):
            wrong()
    assert [each.name for each in sandbox.variables.list("refused")] == ["things", "C", "c"]


def test_a_value_larger_than_wanted_is_refused_before_it_is_sent(sandbox):
    sandbox.run_code("large = bytes(100_000)")
    with pytest.raises(InvalidInput, match="100000 bytes"):
        sandbox.variables.get("large", max_size="64K")
    assert len(sandbox.variables.get("large", max_size=100_000)) == 100_000


def test_a_pickle_is_bytes_and_stays_so(sandbox, tmp_path):
    """Whatever reducing it would do, it is not done here."""
    trap = f"class T:\n    def __reduce__(self): return (open, ({str(tmp_path / 'sprung')!r}, 'w'))\nimport pickle\n"
    sandbox.run_code(trap + "p = pickle.dumps(T())\nt = T()")
    assert isinstance(sandbox.variables.get("p"), bytes)
    with pytest.raises(InvalidInput):
        sandbox.variables.get("t")
    assert not (tmp_path / "sprung").exists()


def test_it_waits_for_a_cell_that_runs(sandbox):
    cell = threading.Thread(target=lambda: sandbox.run_code("import time; time.sleep(0.3); slow = 1", context="slow"))
    sandbox.run_code("slow = 0", context="slow")
    cell.start()
    while not any(each.name == "slow" and each.busy for each in sandbox.contexts.list()):
        pass
    assert sandbox.variables.get("slow", "slow") == 1
    cell.join()


def test_arrays_pass(box):
    for array in (
        np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(10)[::3], np.array(5),
        np.zeros((0, 3)), np.array(["a", "ü"]), np.array(["2020-01-01", "NaT"], "M8[ns]"),
        np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")]), np.array([True, False]), np.array([1 + 2j], ">c16"),
    ):  # fmt: skip
        box.variables.set("array", array)
        there = box.run_code("repr((array.dtype.str, array.shape, array.tobytes()))").text
        assert there == repr(repr((array.dtype.str, array.shape, array.tobytes())))
        back = box.variables.get("array")
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert back.flags.writeable
    box.run_code("import numpy; array += 0 if False else 0; objects = numpy.array([object()])")
    with pytest.raises(InvalidInput, match="Python objects"):
        box.variables.get("objects")


def test_a_large_array_passes_both_ways(box):
    array = np.random.default_rng(1).integers(0, 256, 20 << 20, dtype="u1")
    box.variables.set("large", array)
    assert box.run_code("import zlib; zlib.crc32(large)").text == str(__import__("zlib").crc32(array))
    assert np.array_equal(box.variables.get("large"), array)


def test_a_value_is_whole_also_when_it_is_the_first_thing_on_a_new_stream(make):
    sandbox = make()
    for number in range(20):
        sandbox.run_code("first = 1", context=str(number))  # through the guest; what follows has a stream of its own
        sandbox.variables.set("x", bytes(200_000), str(number))
        assert sandbox.run_code("len(x)", context=str(number)).text == "200000"


def test_tables_pass(box):
    frame = pd.DataFrame({"i": [1, 2], "s": ["x", None]}, index=["r", "s"])
    box.variables.set("frame", frame)
    assert box.run_code("type(frame).__name__, frame.loc['r', 's']").text == "('DataFrame', 'x')"
    pd.testing.assert_frame_equal(box.variables.get("frame"), frame)
    pd.testing.assert_series_equal(box.variables.get("frame")["i"], frame["i"])
    box.variables.set("polar", pl.DataFrame({"a": [1, 2]}))
    assert box.run_code("polar['a'].sum()").text == "3"
    assert box.variables.get("polar").equals(pl.DataFrame({"a": [1, 2]}))
    box.variables.set("arrow", pa.table({"a": [1, 2]}))
    assert box.variables.get("arrow").equals(pa.table({"a": [1, 2]}))


def test_a_library_that_is_missing_inside_or_outside_is_named(sandbox, make, monkeypatch):
    bare = make()
    with pytest.raises(Unsupported, match=r"needs numpy inside the sandbox.*packages="):
        bare.variables.set("x", np.zeros(1))
    bare.run_code(LIBRARIES)
    bare.variables.set("x", np.zeros(1))
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(Unsupported, match=r"needs numpy outside.*pip install"):
        bare.variables.get("x")


def test_no_library_is_imported_here_before_a_value_needs_it():
    script = (
        "import sys\nfrom atoll import Sandbox\n"
        "with Sandbox.create('fake') as box:\n"
        f"    box.run_code({LIBRARIES!r})\n"
        "    box.variables.set('x', [1]); box.variables.get('x'); box.variables.list()\n"
        "    heavy = {'numpy', 'pandas', 'pyarrow', 'polars', 'cloudpickle', 'pickle'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
        "    box.run_code('import numpy; a = numpy.zeros(3)'); box.variables.get('a')\n"
        "    assert 'numpy' in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        ({}, b""), ({"value": 1, "size": 0}, b""), ({"value": {"kind": "json"}, "size": 5}, b"1"),
        ({"value": {"kind": "json"}, "size": "1"}, b"1"), ({"value": {"kind": "json"}, "size": 1}, b"{"),
        ({"value": {"kind": "pickle"}, "size": 1}, b"."), ({"value": {"kind": "json"}, "size": -1}, b""),
        ({"value": {"kind": "numpy", "dtype": "|O", "shape": [1]}, "size": 8}, b"x" * 8),
        ({"value": {"kind": "numpy", "dtype": "<f8", "shape": [-1]}, "size": 8}, b"x" * 8),
        ({"value": {"kind": "numpy", "dtype": "<f8", "shape": [1 << 40, 1 << 40]}, "size": 8}, b"x" * 8),
        ({"value": {"kind": "arrow", "type": "pandas.DataFrame"}, "size": 8}, b"x" * 8),
        ({"value": {"kind": "arrow", "type": "os.system"}, "size": 8}, b"x" * 8),
    ],
)  # fmt: skip
def test_answers_that_no_honest_guest_gives_are_told_as_such(answer, data):
    with pytest.raises(ProtocolError):
        values.unpack(answer, bytearray(data))


def test_an_honest_answer_is_taken():
    assert values.unpack({"value": {"kind": "json", "marked": False}, "size": 3}, bytearray(b"[1]")) == [1]


def test_a_guest_that_sends_more_than_asked_for_is_cut_off(sandbox):
    """Code of a cell speaks for its context: here it says that a huge value is a small one."""
    sandbox.run_code(
        "import sys\nframe = sys._getframe()\n"
        "while not hasattr(frame.f_globals.get('variables'), 'handle'): frame = frame.f_back\n"
        "handle = frame.f_globals['variables'].handle\n"
        "def liar(namespace, arguments, port):\n    port.send(bytes(1 << 20))\n"
        "    return {'value': {'kind': 'bytes'}, 'size': 10}\n"
        "handle.__globals__['_ACTIONS']['get'] = liar",
        context="liar",
    )
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        sandbox.variables.get("x", "liar", max_size=1000)
    with pytest.raises(ProtocolError, match="announced a value of 10 bytes"):
        sandbox.variables.get("x", "liar")
    assert sandbox.run_code("1 + 1").text == "2"


@pytest.mark.anyio
async def test_awaited_it_is_the_same(aio_sandbox):
    await aio_sandbox.variables.set("x", [1])
    await aio_sandbox.variables.update({"y": b"z"})
    assert await aio_sandbox.variables.get("x") == [1]
    assert [each.name for each in await aio_sandbox.variables.list()] == ["x", "y"]
    await aio_sandbox.variables.clear("x")
    with pytest.raises(InvalidInput):
        await aio_sandbox.variables.get("x")


def test_a_repr_that_hangs_does_not_hold_up_the_list(sandbox):
    hangs = "class H:\n    def __repr__(self): time.sleep(1000)\n    __len__ = __sizeof__ = __repr__\n"
    sandbox.run_code("import time\n" + hangs + "h = [H()]", context="hangs")
    assert [each.name for each in sandbox.variables.list("hangs")] == ["H", "h"]
