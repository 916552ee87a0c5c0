"""Arrow streams and arrays of few bytes that claim to be large: the reader refuses them before it pays for them."""

import importlib
import json
import struct
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from atoll.wire import values
from atoll.wire.values import Unfit

FORMS = {name: {"kind": "arrow", "type": name} for name in ("pandas.DataFrame", "polars.DataFrame", "pyarrow.Table")}


def stream(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytearray(sink.getvalue())


def read(form, data):
    return values.unpack(form, bytearray(data), importlib.import_module)


def rejected(form, data):
    with pytest.raises(Unfit) as caught:
        read(form, data)
    return str(caught.value)


def same(value):
    packed = values.pack(value, importlib.import_module)
    return read(packed.form, packed.data)


def large_list(child):
    return pa.LargeListArray.from_arrays(pa.array([0, len(child)], pa.int64()), child)


def zero_width(count):
    return pa.Array.from_buffers(pa.binary(0), count, [None, pa.py_buffer(b"")])


def fields_of_none(count):
    return pa.Array.from_buffers(pa.struct([]), count, [None])


def bits(count):
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes(count // 8 + 1))])


def categories(count=2000, size=1_000_000):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(["x" * size]))


MANY = 100_000_000
HOLLOW = {
    "nulls": lambda: pa.nulls(MANY),
    "nulls in a list": lambda: large_list(pa.nulls(MANY)),
    "nulls in lists of fixed size": lambda: pa.FixedSizeListArray.from_arrays(pa.nulls(MANY), MANY // 10),
    "nulls in a structure": lambda: pa.StructArray.from_arrays([pa.nulls(MANY)], ["f"]),
    "nulls in a list in a list": lambda: large_list(large_list(pa.nulls(MANY))),
    "nulls in a map": lambda: pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), ["a", "b"], pa.nulls(2)),
    "texts of no width": lambda: zero_width(MANY),
    "texts of no width in a list": lambda: large_list(zero_width(MANY)),
    "structures without fields": lambda: large_list(fields_of_none(MANY)),
    "nulls in an extension": lambda: pa.ExtensionArray.from_storage(pa.opaque(pa.null(), "n", "v"), pa.nulls(MANY)),
    "nulls as categories": lambda: pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.nulls(MANY)),
}
HONEST = ("nulls in a map",)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", [name for name in HOLLOW if name not in HONEST])
def test_elements_without_content_are_counted_at_any_depth(name, form):
    data = stream(pa.table({"a": HOLLOW[name]()}))
    assert len(data) < 2000
    assert "without content" in rejected(form, data)


def test_few_elements_without_content_pass():
    for array in (pa.nulls(10_000), large_list(pa.nulls(10_000)), zero_width(3), HOLLOW["nulls in a map"]()):
        table = pa.table({"a": array})
        assert read(FORMS["pyarrow.Table"], stream(table)).equals(table)
    frame = pd.DataFrame({"a": [None] * 10_000, "l": [[]] * 10_000})
    assert same(frame)["a"].isna().all()
    empties = pl.DataFrame({"l": [[], [None]], "s": [{"k": None}, None]})
    assert same(empties).equals(empties)


@pytest.mark.parametrize("nest", [large_list, lambda array: pa.StructArray.from_arrays([array], ["f"])])
def test_categories_inside_of_others_do_not_pass(nest):
    table = pa.table({"a": nest(categories(size=10))})
    for form in FORMS.values():
        assert "categories inside" in rejected(form, stream(table))
    with pytest.raises(Unfit, match="make texts of them"):
        values.pack(table, importlib.import_module)
    flat = pa.table({"a": categories(size=10)})
    assert same(flat).equals(flat)


def test_categories_inside_of_others_do_not_pass_from_polars():
    kind = pl.List(pl.Categorical)
    with pytest.raises(Unfit, match="make texts of them"):
        values.pack(pl.DataFrame({"a": [["x"]]}, schema={"a": kind}), importlib.import_module)
    flat = pl.DataFrame({"a": ["x", "y"], "e": ["q", "q"]}, schema={"a": pl.Categorical, "e": pl.Enum(["q"])})
    assert same(flat)["a"].to_list() == ["x", "y"]


def test_categories_that_are_no_texts_do_not_pass_to_polars():
    for kinds in (pa.array([[1] * 1000]), pa.array([b"x" * 1000]), pa.array([{"a": 1}])):
        table = pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), kinds)})
        assert "categories of the type" in rejected(FORMS["polars.DataFrame"], stream(table))
        assert read(FORMS["pyarrow.Table"], stream(table)).equals(table)


def test_structures_of_bits_are_bounded_where_each_becomes_an_object():
    deep = bits(400_000)
    for _ in range(20):
        deep = pa.StructArray.from_arrays([deep], ["f"])
    table = pa.table({"a": deep})
    assert "structures" in rejected(FORMS["pandas.DataFrame"], stream(table))
    assert read(FORMS["pyarrow.Table"], stream(table)).equals(table)
    honest = pd.DataFrame({"a": [{"k": 1, "v": True}] * 200_000})
    pd.testing.assert_frame_equal(same(honest), honest)


def test_one_part_of_a_stream_is_not_the_content_of_many_columns():
    table = pa.table({"a": np.arange(1000), "b": np.arange(1000)})
    data = bytes(stream(table))
    assert read(FORMS["pyarrow.Table"], data).equals(table)
    honest = struct.pack("<8q", 0, 0, 0, 8000, 8000, 0, 8000, 8000)
    assert data.count(honest) == 1
    shared = struct.pack("<8q", 0, 0, 0, 16000, 8000, 0, 0, 16000)
    assert "stand for" in rejected(FORMS["pyarrow.Table"], data.replace(honest, shared))


