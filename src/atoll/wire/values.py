"""A value on its way between host and guest: a form in JSON, and bytes. Nothing is ever pickled.

| kind | form | bytes |
|---|---|---|
| `json` | `marked` | the text, see `plain` |
| `bytes`, `bytearray` | | the content |
| `numpy` | `dtype`, `shape` | the elements, in C order |
| `arrow` | `type`, `unnamed`? | an Arrow stream, see `tables` |

Both sides use this module; what it decodes may come from anybody.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Union

from . import dtypes, plain, tables
from .plain import Unfit
from .tables import Buffer, Load, Missing

MAX_SIZE = 1 << 30
"""Of one value, unless another limit is asked for."""

WAYS_OUT = (
    "None, bool, int, float, str, list, dict with text keys, bytes, numpy arrays, and tables of pandas, polars or "
    "pyarrow pass; for anything else run code that turns it into one of these, or write a file"
)


class Packed(NamedTuple):
    form: Dict[str, Any]
    data: Buffer


def pack(value: Any, load: Load) -> Packed:
    """How a value travels. A large one is not copied where its own memory can be sent.

    Args:
        load: imports a library by its name, or raises Missing.

    Raises:
        Unfit: it is of a type, or holds one, that does not pass; the message says so without a subject.
        Missing: a library that this would need.
    """
    kind = type(value)
    if isinstance(value, (bytes, bytearray)):
        return Packed({"kind": "bytearray" if isinstance(value, bytearray) else "bytes"}, memoryview(value))
    if kind is memoryview:
        return Packed({"kind": "bytes"}, value.cast("B") if value.c_contiguous and value.nbytes else value.tobytes())
    name = type_name(kind)
    library = name.partition(".")[0]
    if name in tables.TYPES:
        form, data = tables.encode(load, value, name)
        return Packed(form, data)
    if name in ("numpy.ndarray", "numpy.memmap"):
        return _pack_array(load("numpy"), value)
    if library in tables.LIBRARIES or (library == "numpy" and hasattr(value, "__array_finalize__") and value.ndim):
        raise Unfit("is of the type %s" % name)
    text, marked = plain.encode(value, _from_numpy)
    return Packed({"kind": "json", "marked": marked}, text)


def type_name(kind: type) -> str:
    """A type as people write it: `int`, `numpy.ndarray`, `pandas.DataFrame`."""
    module = str(getattr(kind, "__module__", "")).partition(".")[0]
    name = str(kind.__qualname__)
    return name if module in ("builtins", "__main__", "") else "%s.%s" % (module, name)


def _pack_array(numpy: Any, array: Any) -> Packed:
    try:
        form = {"kind": "numpy", "dtype": dtypes.describe(array.dtype), "shape": list(array.shape)}
    except dtypes.BadType as error:
        raise Unfit(str(error)) from None
    if array.nbytes == 0:
        return Packed(form, b"")
    flat = numpy.ascontiguousarray(array).reshape(-1)
    return Packed(form, memoryview(flat.view(numpy.uint8)))


def _from_numpy(value: Any) -> Any:
    """numpy's numbers are Python's, as far as Python has such."""
    if type_name(type(value)).startswith("numpy."):
        item = value.item() if getattr(value, "shape", None) == () else None
        if isinstance(item, (bool, int, float, str)):
            return item
    raise Unfit("holds a value of the type %s" % type_name(type(value)))


def unpack(form: Dict[str, Any], data: Union[bytes, bytearray], load: Load, *, trusted: bool = False) -> Any:
    """The value that a form and its bytes stand for. An array takes over the memory of a bytearray.

    Raises:
        Unfit: they stand for none.
        Missing: a library that this side does not have.
    """
    kind = form.get("kind")
    if kind == "json":
        return plain.decode(data, marked=form.get("marked") is True)
    if kind == "bytes":
        return bytes(data)
    if kind == "bytearray":
        return data if isinstance(data, bytearray) else bytearray(data)
    if kind == "numpy":
        return _unpack_array(load("numpy"), form, data)
    if kind == "arrow":
        return tables.decode(load, form, data, trusted=trusted)
    raise Unfit("is of a kind that nobody knows: %s" % ascii(kind)[:100])


def _unpack_array(numpy: Any, form: Dict[str, Any], data: Union[bytes, bytearray]) -> Any:
    try:
        dtype = dtypes.parse(numpy, form.get("dtype"))
        shape = dtypes.shape(form.get("shape"))
        size = dtypes.volume(shape, dtype.itemsize, len(data))
    except dtypes.BadType as error:
        raise Unfit("has an element type or a shape that %s" % error) from None
    if size != len(data):
        raise Unfit("has %d bytes for an array of %d" % (len(data), size))
    try:
        if size == 0:
            return numpy.empty(shape, dtype)
        array = numpy.ndarray(shape, dtype, buffer=data if isinstance(data, bytearray) else bytearray(data))
    except (ValueError, TypeError, MemoryError) as error:
        raise Unfit("is no array: %s" % str(error)[:200]) from None
    _check_text(numpy, array)
    return array


def _check_text(numpy: Any, array: Any) -> None:
    """Texts in arrays are bare code points, and Python ends badly over one that is none."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            _check_text(numpy, array[name])
    elif array.dtype.kind == "U" and array.dtype.itemsize:
        flat = (
            numpy.ascontiguousarray(array)
            .reshape(-1)
            .view(array.dtype.str.replace("U%d" % (array.dtype.itemsize // 4), "u4"))
        )
        if flat.size and flat.max() > 0x10FFFF:
            raise Unfit("has a text with a character that does not exist")


__all__ = ["MAX_SIZE", "WAYS_OUT", "Missing", "Packed", "Unfit", "pack", "type_name", "unpack"]
