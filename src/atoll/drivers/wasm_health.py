"""What the wasm driver finds on this host."""

from __future__ import annotations

import os

from ..engine import cgroups, landlock
from ..engine.probe import groups_fix
from ..errors import AtollError, DriverMissing
from ..types import Layer
from . import wasm_compiler, wasm_runtime
from .wasm_runtime import Runtime

_COMPILE = "python -c 'from atoll.drivers import wasm_runtime as w; w.ensure(w.find())'"
_MACHINES = ("x86_64", "aarch64")


def layers() -> list[Layer]:
    """Starts nothing, and compiles nothing."""
    return [*_runtime(), _second(), _limits()]


def _runtime() -> list[Layer]:
    try:
        runtime = wasm_runtime.find()
    except DriverMissing as missing:
        return [Layer("Python", ready=False, detail=str(missing), fix="pip install 'atoll[wasm]'")]
    except AtollError as error:
        return [Layer("Python", ready=False, detail=str(error), fix=error.hint)]
    return [Layer("Python", ready=True, detail=runtime.binary), _code(runtime)]


def _code(runtime: Runtime) -> Layer:
    """Whose machine code there is. Sandboxes can be made without; the first then waits for it."""
    try:
        served = wasm_compiler.serving()
    except AtollError as error:
        return Layer("machine code", ready=False, detail=str(error), fix=f"unset {wasm_compiler.VARIABLE}")
    if runtime.is_compiled:
        return Layer("machine code", ready=True, detail=runtime.home, required=False)
    if wasm_compiler.is_compiling(runtime):
        state = "is being compiled"
    elif reason := wasm_compiler.was_tried(runtime):
        state = f"could not be compiled: {reason}"
    else:
        state = "is not compiled yet, which takes minutes"
    detail = f"Cranelift's {state}" + ("; Winch's serves until it is there" if served.is_compiled else "")
    return Layer("machine code", ready=False, detail=detail, fix=_COMPILE, required=False)


def _second() -> Layer:
    machine, abi = os.uname().machine, landlock.version()
    if machine not in _MACHINES:
        return Layer("system call filter", ready=False, detail=f"none for {machine}", fix="use x86-64 or aarch64")
    return Layer(
        "Landlock",
        ready=abi > 0,
        detail=f"version {abi}" if abi else "this kernel has none; WebAssembly and the system call filter stand",
        fix=None if abi else "boot with lsm=landlock,... on Linux 5.13 or later",
        required=False,
    )


def _limits() -> Layer:
    held = cgroups.find()
    return Layer(
        "limits",
        ready=held is not None,
        detail="held by control groups" if held else "looked after by polling, for want of a control group",
        fix=None if held else groups_fix(),
        required=False,
    )
