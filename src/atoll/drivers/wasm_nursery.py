"""The instance that all contexts are copies of: made once in the warm process, which then is forked."""

from __future__ import annotations

import json
import os

from ..engine.launch import cloudpickle_directory
from ..engine.steward.lines import package_directory
from .wasm_engine import Instance, load, make_engine
from .wasm_interrupts import Finder, Words, is_noted, note
from .wasm_runtime import Runtime
from .wasm_table import Table
from .wasm_wasi import PORTAL, Wasi

SOURCE, STATE = "/opt/atoll", "/opt/state"
_CLOUDPICKLE = "/opt/cloudpickle"
_LIBRARY = "/usr/local/lib"
_PROGRAM = "/usr/local/bin/python"
_PREPARE = """
import sys
sys.path.insert(0, {source!r})
from atoll.guest import inwasm
inwasm.prepare({cloudpickle!r})
"""
_SETTLE = "inwasm.settle({source!r}, {python!r})"


class Nursery:
    """One instance of Python, with everything imported that a context needs, and no directory open but its library."""

    state = STATE

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._data = f"{_LIBRARY}/{runtime.archive}/matplotlib/mpl-data"
        self._table = Table()
        self._table.begin_with("/", writable=True)
        self._table.begin_with(STATE, writable=True)
        for place in (_LIBRARY, self._data, SOURCE, _CLOUDPICKLE):
            self._table.begin_with(place, writable=False)
        self.wasi = Wasi(self._table, [_PROGRAM])
        engine = make_engine(runtime.compiler)
        self.instance = Instance(engine, load(engine, runtime.module), self.wasi, self._on_epoch)
        self._finder: Finder | None = None
        self.words: Words = {}

    def _on_epoch(self) -> None:
        """Nothing to do: Python calls the handlers of signals before it comes here."""
        if self._finder is not None:
            self._finder.on_epoch()

    def prepare(self) -> None:
        self._show_library()
        self._table.give(SOURCE, _directory(package_directory()))
        cloudpickle = cloudpickle_directory()
        if cloudpickle:
            self._table.give(_CLOUDPICKLE, _directory(cloudpickle))
        code = _PREPARE.format(source=SOURCE, cloudpickle=_CLOUDPICKLE if cloudpickle else "")
        if self.instance.turn(code):
            raise RuntimeError("Python for WebAssembly does not run atoll's code")
        self._find_words()
        if self.instance.turn(_SETTLE.format(source=SOURCE, python=_PROGRAM)):
            raise RuntimeError("Python for WebAssembly does not settle")
        for place in (_LIBRARY, self._data, SOURCE, _CLOUDPICKLE):
            self._table.give(place, -1)

    def _find_words(self) -> None:
        """They are the same wherever the same Python is started, so that this is done once; see `wasm_runtime`."""
        instance = self.instance
        self._finder = finder = Finder(instance.memory, instance.turn, instance.stir, PORTAL)
        self.wasi.hears = finder.hears
        known = _read_words(self._runtime.words)
        self.words = finder.find() if known is None else finder.tried(known)
        self.wasi.hears = self._finder = None

    def _show_library(self) -> None:
        self._table.give(_LIBRARY, _directory(self._runtime.lib))
        if os.path.isdir(self._runtime.data):
            self._table.give(self._data, _directory(self._runtime.data))

    def show(self, root: str, state: str) -> None:
        """In a copy: have the files of a sandbox, and the directory for variables that are kept."""
        self._table.give("/", _directory(root))
        self._table.give(STATE, _directory(state))
        self._show_library()

    @property
    def compiler(self) -> str:
        """Whose code runs in it."""
        return self._runtime.compiler

    @property
    def library(self) -> tuple[str, ...]:
        """The host's directories that a copy reads from, beside its own."""
        return tuple(place for place in (self._runtime.lib, self._runtime.data) if os.path.isdir(place))

    def interrupt(self) -> None:
        """Have Python find an interrupt. Only while the instance stands still."""
        note(self.instance.memory, self.words)

    def is_interrupted(self) -> bool:
        """Whether it has not found one yet."""
        return is_noted(self.instance.memory, self.words)


def _read_words(path: str) -> Words | None:
    try:
        with open(path, encoding="ascii") as file:
            return {int(at): int(value) for at, value in json.load(file).items()}
    except FileNotFoundError:
        return None


def write_words(runtime: Runtime) -> None:
    """Find them, and write them down for those who come later."""
    nursery = Nursery(runtime)
    nursery.prepare()
    with open(runtime.words, "w", encoding="ascii") as file:
        json.dump(nursery.words, file)


def _directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
