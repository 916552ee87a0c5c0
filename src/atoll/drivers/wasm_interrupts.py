"""Interrupting Python inside an instance, where there are no signals: by writing what a signal would have written.

Python notes a signal in a few words of its memory, and looks at these now and then. Which words that are is found out
by having Python note one itself, `_thread.interrupt_main`, and comparing its memory before and after.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from .wasm_memory import Memory

_PAGE = 4096
_WORD = struct.Struct("<I")
_ROUNDS = 3
_MOST_WORDS = 16

_PROBE = """
import _thread as _t, os as _o, operator as _r, functools as _f
def _note(function):
    # All of these are functions in C: in between, Python does not look at what was noted.
    mark = _f.partial(_o.write, {portal}, b"P")
    try:
        list(map(_r.call, (mark, function, mark)))
    except KeyboardInterrupt:
        pass
    for _ in range(100): pass  # Python looks once more after a handler that has raised something
    mark()
_note({function})
del _note, _t, _o, _r, _f
"""
_TRIAL = """
import os
_felt = b"N"
try:
    os.write({portal}, b"T")
    for _ in range(100_000): pass
except KeyboardInterrupt:
    _felt = b"Y"
os.write({portal}, _felt)
del _felt
"""
_NOTES, _NOTHING = "_t.interrupt_main", "_f.partial(_r.truth, 0)"

Words = dict[int, int]
Turn = Callable[[str], int]


class Finder:
    """Finds the words.

    Args:
        turn: runs code in the instance.
        stir: has `on_epoch` called where the instance runs.
    """

    def __init__(self, memory: Memory, turn: Turn, stir: Callable[[], None], portal: int) -> None:
        self._memory = memory
        self._turn = turn
        self._stir = stir
        self._portal = portal
        self._seen: list[bytes] = []
        self._felt = b""
        self._trying = False

    def hears(self, message: memoryview) -> None:
        """What the code writes to the portal."""
        word = bytes(message[:1])
        if word == b"P":
            self._seen.append(self._memory.snapshot())
        elif word == b"T":
            self._trying = True
            self._stir()
        else:
            self._felt = word

    def find(self) -> Words:
        """Which words are set, and to what; nothing where this does not work."""
        self._compare(_NOTES)  # the first time also notes what importing and compiling do
        found = self._compare(_NOTES)
        for _ in range(_ROUNDS - 1):
            again = self._compare(_NOTES)
            found = {at: value for at, value in found.items() if again.get(at) == value}
        for at in self._compare(_NOTHING):
            found.pop(at, None)
        return self.tried(found) if len(found) <= _MOST_WORDS else {}

    def tried(self, words: Words) -> Words:
        """The same, if Python is interrupted by them; else nothing."""
        return words if words and self._works(words) else {}

    def _compare(self, function: str) -> Words:
        self._seen.clear()
        self._turn(_PROBE.format(portal=self._portal, function=function))
        before, noted, after = self._seen
        self._seen = []
        return _differing(before, noted, after)

    def _works(self, words: Words) -> bool:
        self._words = words
        self._turn(_TRIAL.format(portal=self._portal))
        return self._felt == b"Y"

    def on_epoch(self) -> None:
        if self._trying:
            self._trying = False
            note(self._memory, self._words)


def _differing(before: bytes, noted: bytes, after: bytes) -> Words:
    """Words that were nothing, became something, and are nothing again."""
    found: Words = {}
    for page in range(0, min(len(before), len(noted), len(after)), _PAGE):
        if before[page : page + _PAGE] != noted[page : page + _PAGE]:
            for at in range(page, page + _PAGE, _WORD.size):
                (value,) = _WORD.unpack_from(noted, at)
                if value and not any(before[at : at + 4]) and not any(after[at : at + 4]):
                    found[at] = value
    return found


def note(memory: Memory, words: Words) -> None:
    """Have Python find an interrupt when it looks next. Its memory may be in disorder, which is its own affair."""
    for at, value in words.items():
        place = memory.view(at, _WORD.size)
        _WORD.pack_into(place, 0, _WORD.unpack_from(place)[0] | value)


def is_noted(memory: Memory, words: Words) -> bool:
    """Whether it has not found it yet."""
    return bool(words) and all(_WORD.unpack(memory.read(at, 4))[0] & value == value for at, value in words.items())
