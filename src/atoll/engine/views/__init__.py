"""Views: path rules compiled into the kernel.

`compile_tree` judges a tree, `prepare` makes a mask of it, `mount` shows the view, as often as one likes. No process
of ours is in the way afterwards. The recipes:

- A, as root: the mask belongs to two users, the sandbox's and a stranger, and overlayfs shows it with the content of
  the source. It is made once with fixed ids and shown to each sandbox through an id-mapped mount.
- B, one user: a mask of the same kind, all that user's; read-only mounts over it say what may be written.
- C, with subordinate ids: as B, and what may only be seen is a stranger's. Nothing of the stranger's gets into a layer
  of the sandbox, which its user could not remove.
- D, no mounts: a copy of the tree for two users; see `farm`.
"""

from __future__ import annotations

from .hosts import WITHOUT_RULES, can_mask, can_overlay, choose, has_subids
from .overlay import Layer, merge, mount
from .preparing import prepare
from .tree import Directory, Entry, Path, Tree, compile_tree
from .view import STRANGER, Recipe, View, from_json
from .writable import writable_places

__all__ = [
    "STRANGER",
    "WITHOUT_RULES",
    "Directory",
    "Entry",
    "Layer",
    "Path",
    "Recipe",
    "Tree",
    "View",
    "can_mask",
    "can_overlay",
    "choose",
    "compile_tree",
    "from_json",
    "has_subids",
    "merge",
    "mount",
    "prepare",
    "writable_places",
]
