"""Which symbolic links may go into the source: those that cannot lead out of it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import beneath
from .tree import Tree, join, split

_OVER_ANOTHER = "It is a link that leads out of the workspace, over another link."
# Names on a way, those of the links on it among them; one that goes in circles has no end.
_MOST_NAMES = 1000
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


def together(source: Tree, comes: Mapping[str, str | None], path: str) -> str | None:
    """Why the link at `path` is not applied together with all that `comes`; None if it is.

    Links that lead nowhere in the source as it is may lead over each other, and over one of the source's own that leads
    out of it.

    Args:
        comes: what will be at each path that is changed: the target of a link, or None.
    """
    ahead, way, names = (comes[path] or "").split("/")[::-1], path.split("/")[:-1], 0
    while ahead:
        name = ahead.pop()
        names += 1
        if name in ("", "."):
            continue
        if name == "..":
            if not way:
                return _OVER_ANOTHER
            way.pop()
            continue
        place = join("/".join(way), name)
        target = comes[place] if place in comes else _target(source, place)
        if target is None:
            way.append(name)
            continue
        if names > _MOST_NAMES or target.startswith("/"):
            return _OVER_ANOTHER
        ahead += target.split("/")[::-1]
    return None


def _target(source: Tree, path: str) -> str | None:
    """Of a link of the source."""
    above, name = split(path)
    try:
        directory = beneath.open_beneath(source.root, above, _FOLDER)
    except OSError:
        return None
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:  # it is no link
        return None
    finally:
        os.close(directory)


def objection(source: Tree, path: str, target: str) -> str | None:
    """Why a link at `path` to `target` is not applied; None for one that is.

    A target may climb at its beginning only, where the directories are real: behind a name that is a link itself, ".."
    would lead anywhere.
    """
    above = split(path)[0]
    names = [name for name in target.split("/") if name not in ("", ".")]
    climbs = next((index for index, name in enumerate(names) if name != ".."), len(names))
    if target.startswith("/"):
        return "It is a link to an absolute path; only relative links are applied."
    if ".." in names[climbs:]:
        return "It is a link that climbs with '..' after a name; only links that climb at their beginning are applied."
    places = above.split("/") if above else []
    if climbs > len(places):
        return "It is a link that leads out of the workspace."
    way = "/".join([*places[: len(places) - climbs], *names[climbs:]])
    if way and beneath.leads_outside(source.root, way):
        return _OVER_ANOTHER
    return None
