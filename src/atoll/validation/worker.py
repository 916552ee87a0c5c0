"""The process of a job that was begun: it belongs to nobody, and does nothing else."""

from __future__ import annotations

import os
from typing import NoReturn

_EVERY_DESCRIPTOR = 1 << 30


def main(id: str) -> NoReturn:
    """Detach, and tell whoever started us by the exit code whether the job is ours. Never returns."""
    # What the caller's process had open without knowing must not stay so for as long as the job takes.
    os.closerange(3, _EVERY_DESCRIPTOR)
    reader, writer = os.pipe()
    if os.fork() != 0:
        os.close(writer)
        os._exit(0 if os.read(reader, 1) == b"1" else 1)
    os.close(reader)
    os.setsid()
    os.chdir("/")
    code = 1
    try:
        _work(id, writer)
        code = 0
    except BaseException:  # noqa: BLE001  # nobody is above us to hear of it
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _work(id: str, writer: int) -> None:
    from . import shelf
    from .executing import execute
    from .running import sweep

    attempt = shelf.claim(id, own=True)
    os.write(writer, b"1")
    os.close(writer)
    if attempt > 1:
        sweep(id)
    job, _ = shelf.job_of(id)
    shelf.save(execute(id, job, attempt, lambda: shelf.is_cancelled(id)))
