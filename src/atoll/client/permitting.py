"""The rules of one sandbox: what they say of a path, and changing them."""

from __future__ import annotations

import os
import posixpath

from ..errors import InvalidInput
from ..policy.ignores import Ignores
from ..policy.paths import check_path
from ..policy.permissions import check_permissions
from ..policy.rules import Matcher
from ..types import Capability, Explanation, PermissionsLike, Spec
from .record import Record


def explain(spec: Spec, path: str | os.PathLike[str]) -> Explanation:
    """The level of a path of the workspace. Raises InvalidPath, InvalidInput."""
    text = check_path(path)
    inside = relative(spec, text)
    if _is_ignored(spec, inside):
        return Explanation(inside, "none", None, "ignore= leaves it out")
    if spec.permissions is None:
        return Explanation(inside, "write", None, "this sandbox has no rules")
    return Matcher(spec.permissions.rules).explain(inside)


def relative(spec: Spec, path: str) -> str:
    """A path inside the sandbox as rules see it.

    Raises:
        InvalidInput: it is not in the workspace, where the rules are.
    """
    whole = posixpath.normpath(posixpath.join(spec.workdir, path))
    if whole == spec.workdir:
        return ""
    if not whole.startswith(f"{spec.workdir}/"):
        raise InvalidInput(f"{path!r} is not in the workspace {spec.workdir}; rules are about what is.")
    return whole[len(spec.workdir) + 1 :]


def _is_ignored(spec: Spec, path: str) -> bool:
    if not spec.ignore or not path:
        return False
    ignores = Ignores(spec.ignore)
    # What lies there may be either, and a pattern may be for directories only.
    return ignores.ignored(path, False) or ignores.ignored(path, True)


async def set_permissions(record: Record, permissions: PermissionsLike, *, force: bool) -> None:
    """Raises as `AsyncSandbox.set_permissions` says."""
    await record.demand(Capability.PERMISSIONS)
    await record.demand(Capability.LIVE_RULES)
    spec = record.info.spec
    if spec.source is None and spec.codebase is None:
        raise InvalidInput(
            "This sandbox was made without a source, so there is nothing that rules could protect.",
            hint="Give source= or codebase= to create.",
        )
    checked = check_permissions(permissions)
    await record.check_usable(afresh=True)
    view = await record.driver.set_permissions(record.handle, checked, spec.ignore, force=force)
    record.note_permissions(checked, view)
