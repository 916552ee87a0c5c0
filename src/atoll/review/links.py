"""Which symbolic links may go into the source: those that cannot lead out of it."""

from __future__ import annotations

from . import beneath
from .tree import Tree, split


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
        return "It is a link that leads out of the workspace, over another link."
    return None
