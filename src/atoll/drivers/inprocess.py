"""No wall, and quick: trusted code in processes of its own on this machine, with limits and a clean environment.

A loop, a crash or a full memory in it harms nobody else. It is no security boundary.
"""

from __future__ import annotations

from ..engine.steward.history import CopiedHistory
from ..engine.steward.unwalled import UnwalledDriver
from ..types import Capability


class InprocessDriver(CopiedHistory, UnwalledDriver):
    name = "inprocess"
    summary = "no wall, quick: code that you trust, in its own process with limits; no security boundary"
    isolation = "process"
    capabilities = UnwalledDriver.capabilities | {Capability.STOP, Capability.SNAPSHOT, Capability.FORK}
