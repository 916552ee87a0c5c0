"""From a judged tree to a view that can be mounted."""

from __future__ import annotations

from ...errors import Unsupported
from . import farm, hosts, looks, mask, zones
from .tree import Tree
from .view import STRANGER, Recipe, View
from .writable import writable_places


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
    look = looks.of_directory(tree.root)
    common = {"mode": look.mode, "owned": look.owned, "covers": covers, "writable": writable_places(tree)}
    if recipe == "A":
        owners = mask.owners_for(tree) if uid is None else mask.Owners(uid, STRANGER)
        fd = mask.build(tree, owners, "trusted")
        return View("A", fd, *owners, mapped=uid is None, **common)
    if recipe == "C":
        owners = mask.Owners(sandbox=0, stranger=1)
        return View("C", mask.build(tree, owners, "user"), *owners, mapped=False, **common)
    if recipe == "B":
        return _prepare_for_one(tree, common, source, place)
    raise Unsupported("Recipe D has no mounts; use `farm.plant`.")


def _prepare_for_one(tree: Tree, common: dict, source: str | int | None, place: str | None) -> View:  # type: ignore[type-arg]
    plan = zones.plan(tree)
    owners = mask.Owners(0, 0)
    fields = {**common, "mapped": False, "zones": plan.zones, "unenforced": plan.unenforced}
    if hosts.can_mask(rootless=True):
        return View("B", mask.build(tree, owners, "user"), *owners, **fields)
    if common["covers"] or source is None or place is None:
        raise Unsupported("Changing the rules of a sandbox that has changed files needs Linux 6.16.")
    farm.link(tree, source, place)
    return View("B", -1, *owners, **fields, farm=place)
