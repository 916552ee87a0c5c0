"""Whether a sandbox that is there already is one that this server could have made. Pure, but for links in paths."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..client.choosing import names_in
from ..policy.permissions import chosen
from ..review.traps import STARTING_DIRECTORIES, folded
from ..types import Spec
from .settings import WALLS, Settings

_INNER = STARTING_DIRECTORIES | {".git"}


def objection(driver: str, spec: Spec, settings: Settings) -> str | None:
    """What of a session this server does not give, as the end of a sentence about it; None if it is all right."""
    network = settings.wishes.get("network", "none")
    if spec.network not in ("none", network):
        return f"was made with network {spec.network!r}, and this server gives {network!r}"
    # Calls may choose among the walls; what is none only the owner can choose.
    if driver not in WALLS and driver not in names_in(settings.driver):
        return f"was made with the driver {driver!r}, which this server does not use"
    image = settings.wishes.get("image")
    if spec.image is not None and spec.image not in _spellings(image):
        return f"was made with the image {spec.image!r}, and this server gives {image!r}"
    return _objection_to_source(spec, settings)


def _objection_to_source(spec: Spec, settings: Settings) -> str | None:
    if spec.codebase is not None:
        return "was made over a codebase, which this server does not give"
    if spec.source is None:
        return None
    if not is_allowed(os.path.realpath(spec.source), settings.sources):
        return f"was made over {spec.source}, which this server does not allow"
    if spec.permissions != chosen(settings.preset, None):
        return f"was made with other rules for its files than {settings.preset!r}"
    return None


def is_allowed(path: str, sources: Iterable[str]) -> bool:
    """Whether a session may be over a directory, given with no link in it.

    Not over one in which other names are the dangerous ones: below `.git/hooks` every file is a hook.
    """
    return any(path == allowed or _is_plainly_below(path, allowed.rstrip("/") + "/") for allowed in sources)


def _is_plainly_below(path: str, root: str) -> bool:
    return path.startswith(root) and _INNER.isdisjoint([folded(each) for each in path.removeprefix(root).split("/")])


def _spellings(image: object) -> tuple[object, ...]:
    """As a driver writes it down: as it was given, or as a path."""
    return (image, os.path.abspath(image)) if isinstance(image, str) else (image,)
