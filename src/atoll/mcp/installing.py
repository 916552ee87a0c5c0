"""The tool `install_packages`."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidInput, PackagesFailed
from ..policy.requirements import check_requirements
from ..policy.text import shown
from .desk import Desk, Outcome, refused, said
from .sessions import DEFAULT

SECONDS = 600.0


def install_packages(desk: Desk, arguments: dict[str, Any]) -> Outcome:
    """Install Python packages in a session, which needs no network: wheels come from the host's package index.

    Only projects of that index can be named. An address would have the host ask whatever server a model names.
    """
    if not desk.settings.install:
        return refused("The owner of this server does not let sessions install packages.")
    wanted = check_requirements(arguments["packages"])
    if not wanted:
        raise InvalidInput("packages is empty; name at least one.")
    for each in wanted:
        if "@" in each:
            raise InvalidInput(f"packages holds {shown(each)}; name projects of the package index, not addresses.")
    session = desk.sessions.open(arguments.get("session_id", DEFAULT))
    try:
        session.sandbox.install(wanted, timeout=SECONDS, on_progress=desk.progress)
    except PackagesFailed as failure:
        return refused(str(failure))
    fresh, session.fresh = session.fresh, False
    return said(
        f"Installed: {', '.join(wanted)}.",
        {"session_id": session.name, "packages": list(wanted), "new_session": fresh},
    )
