"""A line beside a command that failed, where atoll knows more about the reason than the command could say."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .output import complain

if TYPE_CHECKING:
    from ..sync.sandbox import Sandbox
    from ..types import CodeError, Completed
    from .programs import Job

_NO_SUCH_PROGRAM = (126, 127)
# What waits for keys when it is given no arguments.
_TYPED_AT = re.compile(
    r"(?:.*/)?(?:i?python[\d.]*|node|deno|bun|lua|perl|php|ruby|irb|R|ghci|jshell|psql|sqlite3|bc|gdb|bash|zsh|fish"
    r"|dash|ksh|sh|cat|tee|vi|vim|nano|less|more|top|htop)"
)


def tell(job: Job, completed: Completed) -> None:
    """Say what is known of a command that has ended, on stderr; nothing where nothing is known.

    That its time was over, `streaming` has told.
    """
    if completed.success:
        if job.keyless and isinstance(job.what, str) and _TYPED_AT.fullmatch(job.what.strip()) and os.isatty(2):
            complain(f"`{job.what}` got no keys; they are for a command whose input and output are your terminal.")
    elif completed.hint is not None and not completed.timed_out:
        fact = "The command was killed for its memory. " if completed.out_of_memory else ""
        complain(fact + completed.hint)
    elif completed.exit_code in _NO_SUCH_PROGRAM and isinstance(job.what, list) and " " in job.what[0].strip():
        complain(
            f"{job.what[0]!r} was taken for the name of a program, since more words follow it; quote the whole "
            "command, and write options of atoll before it."
        )
    elif job.late:
        complain(f"{job.late} came after the command, and so it is the command's; options of atoll come before it.")


def tell_of_cell(sandbox: Sandbox, error: CodeError) -> None:
    """The same for a cell that raised."""
    from .. import registry
    from ..client.reasons import hint_for_traceback
    from ..io import BlockingIO, drive

    offers = drive(registry.load(sandbox.driver, BlockingIO()).offers())
    hint = hint_for_traceback(offers, sandbox.info.spec, error.traceback)
    if hint is not None:
        complain(hint)
