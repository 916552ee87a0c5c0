"""What a file says of the snapshot in it, checked field by field: it may be hostile."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from ...errors import AtollError
from ...policy.names import check_name
from ...policy.spec import make_spec
from ...types import Spec
from ..layers import MOST
from . import PLACES, Damaged

VERSION = 1
LARGEST = 1 << 20
_FIELDS = {"atoll", "version", "name", "created", "workdir", "packages", "lost", "places", "layers"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_LOST, _LONGEST_LOST = 1000, 2000
_LARGEST_NUMBER = 1 << 53


class Blob(NamedTuple):
    """What is to be expected of a layer: how many paths, and how many bytes in files."""

    entries: int
    size: int


class Manifest(NamedTuple):
    """`places` has the digests of the layers of each, newest first."""

    name: str
    created: float
    spec: Spec
    lost: Mapping[str, str]
    places: Mapping[str, tuple[str, ...]]
    layers: Mapping[str, Blob]


def write(manifest: Manifest) -> bytes:
    """Padded, so that its length does not depend on what is not known before the layers are written."""
    value = {
        "atoll": "snapshot",
        "version": VERSION,
        "name": manifest.name,
        "created": manifest.created,
        "workdir": manifest.spec.workdir,
        "packages": list(manifest.spec.packages),
        "lost": dict(manifest.lost),
        "places": {place: list(manifest.places[place]) for place in PLACES},
        "layers": {digest: blob._asdict() for digest, blob in manifest.layers.items()},
    }
    return json.dumps(value, indent=1, sort_keys=True).encode()


def read(data: bytes) -> Manifest:
    """Raises Damaged: it is none that this version of atoll writes."""
    value = _parse(data)
    if value.get("atoll") != "snapshot" or value.get("version") != VERSION:
        raise Damaged("it is of another kind, or of a newer version of atoll")
    if set(value) != _FIELDS:
        odd = min(set(value) ^ _FIELDS)
        raise Damaged(f"what it says of itself lacks or has the field {odd[:40]!a}, which it should not")
    try:
        name = check_name(value["name"], "its name")
        spec = make_spec(workdir=value["workdir"], packages=_strings(value["packages"]))
    except AtollError as error:
        raise Damaged(f"what it says of itself is wrong: {error}") from None
    places = {place: tuple(map(_digest, _list(_object(value["places"]), place))) for place in PLACES}
    blobs = {_digest(digest): _blob(blob) for digest, blob in _object(value["layers"]).items()}
    named = {digest for digests in places.values() for digest in digests}
    if set(value["places"]) != set(PLACES) or named != set(blobs) or len(blobs) >= MOST:
        raise Damaged("the layers that it names are not those that it has")
    if any(len(set(digests)) != len(digests) for digests in places.values()):
        raise Damaged("it names a layer twice")
    return Manifest(name, _time(value["created"]), spec, _lost(value["lost"]), places, blobs)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Damaged("what it says of itself cannot be read") from None
    return _object(value)


def _refuse(_: str) -> NoReturn:
    raise ValueError


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError
    return dict(pairs)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Damaged("what it says of itself is no object where it should be one")
    return value


def _list(value: dict[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list) or len(found) >= MOST:
        raise Damaged("what it says of itself has no list where it should have one")
    return found


def _strings(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Damaged("what it says of itself has no list of texts where it should have one")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise Damaged("it names a layer by what is no digest")
    return value


def _blob(value: object) -> Blob:
    found = _object(value)
    if set(found) != set(Blob._fields) or not all(_is_count(each) for each in found.values()):
        raise Damaged("what it says of a layer is wrong")
    return Blob(**found)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_NUMBER


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Damaged("it has no time at which it was made")
    return min(max(float(value), 0.0), 1e11)


def _lost(value: object) -> dict[str, str]:
    found = _object(value)
    if len(found) > _MOST_LOST or not all(
        isinstance(why, str) and len(name) + len(why) <= _LONGEST_LOST for name, why in found.items()
    ):
        raise Damaged("what it says of lost variables is wrong")
    return found
