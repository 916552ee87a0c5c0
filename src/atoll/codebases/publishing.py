"""From entries to the next version, if they are another tree than the current one."""

from __future__ import annotations

import time

from ..types import Codebase, Upload
from . import manifest
from .blobs import Blobs
from .manifest import Entries
from .versions import Versions


def publish(versions: Versions, before: Codebase, base: Entries, entries: Entries, blobs: Blobs) -> Upload:
    """Make a tree the next version if it differs from `base`, the current one; call it in `versions.changing()`.

    Both are `ordered`.

    Raises:
        OSError: the disk refuses, and everything is as it was.
    """
    found = manifest.difference(base, entries)
    after = before if found.is_none else versions.publish(before, entries, blobs, time.time())
    return Upload(after.version, *found, blobs.written)
