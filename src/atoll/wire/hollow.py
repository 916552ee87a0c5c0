"""Elements of an Arrow table that cost a stream nothing, and its reader a lot: nulls, and what has no width."""

from __future__ import annotations

from typing import Any, Set, Tuple

from .plain import Unfit

_FEW = 1 << 20
_FEW_BOXES = 1 << 17


def check(pyarrow: Any, table: Any, size: int, *, boxed: bool) -> None:
    """Whether `size` bytes may stand for that many elements, at any depth.

    Args:
        boxed: each structure and each short list becomes an object of Python, as in pandas.

    Raises:
        Unfit: they stand for too many.
    """
    count = _Count(pyarrow)
    for column in table.columns:
        count.add_column(column)
    empty = count.empty + (0 if table.num_columns else table.num_rows)
    if empty > max(8 * size, _FEW):
        raise Unfit("has %d elements without content in %d bytes" % (empty, size))
    if boxed and count.boxes > max(2 * size, _FEW_BOXES):
        raise Unfit("has %d structures in %d bytes" % (count.boxes, size))
    if count.dictionaries > size:
        raise Unfit("has one dictionary for many columns")


class _Count:
    """Of elements without bytes of their own (`empty`), of those whose members alone have some (`boxes`)."""

    def __init__(self, pyarrow: Any) -> None:
        self._pyarrow = pyarrow
        self.empty = 0
        self.boxes = 0
        self.dictionaries = 0

    def add_column(self, column: Any) -> None:
        seen: Set[Tuple[int, ...]] = set()
        for chunk in column.chunks:
            self._add(chunk)
            if self._pyarrow.types.is_dictionary(chunk.type):
                buffers = [buffer for buffer in chunk.dictionary.buffers() if buffer is not None]
                place = tuple(buffer.address for buffer in buffers)
                if not place or place not in seen:  # batches share it
                    seen.add(place)
                    self.dictionaries += sum(buffer.size for buffer in buffers)
                    self._add(chunk.dictionary)

    def _add(self, array: Any) -> None:
        types, kind = self._pyarrow.types, array.type
        if isinstance(kind, self._pyarrow.BaseExtensionType):
            self._add(array.storage)
        elif types.is_null(kind) or (types.is_fixed_size_binary(kind) and not kind.byte_width):
            self.empty += len(array)
        elif types.is_struct(kind) or types.is_union(kind):
            if kind.num_fields:
                self.boxes += len(array)
            else:
                self.empty += len(array)
            for index in range(kind.num_fields):
                self._add(array.field(index))
        elif types.is_fixed_size_list(kind):
            if kind.list_size:
                self.boxes += len(array)
            else:
                self.empty += len(array)
            self._add(array.values)
        elif types.is_map(kind):
            self._add(array.keys)
            self._add(array.items)
        elif types.is_list(kind) or types.is_large_list(kind):
            self._add(array.values)
