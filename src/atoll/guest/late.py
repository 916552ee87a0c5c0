"""Modules of the guest that few cells need. Their texts are read early, since they cannot be reached behind the wall,
and run when they are asked for: until then a sandbox pays for the texts alone.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Dict

_HERE = os.path.dirname(os.path.abspath(__file__))
_NAMES = ("magics", "magiccalls")


def _text(name: str) -> str:
    with open(os.path.join(_HERE, name + ".py"), encoding="utf-8") as file:
        return file.read()


_TEXTS: Dict[str, str] = {name: _text(name) for name in _NAMES}


def module(name: str) -> types.ModuleType:
    """One of `_NAMES`, run once for each process. A cell's tracebacks leave out its lines, as those of others here."""
    full = "%s.%s" % (__package__, name)
    found = sys.modules.get(full)
    if found is None:
        found = types.ModuleType(full)
        code = compile(_TEXTS[name], os.path.join(_HERE, name + ".py"), "exec", dont_inherit=True)
        exec(code, found.__dict__)  # noqa: S102  # our own
        sys.modules[full] = found
    return found
