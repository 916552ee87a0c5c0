"""Snapshots as one file, for another machine.

The file is a plain tar, or that through gzip where its name ends in `.gz` or `.tgz`:

```
atoll-snapshot.json     what the snapshot is called and made of: the digests of its layers, newest first, place by place
layers/<sha-256>        a layer: a tar of its own, whose bytes have this digest
```

A layer is always written the same way, so the same layer always has the same digest: entries in the order of their
paths, owners left out, modes without set-uid and set-gid, times of modification in full, holes wherever there are 4096
zeros in a row, each header in one form only. What overlayfs keeps in device files and extended attributes is told
neutrally: `ATOLL.kind=whiteout` for what hides something of the layers below, `ATOLL.opaque=1` for a directory that
hides all of it. A directory that was renamed is written with all that is in it. So root and an ordinary user can read
each other's files. Extended attributes of the `user` kind are kept, others are not.

What a snapshot needs of a source directory or codebase becomes its oldest layer, as far as its rules show it.

Whoever reads such a file does not trust it: each header that is read is written again, and must come out the same;
paths go strictly upwards, so that none comes twice and each has its parent before it; nothing counts before every
digest was right. Export and import run in a process of their own, see `apart`.
"""

from __future__ import annotations

MANIFEST = "atoll-snapshot.json"
LAYER = "layers/"
PLACES = ("home", "tmp", "work")
"""In the order in which they are written."""


class Damaged(Exception):
    """The file is not what an export writes; the message, part of a sentence, says where it is not."""
