"""Values on the host's side: what a caller gives is packed, what a hostile guest sends is checked and unpacked.

numpy, pandas, polars and pyarrow are imported when a value needs them, and never before.
"""

from __future__ import annotations

from typing import Any

from ..errors import InvalidInput, ProtocolError, Unsupported
from ..policy.text import shown
from ..wire import values
from ..wire.values import MAX_SIZE, WAYS_OUT, Missing, Packed, Unfit
from . import answers


def pack(value: object, name: str) -> Packed:
    """How a value for the variable `name` travels.

    Raises:
        InvalidInput: values of its type do not pass.
        Unsupported: it needs a library that this side does not have.
    """
    try:
        packed = values.pack(value, _load)
    except Unfit as error:
        raise InvalidInput(f"The value for {shown(name)} {error}.", hint=f"{WAYS_OUT}.") from None
    except Missing as missing:
        raise _missing(missing) from None
    size = memoryview(packed.data).nbytes
    if size > MAX_SIZE:
        raise InvalidInput(f"The value for {shown(name)} takes {size} bytes; at most {MAX_SIZE} pass.")
    return packed


def unpack(answer: answers.Answer, data: bytearray) -> Any:
    """The value of a guest's answer. An array takes over the memory of `data`.

    Raises:
        Unsupported: it needs a library that this side does not have.
        ProtocolError: no honest guest sends such a value.
    """
    form = answers.mapping(answer, "value")
    if answers.integer(answer, "size") != len(data):
        raise ProtocolError(f"The guest announced a value of {answer['size']} bytes and sent {len(data)}.")
    try:
        return values.unpack(dict(form), data, _load)
    except Unfit as error:
        raise ProtocolError(f"The guest sent a value that {error}.") from None
    except Missing as missing:
        raise _missing(missing) from None


def _load(library: str) -> Any:
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise Missing(library, str(error)) from None


def _missing(missing: Missing) -> Unsupported:
    return Unsupported(
        f"This value needs {missing.library} outside the sandbox, in the Python that runs atoll ({missing.why}).",
        hint=f"pip install {missing.library!r}, or let code inside turn the value into plain lists and texts.",
    )
