"""Where the sandbox may write, for Landlock: a second layer that knows directories and nothing finer."""

from __future__ import annotations

from .tree import Directory, Tree


def writable_places(tree: Tree) -> tuple[str, ...]:
    """The paths, relative to the view, below which anything may be written; "" when that is all of it.

    Nothing outside of them may be. They are directories and single files, topmost ones only; what is protected below
    one of them is for the view itself to protect.
    """
    found: list[str] = []
    _collect(tree.root, found)
    return tuple(found)


def _collect(root: Directory, found: list[str]) -> None:
    pending = [root]
    while pending:
        directory = pending.pop()
        if not directory.visible:
            continue
        if directory.level == "write":
            found.append(directory.path)
            continue
        prefix = f"{directory.path}/" if directory.path else ""
        found.extend(prefix + entry.name for entry in directory.entries if entry.level == "write")
        pending.extend(directory.children)
