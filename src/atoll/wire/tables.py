"""Tables of pandas, polars and pyarrow as one Arrow stream.

The libraries are those of whichever side this runs on: `load` imports one by its name, or raises `Missing`.
What comes from a guest is taken apart by pyarrow only, uncompressed, and checked in full.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple, Union

from . import hollow, streams
from .plain import Unfit

Load = Callable[[str], Any]
Buffer = Union[bytes, bytearray, memoryview]

TYPES = (
    "pandas.DataFrame",
    "pandas.Series",
    "polars.DataFrame",
    "polars.Series",
    "pyarrow.Table",
    "pyarrow.RecordBatch",
)
LIBRARIES = frozenset(name.partition(".")[0] for name in TYPES)

# Before, a stream could name a pickle that reading it would load (CVE-2023-47248).
_OLDEST_PYARROW = (14, 0, 1)
# With these a small stream can stand for values of any size.
_UNBOUNDED = ("run_end_encoded", "string_view", "binary_view", "list_view", "large_list_view", "dense_union")
_NESTED_CATEGORIES = "has categories inside lists or structures, which do not pass; make texts of them"


class Missing(Exception):
    """A library that this side would need. `library` is what to install, `why` the reason."""

    def __init__(self, library: str, why: str) -> None:
        super().__init__(library)
        self.library = library
        self.why = why


def encode(load: Load, value: Any, name: str) -> Tuple[Dict[str, Any], Buffer]:
    """The form and the stream of a value whose type is `name`, one of TYPES.

    Raises:
        Missing: pyarrow, for what needs it.
        Unfit: it has a column that Arrow has no type for.
    """
    form: Dict[str, Any] = {"kind": "arrow", "type": name}
    library, _, kind = name.partition(".")
    try:
        if kind == "Series":
            form["unnamed"] = library == "pandas" and value.name is None
            value = value.to_frame()
        if library == "polars":
            return form, _polars_stream(load("polars"), value)
        return form, _arrow_stream(load("pyarrow"), value, library, kind)
    except (Missing, Unfit):
        raise
    except Exception as error:  # noqa: BLE001  # each of the libraries has errors of its own
        raise Unfit("has no form in Arrow: %s" % str(error)[:300]) from None


def _polars_stream(polars: Any, frame: Any) -> Buffer:
    if any("Object" in str(kind) for kind in frame.schema.values()):
        raise Unfit("holds Python objects")
    for kind in frame.schema.values():
        _check_polars_type(kind, nested=False)
    stream = frame.write_ipc_stream(None, compression="uncompressed", compat_level=polars.CompatLevel.oldest())
    content: memoryview = stream.getbuffer()
    return content


def _check_polars_type(kind: Any, *, nested: bool) -> None:
    if nested and str(kind).startswith(("Categorical", "Enum")):
        raise Unfit(_NESTED_CATEGORIES)
    inner = getattr(kind, "inner", None)
    for member in [inner] if inner is not None else [field.dtype for field in getattr(kind, "fields", ())]:
        _check_polars_type(member, nested=True)


def _arrow_stream(pyarrow: Any, value: Any, library: str, kind: str) -> Buffer:
    if library == "pandas":
        value = pyarrow.Table.from_pandas(value)
    elif kind == "RecordBatch":
        value = pyarrow.Table.from_batches([value])
    _check_types(pyarrow, value.schema)  # so that who has the value hears it, not who asked for it
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, value.schema) as writer:
        if value.num_rows:
            writer.write_table(value)
        else:
            writer.write_batch(_one_batch(pyarrow, value))  # else the categories of its columns would not come
    return memoryview(sink.getvalue())


def _one_batch(pyarrow: Any, table: Any) -> Any:
    columns = [column.combine_chunks() for column in table.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=table.schema)


def decode(load: Load, form: Dict[str, Any], data: Buffer, *, trusted: bool) -> Any:
    """The value of a stream. `trusted` is for a guest, which believes its host.

    Raises:
        Missing: a library that this side does not have, or an old one.
        Unfit: it is no such stream.
    """
    name = form.get("type")
    if name not in TYPES:
        raise Unfit("is of a type that nobody knows: %s" % ascii(name)[:100])
    library, _, kind = name.partition(".")
    try:
        if library == "polars" and trusted:
            frame = load("polars").read_ipc_stream(bytes(data))
        else:
            frame = _converted(load, _table(load("pyarrow"), data, boxed=library == "pandas", trusted=trusted), library)
        if kind == "RecordBatch":
            return _one_batch(load("pyarrow"), frame)
        return _column(frame, form, library) if kind == "Series" else frame
    except (Missing, Unfit):
        raise
    except Exception as error:  # noqa: BLE001  # each of the libraries has errors of its own
        raise Unfit("is no Arrow stream: %s" % str(error)[:300]) from None


def _converted(load: Load, table: Any, library: str) -> Any:
    if library == "pandas":
        load("pandas")  # whose absence is to be told as such
        return table.to_pandas()
    if library == "polars":
        _check_categories(table.schema)
        return load("polars").from_arrow(table)
    return table


def _check_categories(schema: Any) -> None:
    """polars has categories that are texts, and repeats others in every row."""
    for kind in schema.types:
        if str(kind).startswith("dictionary<") and not str(kind.value_type).endswith(("string", "null")):
            raise Unfit("has categories of the type %s" % str(kind.value_type)[:100])


def _column(frame: Any, form: Dict[str, Any], library: str) -> Any:
    if frame.shape[1] != 1:
        raise Unfit("is a series with %d columns" % frame.shape[1])
    if library == "polars":
        return frame.to_series(0)
    series = frame.iloc[:, 0]
    if form.get("unnamed") is True:
        series.name = None
    return series


def _table(pyarrow: Any, data: Buffer, *, boxed: bool, trusted: bool) -> Any:
    if not trusted:
        _check_version(pyarrow)
        streams.check(pyarrow, data)
    with pyarrow.ipc.open_stream(pyarrow.py_buffer(data)) as reader:
        if not trusted:
            _check_types(pyarrow, reader.schema)
        table = reader.read_all()
    if not trusted:
        table.validate(full=True)
        hollow.check(pyarrow, table, len(data), boxed=boxed)
    return table


def _check_version(pyarrow: Any) -> None:
    version = tuple(int(part) for part in pyarrow.__version__.split(".")[:3] if part.isdigit())
    if version < _OLDEST_PYARROW:
        raise Missing("pyarrow>=%s" % ".".join(map(str, _OLDEST_PYARROW)), "older ones trust what they read")


def _check_types(pyarrow: Any, schema: Any) -> None:
    """Raises Unfit for a schema with columns whose content has no bound."""
    for kind in schema.types:
        _check_type(pyarrow, kind, 0)


def _check_type(pyarrow: Any, kind: Any, depth: int) -> None:
    name = str(kind).partition("<")[0]
    if depth > 64 or name in _UNBOUNDED:
        raise Unfit("has columns of the type %s" % str(kind)[:100])
    if name == "dictionary":
        if depth:
            raise Unfit(_NESTED_CATEGORIES)
        _check_type(pyarrow, kind.value_type, depth + 1)
    elif isinstance(kind, pyarrow.BaseExtensionType):
        _check_type(pyarrow, kind.storage_type, depth + 1)
    else:
        for index in range(kind.num_fields):
            _check_type(pyarrow, kind.field(index).type, depth + 1)
