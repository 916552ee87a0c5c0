"""Values between host and guest: exact, never pickled, and never believed."""

import importlib
import json
import math
import random
import struct
import sys
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from atoll.guest import brief, variables
from atoll.guest.refusal import Refused
from atoll.wire import dtypes, plain, tables, values
from atoll.wire.values import Missing, Unfit


def load(name):
    return importlib.import_module(name)


def passed(value, *, trusted=False):
    """As it is at the other end."""
    form, data = values.pack(value, load)
    form = json.loads(json.dumps(form))
    return values.unpack(form, bytearray(data), load, trusted=trusted)


def unfit(value):
    with pytest.raises(Unfit) as caught:
        passed(value)
    return str(caught.value)


def rejected(form, data=b""):
    with pytest.raises(Unfit) as caught:
        values.unpack(form, bytearray(data), load)
    return str(caught.value)


def same(one, other):
    """Equal in type and value, all the way down; nan is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other) or (math.isnan(one) and math.isnan(other))
    return one == other


texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
integers = st.integers() | st.integers(-5, 5).map(lambda n: n * 7**4000)
scalars = st.none() | st.booleans() | integers | st.floats() | texts
jsons = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=20
)


@given(jsons)
@settings(deadline=None)
def test_plain_values_pass_exactly(value):
    assert same(passed(value), value)


@given(st.binary(), st.sampled_from([bytes, bytearray]))
@settings(deadline=None)
def test_bytes_pass_exactly(content, kind):
    assert same(passed(kind(content)), kind(content))


def test_views_pass_as_bytes():
    assert passed(memoryview(b"abcdef")[::2]) == b"ace"
    assert passed(memoryview(b"")) == b""
    assert passed(memoryview(np.arange(3, dtype="<i2"))) == b"\0\0\1\0\2\0"


def test_tuples_and_subclasses_pass_as_what_they_are_at_heart():
    class Number(int):
        pass

    class Text(str):
        __slots__ = ()

        def __str__(self):
            return "another"

    class Table(dict):
        pass

    assert same(passed((1, (2,), [])), [1, [2], []])
    assert same(passed([Number(3), True, Text("x"), Table({Text("k"): 1})]), [3, True, "x", {"k": 1}])


def test_numbers_of_numpy_pass_as_numbers_of_python():
    assert same(passed(np.float64(1.5)), 1.5)
    value = {"i": np.int8(-3), "u": np.uint64(2**64 - 1), "f": np.float32(0.5), "b": np.True_, "s": np.str_("x")}
    assert same(passed(value), {"i": -3, "u": 2**64 - 1, "f": 0.5, "b": True, "s": "x"})


def test_what_does_not_pass_is_refused_by_its_name():
    assert unfit({1, 2}) == "holds a value of the type set"
    assert unfit([[1j]]) == "holds a value of the type complex"
    assert unfit({1: 2}) == "has a key of the type int, and JSON has texts as keys only"
    assert unfit({None: 2}).startswith("has a key of the type NoneType")
    assert unfit([np.datetime64("2020")]) == "holds a value of the type numpy.datetime64"
    assert unfit(np.longdouble(1)) == "holds a value of the type numpy.longdouble"
    assert unfit(np.ma.zeros(3)) == "is of the type numpy.MaskedArray"
    assert unfit(np.array([object()])) == "holds Python objects"
    assert unfit(pd.Index([1])) == "is of the type pandas.Index"
    assert "holds a" in unfit([object()])
    assert unfit([b"x"]) == "holds a value of the type bytes"


def test_what_is_too_deep_or_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    assert "deep" in unfit(loop)
    deep = 1
    for _ in range(plain.DEPTH_LIMIT):
        deep = [deep]
    assert same(passed(deep), deep)
    assert "deep" in unfit([deep])


def test_what_is_small_in_memory_and_huge_as_text_is_refused(monkeypatch):
    monkeypatch.setattr(plain, "TEXT_LIMIT", 10_000)
    wide = [1] * 10
    for _ in range(20):
        wide = [wide, wide]
    assert "parts" in unfit(wide)
    assert "bytes" in unfit("x" * 10_001)
    assert passed("x" * 9000) == "x" * 9000


safe = (
    hnp.scalar_dtypes()
    | hnp.unicode_string_dtypes(max_len=5)
    | hnp.byte_string_dtypes(max_len=5)
    | hnp.array_dtypes(max_size=3, allow_subarrays=True)
    | hnp.nested_dtypes(max_itemsize=200)
)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_arrays_of_every_type_and_shape_pass_exactly(data):
    dtype = data.draw(safe)
    array = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)))
    if dtype.base.itemsize == 0:
        return  # numpy has no fixed form for them
    if "(('" in str(dtype) or '(("' in str(dtype):
        assert "titles" in unfit(array)
        return
    if data.draw(st.booleans()):
        array = array.T
    if array.ndim and data.draw(st.booleans()):
        array = array[::-1]
    there = passed(array)
    assert there.dtype == array.dtype
    assert there.shape == array.shape
    assert there.tobytes() == array.tobytes()
    assert there.flags.writeable


def test_an_array_is_neither_copied_when_packed_nor_when_unpacked():
    array = np.arange(1000, dtype="<f8").reshape(10, 100)
    form, data = values.pack(array, load)
    assert np.shares_memory(np.frombuffer(data, "u1"), array)
    buffer = bytearray(data)
    there = values.unpack(form, buffer, load)
    buffer[:8] = struct.pack("<d", 7.0)
    assert there[0, 0] == 7.0


def test_fields_with_gaps_pass_and_others_are_refused():
    aligned = np.zeros(3, np.dtype([("a", "u1"), ("b", "<f8")], align=True))
    assert passed(aligned).dtype == aligned.dtype
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 2]})
    assert "overlap" in unfit(np.zeros(1, overlapping))


ARRAY = {"kind": "numpy", "dtype": "<f8", "shape": [2]}


@pytest.mark.parametrize(
    "dtype",
    [
        "O", "|O", "|O8", "object", "<f8,<f8", "f8", "<f999999999", "<U999999999", "<M8[foo]", "<M8[ns", "", None, 1,
        {}, [],
        [["a"]], [["a", "O"]], [["a", "<f8"], ["a", "<f8"]], [["", -1]], [["", 1 << 40], ["a", "<f8"]], [[1, "<f8"]],
        [["a", "<f8", [-1]]], [["a", "<f8", [1 << 62]]], [["a", "<f8", [1 << 20, 1 << 20]]], [["a", "<f8", 3]],
        [["a", [["b", [["c", "O"]]]]]], "<f8\0", "(2,)<f8", [["a", "<f8", [], []]],
    ],
)  # fmt: skip
def test_types_that_no_honest_guest_sends_are_rejected(dtype):
    rejected({**ARRAY, "dtype": dtype}, b"x" * 16)


def test_a_type_nested_without_end_is_rejected():
    described = "<f8"
    for _ in range(100):
        described = [["a", described]]
    rejected({**ARRAY, "dtype": described}, b"x" * 16)


@pytest.mark.parametrize(
    "shape",
    [[-1], [3], [1], [1 << 62], [1 << 64], [1 << 40, 1 << 40], [1 << 61, 0], [2.0], ["2"], [True, 2], None, 2, {},
     [1] * 33, [2, 1 << 61, 1 << 61], [0, 1 << 60]],
)  # fmt: skip
def test_shapes_that_lie_are_rejected_before_anything_is_made(shape):
    rejected({**ARRAY, "shape": shape}, b"x" * 16)


def test_sizes_that_lie_are_rejected():
    assert "15 bytes for an array of 16" in rejected(ARRAY, b"x" * 15)
    rejected(ARRAY, b"")
    rejected(ARRAY, b"x" * 17)
    assert values.unpack(ARRAY, bytearray(16), load).tolist() == [0.0, 0.0]


def test_texts_with_characters_that_do_not_exist_are_rejected():
    bad = struct.pack("<II", 0x41, 0x110000)
    rejected({"kind": "numpy", "dtype": "<U2", "shape": [1]}, bad)
    rejected({"kind": "numpy", "dtype": ">U2", "shape": []}, struct.pack(">II", 0x41, 0xFFFFFFFF))
    rejected({"kind": "numpy", "dtype": [["a", "|u1"], ["t", "<U2", [1]]], "shape": [1]}, b"x" + bad)
    assert values.unpack({"kind": "numpy", "dtype": "<U1", "shape": []}, bytearray(b"A\0\0\0"), load) == "A"


@pytest.mark.parametrize("kind", ["pickle", "", None, 1, [], {}])
def test_kinds_that_nobody_knows_are_rejected(kind):
    rejected({"kind": kind}, b"x")


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (b"", False), (b"{", False), (b"\xff", False), (b"nul", False), (b"[" * 200_000, False), (b"1" * 5000, False),
        (b'{"i":"zz"}', True), (b'{"i":1}', True), (b'{"a":1}', True), (b'{"d":1}', True),
        (b'{"i":"0x1","d":{}}', True),
    ],
)  # fmt: skip
def test_texts_that_are_no_values_are_rejected(text, marked):
    rejected({"kind": "json", "marked": marked}, text)


def test_an_endless_number_costs_no_time():
    began = time.monotonic()
    rejected({"kind": "json"}, b"[" + b"9" * (8 << 20) + b"]")
    assert values.unpack({"kind": "json", "marked": True}, b'{"i":"0x' + b"f" * (8 << 20) + b'"}', load) > 0
    assert time.monotonic() - began < 20


FRAME = pd.DataFrame(
    {
        "i": [1, 2], "f": [1.5, math.nan], "s": ["x", None], "t": pd.to_datetime(["2020-01-01", None]),
        "c": pd.Categorical(["a", "b"]), "b": [True, False], "n": [None, None],
    },
    index=pd.Index(["r", "s"], name="rows"),
)  # fmt: skip


def test_tables_of_pandas_pass():
    pd.testing.assert_frame_equal(passed(FRAME), FRAME)
    pd.testing.assert_frame_equal(passed(FRAME, trusted=True), FRAME)
    pd.testing.assert_frame_equal(passed(FRAME[:0]), FRAME[:0])
    multi = FRAME.set_index("i", append=True)
    pd.testing.assert_frame_equal(passed(multi), multi)
    for name in (None, "x", 3):
        series = pd.Series([1, 2, 3], name=name)
        pd.testing.assert_series_equal(passed(series), series)


def test_tables_of_polars_and_pyarrow_pass():
    frame = pl.DataFrame({"a": [1, None], "s": ["x", "y"], "l": [[1], []], "d": [{"k": 1}, None]})
    assert passed(frame).equals(frame)
    assert passed(frame, trusted=True).equals(frame)
    assert passed(frame["s"]).equals(frame["s"])
    table = pa.table({"a": [1, 2], "s": ["x", None], "d": pa.array(["q", "q"]).dictionary_encode()})
    assert passed(table).equals(table)
    batch = table.to_batches()[0]
    assert passed(batch).equals(batch)
    assert passed(batch[:0]).equals(batch[:0])
    assert passed(table[:0]).equals(table[:0])


def test_columns_that_arrow_cannot_hold_are_refused():
    assert "no form in Arrow" in unfit(pd.DataFrame({"a": [object(), 1]}))
    assert "no form in Arrow" in unfit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    assert "Python objects" in unfit(pl.DataFrame({"a": [object()]}))


def stream(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


TABLE = {"kind": "arrow", "type": "pyarrow.Table"}
GOOD = pa.table({"a": list(range(100)), "s": ["text"] * 100, "d": pa.array(["q"] * 100).dictionary_encode()})


def test_compressed_streams_are_rejected_and_plain_ones_pass():
    assert values.unpack(TABLE, bytearray(stream(GOOD)), load).equals(GOOD)
    for codec in ("lz4", "zstd"):
        assert rejected(TABLE, stream(GOOD, compression=codec)) == "is compressed"


def test_a_compressed_dictionary_is_rejected():
    only = pa.table({"d": pa.array(["q" * 100]).dictionary_encode()})
    assert rejected(TABLE, stream(only, compression="zstd")) == "is compressed"


def test_streams_that_stand_for_more_than_they_hold_are_rejected():
    nothing = pa.table({"n": pa.nulls(10_000_000)})
    assert "without content" in rejected(TABLE, stream(nothing))
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), pa.array([1]))
    assert "run_end" in rejected(TABLE, stream(pa.table({"r": ends})))
    assert "string_view" in rejected(TABLE, stream(pa.table({"v": pa.array(["x" * 100], pa.string_view())})))
    nested = pa.array([["x"]], pa.list_(pa.string_view()))
    assert "string_view" in rejected(TABLE, stream(pa.table({"v": nested})))


def test_cut_streams_are_rejected_or_whole_in_themselves():
    whole = stream(GOOD)
    for size in range(0, len(whole), 7):
        try:
            there = values.unpack(TABLE, bytearray(whole[:size]), load)
        except Unfit:
            continue
        assert there.num_rows in (0, 100)


def test_streams_with_wrong_bytes_never_get_further_than_an_error():
    whole = stream(GOOD)
    chance = random.Random(7)
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            values.unpack(TABLE, broken, load).to_pylist()
        except (Unfit, UnicodeDecodeError, pa.ArrowException):
            continue


def test_types_of_tables_that_nobody_knows_are_rejected():
    for name in ("pandas.read_pickle", "os.system", "", None, 1, "pyarrow.Array"):
        rejected({"kind": "arrow", "type": name}, stream(GOOD))
    assert "series with 3" in rejected({"kind": "arrow", "type": "pandas.Series"}, stream(GOOD))


def test_an_old_pyarrow_is_not_used(monkeypatch):
    monkeypatch.setattr(pa, "__version__", "14.0.0")
    with pytest.raises(Missing) as caught:
        values.unpack(TABLE, bytearray(stream(GOOD)), load)
    assert caught.value.library == "pyarrow>=14.0.1"


def test_a_library_that_is_missing_is_told_as_such():
    def without(name):
        raise Missing(name, "gone")

    for value in (np.zeros(1), pd.DataFrame(), pl.DataFrame(), pa.table({})):
        with pytest.raises(Missing):
            values.pack(value, without)
    with pytest.raises(Missing):
        values.unpack(ARRAY, bytearray(16), without)
    with pytest.raises(Missing):
        values.unpack(TABLE, bytearray(stream(GOOD)), without)


def test_descriptions_of_types_are_stable():
    assert dtypes.describe(np.dtype("<f8")) == "<f8"
    assert dtypes.describe(np.dtype([("a", "<i4"), ("b", "<f8", (2,))])) == [["a", "<i4"], ["b", "<f8", [2]]]
    assert set(tables.LIBRARIES) == {"pandas", "polars", "pyarrow"}


class FakePort:
    def __init__(self, data=b""):
        self.data = data
        self.sent = b""

    def send(self, data):
        self.sent += bytes(data)

    def receive(self, size):
        assert size == len(self.data)
        return bytearray(self.data)


def refused(namespace, port=None, **request):
    with pytest.raises(Refused) as caught:
        variables.handle(namespace, request, port or FakePort())
    return caught.value


def test_get_set_list_and_clear():
    namespace = {"__name__": "__main__", "sys": sys, "_hidden": 1, "x": [1], "f": len}
    port = FakePort()
    assert variables.handle(namespace, {"act": "get", "name": "x"}, port) == {
        "value": {"kind": "json", "marked": False},
        "size": 3,
    }
    assert port.sent == b"[1]"
    port = FakePort(b'"new"')
    variables.handle(namespace, {"act": "set", "name": "y", "value": {"kind": "json"}, "size": 5}, port)
    assert namespace["y"] == "new"
    port = FakePort()
    answer = variables.handle(namespace, {"act": "list"}, port)
    assert answer == {"size": len(port.sent), "left_out": 0}
    assert [(item["name"], item["type"]) for item in json.loads(port.sent)] == [
        ("x", "list"), ("f", "builtin_function_or_method"), ("y", "str"),
    ]  # fmt: skip
    assert variables.handle(namespace, {"act": "clear", "names": ["x", "x"]}, FakePort()) == {"cleared": 1}
    assert variables.handle(namespace, {"act": "clear"}, FakePort()) == {"cleared": 2}
    assert set(namespace) == {"__name__", "sys", "_hidden"}


def test_what_is_asked_wrongly_is_refused_and_changes_nothing():
    namespace = {"x": {1, 2}, "big": bytes(100)}
    assert "There is no variable 'y'; there are: x, big." in refused(namespace, act="get", name="y").message
    assert "holds a value of the type set" in refused(namespace, act="get", name="x").message
    assert "run code" in refused(namespace, act="get", name="x").message
    assert "100 bytes" in refused(namespace, act="get", name="big", limit=99).message
    assert "no variable 'y'" in refused(namespace, act="clear", names=["x", "y"]).message
    for name in ("a b", "", "1", "class", "__name__", "x.y"):
        value = {"kind": "json"}
        refusal = refused(namespace, FakePort(b"1"), act="set", name=name, value=value, size=1)
        assert refusal.code == "invalid_input"
    refused(namespace, act="explode")
    refused(namespace, act=["get"])
    refused(namespace, FakePort(b"x"), act="set", name="z", value={"kind": "json"}, size=1)
    assert set(namespace) == {"x", "big"}


def test_short_texts_run_no_code_of_the_value():
    class Hostile:
        def __init__(self):
            self.inner = [1, 2]

        def __getattr__(self, name):
            raise AssertionError

        def __repr__(self):
            raise AssertionError

        __str__ = __len__ = __sizeof__ = __hash__ = __eq__ = __iter__ = __repr__

    assert brief.text_of(Hostile()).startswith("<tests")
    assert "inner=[1, 2]" in brief.text_of(Hostile())
    assert "Hostile" in brief.text_of([{"x": Hostile()}])
    assert brief.size_of(Hostile()) > 0


def test_short_texts_are_short_and_quick_for_whatever_is_large():
    loop = {}
    loop["loop"] = loop
    deep = []
    for _ in range(100_000):
        deep = [deep]
    began = time.monotonic()
    for value in (
        "x" * 10**8, 10**1000000, list(range(10**6)), {n: n for n in range(10**5)}, loop, deep, set(range(10**5)),
        b"\0" * 10**8, [["x" * 1000] * 1000] * 1000, np.zeros((1000, 1000)), FRAME, "\ud800",
        lambda a, b: a, Exception, range(9),
    ):  # fmt: skip
        text = brief.text_of(value)
        assert 0 < len(text) <= brief.LIMIT
        json.dumps(text).encode("ascii")
        assert brief.size_of(value) >= 0
    assert time.monotonic() - began < 20


def test_short_texts_of_what_people_use():
    assert brief.text_of({"a": [1, 2.5, None, True], "b": ("x",)}) == "{'a': [1, 2.5, None, True], 'b': ('x',)}"
    assert brief.text_of(np.zeros((2, 3), "f4")) == "numpy.ndarray 2 × 3 float32"
    assert brief.text_of(FRAME) == "pandas.DataFrame 2 × 7"
    assert brief.size_of(np.zeros(1000)) == 8000
    assert brief.size_of(pl.DataFrame({"a": [1, 2]})) == 16
    assert brief.size_of(FRAME) > 0
    assert brief.text_of([]) == "[]"
    assert brief.text_of(set()) == "set()"


def test_the_sides_of_an_empty_array_may_be_large_but_not_endless():
    assert passed(np.empty((1000, 0, 5))).shape == (1000, 0, 5)
