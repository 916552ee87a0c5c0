"""The seam to wasmtime: compiled modules, one instance, its functions and its memory.

Functions are given to wasmtime's C library directly: an instance asks for the time very often, and wasmtime-py's own
way of calling Python takes ten times as long.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Any

import wasmtime
from wasmtime import _ffi

from . import wasm_abi as abi
from .wasm_memory import Memory
from .wasm_runtime import CRANELIFT, WINCH
from .wasm_wasi import Wasi

STACK = 4 << 20
_WASI = "wasi_snapshot_preview1"
_STRATEGY_WINCH = 2
_MASKS = {"i32": 0xFFFFFFFF, "i64": 0xFFFFFFFFFFFFFFFF}
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_EPOCH = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p
)
_define: Any = _ffi.dll["wasmtime_linker_define_func_unchecked"]
_define.restype = ctypes.c_void_p
_define.argtypes = (
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    _CALLBACK,
    ctypes.c_void_p,
    _FINALIZER,
)
_on_epoch: Any = _ffi.dll["wasmtime_store_epoch_deadline_callback"]
_on_epoch.restype = None
_on_epoch.argtypes = (ctypes.c_void_p, _EPOCH, ctypes.c_void_p, _FINALIZER)
_SLOT = 16
_REASON = 200
# How a process exits whose host code is wrong: the instance must not go on with what it did not do.
_MISTAKE = 71
# What Python says to its own imports beside WASI: there is nobody.
_NOBODY = 0xFFFFFFFF


def make_engine(compiler: str = CRANELIFT) -> wasmtime.Engine:
    """All processes have the same for one compiler, or a compiled module could not be shared."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    if compiler == WINCH:
        # wasmtime-py's own property does not know it yet.
        _ffi.wasmtime_config_strategy_set(config.ptr(), _STRATEGY_WINCH)
    else:
        config.strategy = CRANELIFT
        # Compiling takes a minute instead of two, and what comes out is hardly slower.
        config.cranelift_opt_level = "none"
    # Python's own limit on recursion must come first. wasmtime wants room for this on stacks that nobody uses here.
    _ffi.wasmtime_config_async_stack_size_set(config.ptr(), 2 * STACK)
    config.max_wasm_stack = STACK
    return wasmtime.Engine(config)


def compile_file(binary: str, into: str, compiler: str = CRANELIFT) -> None:
    """Compile a module, and write what comes out to a file."""
    module = wasmtime.Module.from_file(make_engine(compiler), binary)
    with open(into, "wb") as file:
        file.write(module.serialize())


def load(engine: wasmtime.Engine, path: str) -> wasmtime.Module:
    """What `compile_file` has written, which must be trusted. Its pages are shared by all who load it."""
    return wasmtime.Module.deserialize_file(engine, path)


class Instance:
    """One instance of a module, whose imports are served by a `Wasi`.

    Args:
        on_epoch: called in the instance's own thread soon after `stir`.
    """

    def __init__(
        self, engine: wasmtime.Engine, module: wasmtime.Module, wasi: Wasi, on_epoch: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._store = wasmtime.Store(engine)
        self._linker = wasmtime.Linker(engine)
        self._kept: list[Any] = []
        for wanted in module.imports:
            self._serve(wanted, wasi)
        self._watch(on_epoch)
        self._instance = self._linker.instantiate(self._store, module)
        exports: Any = self._instance.exports(self._store)
        self._exports = exports
        self._raw_memory = exports["memory"]
        self.memory = wasi.memory = Memory(self._place)
        if "_initialize" in self._exports:
            self._exports["_initialize"](self._store)

    def turn(self, code: str) -> int:
        """Run some Python in it. Raises wasmtime's errors when it traps."""
        data = code.encode()
        at = self._exports["host_alloc"](self._store, len(data)) & 0xFFFFFFFF
        self.memory.write(at, data)
        result: int = self._exports["turn"](self._store, at, len(data))
        return result

    def limit_memory(self, size: int) -> None:
        """Let it have no more than so many bytes, from now on."""
        self._store.set_limits(memory_size=size)

    def stir(self) -> None:
        """Have `on_epoch` called where the instance runs now. May be called by any thread."""
        self._engine.increment_epoch()

    def _place(self) -> tuple[int, int]:
        pointer = self._raw_memory.data_ptr(self._store)
        return ctypes.addressof(pointer.contents), self._raw_memory.data_len(self._store)

    def _watch(self, on_epoch: Callable[[], None]) -> None:
        def called(_context: int, _data: int, delta: Any, _kind: int) -> int:
            delta[0] = 1
            on_epoch()
            return 0

        callback, finalizer = _EPOCH(called), _FINALIZER()
        self._kept += [callback, finalizer]
        self._store.set_epoch_deadline(1)
        _on_epoch(self._store.ptr(), callback, None, finalizer)

    def _serve(self, wanted: wasmtime.ImportType, wasi: Wasi) -> None:
        kind = wanted.type
        if not isinstance(kind, wasmtime.FuncType):
            raise TypeError(f"the module imports {wanted.module}.{wanted.name}, which is no function")
        function = getattr(wasi, wanted.name or "", None) if wanted.module == _WASI else None
        kinds = [str(each) for each in kind.params]
        refusal = abi.NOSYS if wanted.module == _WASI else _NOBODY
        callback = _CALLBACK(_called(function, kinds, refusal, answers=bool(kind.results)))
        finalizer = _FINALIZER()
        self._kept += [callback, finalizer]
        module, name = wanted.module.encode(), (wanted.name or "").encode()
        failed = _define(
            self._linker.ptr(), module, len(module), name, len(name), kind.ptr(), callback, None, finalizer
        )
        if failed:
            raise RuntimeError(f"wasmtime does not take {wanted.module}.{wanted.name}")


def _called(
    function: abi.Function | None, kinds: list[str], refusal: int, *, answers: bool
) -> Callable[[int, int, int, int], int]:
    """What wasmtime calls: arguments and result lie in slots of 16 bytes."""
    read = struct.Struct("<" + "Q8x" * len(kinds)).unpack
    masks = [_MASKS[kind] for kind in kinds]
    size = _SLOT * len(kinds)

    def call(_data: int, _caller: int, slots: int, _count: int) -> int:
        try:
            if function is None:
                number = refusal
            else:
                values = read(ctypes.string_at(slots, size))
                number = function(*(value & mask for value, mask in zip(values, masks, strict=True))) or 0
        except OSError as error:
            number = abi.number_of(error)
        except (ValueError, OverflowError):  # a name with a NUL, a time before all times
            number = abi.INVAL
        except BaseException as error:  # noqa: BLE001 - nothing may pass through wasmtime; what this is, is not known
            explain(error)
            os._exit(_MISTAKE)
        if answers:
            ctypes.c_uint64.from_address(slots).value = number
        return 0

    return call


def explain(error: BaseException) -> None:
    """Say in the context's own stderr why it ends; nothing of the host is told there."""
    if isinstance(error, wasmtime.Trap):
        reason = error.message.strip().splitlines()[-1].strip()
    else:
        reason = f"{type(error).__name__} in its host"
    os.write(2, f"WebAssembly stopped: {reason[:_REASON]}\n".encode())
