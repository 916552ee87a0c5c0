"""Runs in processes of their own, which outlive whoever asked for them."""

from __future__ import annotations

import sys
from typing import Any

from . import journal
from .results import status_of

NO_PROGRAMS = "--no-programs"
"""Has a worker start no MCP server, as `begin` does without `programs`."""


def begin(task: str, *, kind: str = "agent", programs: bool = True, **options: Any) -> str:
    """Begin a run in a process of its own; its trajectory id.

    `options` are those of `Agent`, but for functions, which cannot pass to another process. Keys and servers come
    from the environment and the configuration there; without `programs` only servers that are reached by a URL.

    Raises:
        InvalidInput: something cannot be.
        ModelError: no model was chosen.
    """
    from .agent import AsyncAgent

    context = options.pop("context", None)
    id = AsyncAgent(**options).prepare(task, kind=kind, context=context)
    launch(id, options.get("config"), programs=programs)
    return id


def launch(id: str, config: str | None = None, *, programs: bool = True) -> None:
    """Have a process of its own work on a run that is written down."""
    import subprocess
    import threading

    # -P: nothing is imported from the directory that somebody happens to be in.
    command = [sys.executable, "-P", "-m", "atoll.agent.worker", *([] if programs else [NO_PROGRAMS])]
    command += [id, *([] if config is None else [config])]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, close_fds=True)
    # A server that lives long must not collect the dead.
    threading.Thread(target=process.wait, name="atoll-agent-worker", daemon=True).start()


def status(id: str) -> dict[str, Any]:
    """How a run stands, as JSON. Raises TrajectoryNotFound."""
    kept = journal.shared()
    found = status_of(kept, kept.resolve(id))
    return {**found._asdict(), "usage": found.usage._asdict()}


def cancel(id: str) -> bool:
    """End a run, whichever process works on it; whether it had not ended before. Raises TrajectoryNotFound."""
    from . import forgetting

    kept = journal.shared()
    return forgetting.cancel(kept, kept.resolve(id).id)
