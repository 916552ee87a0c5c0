"""The client's side of a review of a sandbox that a steward keeps."""

from __future__ import annotations

import time

from ...driver import Staged
from ...types import Handle
from .client import StewardDriver

STAGE = "stage"
"""The order, for the wall: it answers with descriptors of the workspace and of its layers, and with the members
`source` and `base`; with none as long as the caller is `patient` and `base` is being written."""
NO_SOURCE = "This sandbox was made without a source, so there is nothing to compare its files with."
# How long a review waits until it is written down how the source was at first: without that it must be more careful.
_RECORDING, _LOOK = 3.0, 0.01
_MOST_LAYERS = 200


class Stages(StewardDriver):
    """A `StewardDriver` that may declare REVIEW, if its wall takes the order `STAGE`."""

    async def stage(self, handle: Handle) -> Staged:
        until = time.monotonic() + _RECORDING
        while True:
            patient = time.monotonic() < until
            answer, fds = await self._ask(handle, {"op": STAGE, "patient": patient}, fds=_MOST_LAYERS)
            if fds:
                return Staged(fds[0], tuple(fds[1:]), answer["source"], answer["base"])
            await self.io.sleep(_LOOK)