def test_a_dictionary_that_grows_is_rejected():
    batches = [pa.record_batch({"a": pa.DictionaryArray.from_arrays([0], kinds)}) for kinds in (["x"], ["x", "y"])]
    table = pa.Table.from_batches(batches)
    for form in FORMS.values():
        assert "grows" in rejected(form, stream(table, emit_dictionary_deltas=True))
    assert read(FORMS["pyarrow.Table"], stream(table)).to_pylist() == table.to_pylist()


def schema_only(order, columns):
    """A stream by hand: columns that are all one and the same field of nulls."""
    head = struct.pack("<I5H2xiIhBx", 16, 10, 12, 8, 10, 4, 12, 16, 4, 1)
    schema = struct.pack("<4HiIhxx", 8, 12, 8, 4, 8, 8, order)
    start = 48
    vtable = start + 4 + 4 * columns
    field = vtable + 16
    vector = struct.pack("<I", columns) + b"".join(
        struct.pack("<I", field - (start + 4 + 4 * index)) for index in range(columns)
    )
    # The field: its name, its kind of type, its type, no dictionary, its children.
    made = struct.pack("<8HiIIIB3x", 16, 20, 4, 0, 16, 8, 0, 12, 16, 16, 28, 28, 1)
    assert len(head + schema) == start
    rest = struct.pack("<I4s4x", 1, b"n") + struct.pack("<HHi", 4, 4, 4) + bytes(16)
    body = head + schema + vector + made + rest
    body += bytes(-len(body) % 8)
    return b"\xff" * 4 + struct.pack("<I", len(body)) + body + b"\xff" * 4 + bytes(4)


def test_a_schema_that_repeats_one_field_or_has_another_byte_order_is_rejected():
    assert read(FORMS["pyarrow.Table"], schema_only(0, 3)).schema.types == [pa.null()] * 3
    assert "byte order" in rejected(FORMS["pyarrow.Table"], schema_only(1, 3))
    assert "repeats" in rejected(FORMS["pyarrow.Table"], schema_only(0, 100_000))


@pytest.mark.parametrize("dtype", ["|S0", "|V0", "<U0", [["a", "|S0"]], [["a", "|S0", [1 << 30]]]])
def test_elements_without_bytes_are_bounded_in_arrays(dtype):
    for shape in ([1 << 32], [1 << 16, 1 << 16], [1 << 21]):
        rejected({"kind": "numpy", "dtype": dtype, "shape": shape}, b"")


def test_some_elements_without_bytes_pass():
    assert read({"kind": "numpy", "dtype": "|V0", "shape": [3]}, b"").shape == (3,)
    assert read({"kind": "numpy", "dtype": "<f8", "shape": [0, 1000]}, b"").shape == (0, 1000)


FLAT = {"null": pa.nulls, "width": zero_width, "empty": fields_of_none, "bits": lambda count: bits(min(count, 1000))}


@st.composite
def arrays(draw, depth=3):
    count = draw(st.sampled_from([0, 1, 7, 1000, 3_000_000]))
    kind = draw(st.sampled_from([*FLAT, *(["list", "fixed", "struct"] if depth else [])]))
    if kind in FLAT:
        return FLAT[kind](count)
    child = draw(arrays(depth=depth - 1))
    if kind == "list":
        return large_list(child)
    if kind == "fixed":
        size = draw(st.sampled_from([1, max(len(child), 1)]))
        return pa.FixedSizeListArray.from_arrays(child[: len(child) // size * size], size)
    return pa.StructArray.from_arrays([child], ["f"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arrays())
def test_whatever_passes_is_small_and_what_is_small_passes(array):
    data = stream(pa.table({"a": array}))
    total, waiting = 0, [array]
    while waiting:
        each = waiting.pop()
        total += len(each)
        if pa.types.is_struct(each.type):
            waiting.extend(each.field(index) for index in range(each.type.num_fields))
        elif pa.types.is_large_list(each.type) or pa.types.is_fixed_size_list(each.type):
            waiting.append(each.values)
    try:
        read(FORMS["pandas.DataFrame"], data)
        complaint = ""
    except Unfit as error:
        complaint = str(error)
    if not complaint:
        assert total < 4 * (8 * len(data) + (1 << 20))
    elif "Not implemented type" not in complaint:  # for which pandas has no form
        assert total > 1 << 17


MEASURE = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from tests.guest import test_forged_streams as forged

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10

def attempt(form, data):
    try:
        forged.read(form, data)
    except forged.Unfit:
        pass

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
for form in forged.FORMS.values():
    attempt(form, forged.stream(forged.pa.table({"a": [1], "l": [[1]], "c": forged.categories(1, 1)})))
made = {name: forged.stream(forged.pa.table({"a": make()})) for name, make in forged.HOLLOW.items()}
structure = forged.pa.StructArray.from_arrays([forged.categories()], ["f"])
made["structure"] = forged.stream(forged.pa.table({"a": structure}))
made["flat"] = forged.stream(forged.pa.table({"a": forged.categories()}))
before, grown = peak(), {}
for name, data in made.items():
    for form in forged.FORMS.values():
        attempt(form, data)
    grown[name] = peak() - before
for dtype in ("|S0", "|V0", "<U0"):
    attempt({"kind": "numpy", "dtype": dtype, "shape": [1 << 32]}, b"")
    grown[dtype] = peak() - before
print(json.dumps(grown))
"""


def test_the_memory_of_the_reader_stays_small(request):
    command = [sys.executable, "-c", MEASURE, str(request.config.rootpath)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert max(grown.values()) < 150, grown
