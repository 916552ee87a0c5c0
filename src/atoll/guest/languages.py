"""Which link a context of a language has. The languages themselves are data, in `toolchains.py`."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict

from . import toolchains
from .contextlink import ContextLink, Listener
from .contextstart import ContextSettings
from .guard import RESTRICTED
from .kernellink import KernelLink, NestLink
from .machine import Machine
from .programdriver import DriverLink, driver_text
from .programfile import FileLink
from .programshell import ShellLink
from .refusal import UNSUPPORTED, Refused, invalid
from .toolchains import DRIVER, PYTHON, SHELL, Language

Factory = Callable[[Machine, Listener, ContextSettings], Any]

_JUPYTER = "jupyter:"
_NODE_DRIVER = driver_text("programnode.js")
_NODE = ["node", "--no-warnings", "-e", "(0,eval)(require('fs').readFileSync(4,'utf8'))(require,s=>import(s))"]


def link_for(language: str) -> Factory:
    """What makes the process of a context, called with the machine, a listener and the context's settings.

    Raises:
        Refused: no language has that name.
    """
    if language.startswith(_JUPYTER):
        kernel = language[len(_JUPYTER) :]
        if not kernel:
            raise invalid("%r names no kernel; write jupyter:python3, for one." % language[:100])
        return lambda machine, listener, settings: _jupyter(machine, listener, settings, kernel)
    if language == RESTRICTED:
        return ContextLink
    entry = toolchains.find(language)
    if entry is None:
        sentence = "There is no language %.100r; the known ones are %s, restricted, and jupyter:KERNEL." % (
            language,
            toolchains.known(),
        )
        raise invalid(sentence)
    if entry.kind == PYTHON:
        return _python
    return lambda machine, listener, settings: _made(entry, machine, listener, settings)


def _made(entry: Language, machine: Machine, listener: Listener, settings: ContextSettings) -> Any:
    """Raises Refused where a tool is missing, with the way to get it."""
    env = {**machine.config.environment(), **settings.env}
    missing = toolchains.lacking(entry) + " " + toolchains.remedy(entry, machine.config.image)
    if not all(_on_path(tool, env) for tool in entry.tools):
        raise Refused(UNSUPPORTED, missing)
    if entry.kind == SHELL:
        return ShellLink(machine, listener, settings, entry.name)
    if entry.kind == DRIVER:
        typed = entry.name == "typescript"
        # Whether there is a way to read types only the program itself can tell, in the same words.
        options = {"typed": typed, "missing": missing}
        return DriverLink(machine, listener, settings, _NODE, _NODE_DRIVER, options)
    return FileLink(machine, listener, settings, entry)


def _on_path(tool: str, env: Dict[str, str]) -> bool:
    directories = env.get("PATH", "/usr/bin:/bin").split(":")
    return any(os.access(os.path.join(directory or ".", tool), os.X_OK) for directory in directories)


def _jupyter(machine: Machine, listener: Listener, settings: ContextSettings, kernel: str) -> KernelLink:
    """A bridge to the kernel, run by the Python that contexts have, with the packages that they have.

    Where Python is Jupyter's altogether, there is a nest for all bridges.
    """
    make = NestLink if machine.config.kernel else KernelLink
    return make(machine, listener, settings, kernel)


def _python(machine: Machine, listener: Listener, settings: ContextSettings) -> Any:
    if machine.config.kernel:
        return _jupyter(machine, listener, settings, machine.config.kernel)
    return ContextLink(machine, listener, settings)
