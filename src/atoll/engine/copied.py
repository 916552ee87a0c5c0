"""A source as a copy in the workspace, for walls that can mount nothing."""

from __future__ import annotations

from ..errors import CreateFailed


def copy_source(source: str | None, workspace: str) -> None:
    """Make the workspace, with what is in the source. Raises CreateFailed."""
    import os
    import shutil

    if source is None:
        os.makedirs(workspace, exist_ok=True)
        return
    try:
        shutil.copytree(source, workspace, symlinks=True, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise CreateFailed(f"The source {source} cannot be copied: {error}") from error
