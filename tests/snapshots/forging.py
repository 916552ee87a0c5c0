"""Files that look like exported snapshots, right or wrong in any way one likes."""

from __future__ import annotations

import gzip
import hashlib
import json

from atoll.engine.portable import headers
from atoll.engine.portable.headers import Entry

PLACES = ("home", "tmp", "work")


def root(place):
    return Entry(place.encode(), "directory", 0o755)


def file(path, content=b"", **more):
    """An entry with its content."""
    return Entry(path, "file", 0o644, 10**18, len(content), len(content), **more), content


def layer(*parts, end=headers.END):
    """The bytes of a layer: entries, entries with content, or bytes as they are."""
    data = []
    for part in parts:
        if isinstance(part, bytes):
            data.append(part)
            continue
        entry, content = part if type(part) is tuple else (part, b"")
        data += [headers.encode(entry), content, headers.padding(len(content))]
    return b"".join(data) + end


def usual(*parts, end=headers.END):
    """A layer with all places, and these in the workspace."""
    return layer(*map(root, PLACES), *parts, end=end)


def manifest(layers, /, **changes):
    """What a file with these layers, newest first, says of itself."""
    digests = [digest(each) for each in layers]
    value = {
        "atoll": "snapshot",
        "version": 1,
        "name": "forged",
        "created": 1.5,
        "workdir": "/workspace",
        "packages": [],
        "lost": {},
        "places": dict.fromkeys(PLACES, digests),
        "layers": {digest(data): {"entries": len(data) // 1536, "size": len(data)} for data in layers},
    }
    return json.dumps({**value, **changes}).encode()


def digest(data):
    return hashlib.sha256(data).hexdigest()


def member(name, data):
    return headers.member(name, len(data)) + data + headers.padding(len(data))


def snapshot(*layers, said=None, packed=False, end=headers.END):
    """A whole file."""
    data = member("atoll-snapshot.json", manifest(layers) if said is None else said)
    data += b"".join(member(f"layers/{digest(each)}", each) for each in layers) + end
    return gzip.compress(data) if packed else data
