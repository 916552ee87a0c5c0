"""From a judged tree to a view that can be mounted."""

from __future__ import annotations

from ...errors import Unsupported
from . import farm, hosts, looks, mask, zones
from .tree import Tree
from .view import FIXED, STRANGER, Recipe, View
from .writable import writable_places

_USERS = {
    "B": mask.Owners(sandbox=0, stranger=0, divided=False),
    "C": mask.Owners(sandbox=0, stranger=1, divided=False),
}


def prepare(
    tree: Tree,
    *,
    recipe: Recipe,
    covers: int = 0,
    uid: int | None = None,
    source: str | int | None = None,
    place: str | None = None,
) -> View:
    """Make the mask of a tree.

    `covers` is the number of layers that the tree was merged from, besides the source; see `overlay.merge`. `uid` is
    for a kernel that cannot map the ids of a mask: the view is then for a sandbox of that user alone. `source` and
    `place`, an empty directory, are for a kernel that takes no mask from an ordinary user: the view is then made of
    links and copies there.

    Raises:
        OSError: this process may not mount.
        Unsupported: the recipe cannot enforce these rules, or not on this host.
    """
    if recipe == "A":
        owners = mask.Owners(FIXED if uid is None else uid, STRANGER)
        view = _describe(tree, recipe, covers)
        view = view._replace(mapped=mask.OWN in view.parts and uid is None)
        return view._replace(mask=mask.build(tree, owners, "trusted"))
    if recipe == "D":
        raise Unsupported("Recipe D has no mounts; use `farm.plant`.")
    owners, plan = _USERS[recipe], zones.plan(tree)
    view = _describe(tree, recipe, covers)._replace(zones=plan.zones, unenforced=plan.unenforced)
    if hosts.can_mask(rootless=True):
        return view._replace(mask=mask.build(tree, owners, "user"))
    return _plant(tree, view._replace(recipe="B"), source, place)


def _describe(tree: Tree, recipe: Recipe, covers: int) -> View:
    """A view without its mask."""
    divided = recipe == "A"
    look = looks.of_directory(tree.root, divided=divided)
    return View(
        recipe,
        mask=-1,
        parts=mask.parts_of(tree, divided=divided),
        mapped=False,
        mode=look.mode,
        owned=look.owned,
        covers=covers,
        writable=writable_places(tree),
    )


def _plant(tree: Tree, view: View, source: str | int | None, place: str | None) -> View:
    if view.covers:
        raise Unsupported("Changing the rules of a sandbox that has changed files needs Linux 6.16.")
    if source is None or place is None:
        raise Unsupported(
            "Path permissions for an ordinary user need Linux 6.16 here.", hint=f"Or run as root. {hosts.WITHOUT_RULES}"
        )
    farm.link(tree, source, place)
    return view._replace(farm=place)
