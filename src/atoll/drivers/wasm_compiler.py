"""Which compiler's code serves: Cranelift's, or, for who asks for it, Winch's until Cranelift's is there.

Winch compiles in a fifth of the time, and has compiled exceptions, which Python for WebAssembly is full of, for a few
months only: nobody gets its code without having said so, and who asks for the strongest wall or for `strict` does not
get it at all. See docs/decisions/0031-winch-when-asked-for.md.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import NoReturn

from ..errors import AtollError, InvalidInput, WallUnavailable
from . import wasm_runtime
from .wasm_runtime import CRANELIFT, WINCH, Runtime

VARIABLE = "ATOLL_WASM_COMPILER"
WINCH_FIRST = "winch-first"
# Who has compiled in vain, or was killed, is not followed by another at every sandbox.
_AGAIN_AFTER = 3600.0
_LAST_PRIORITY = 19


def wants_winch() -> bool:
    """Whether Winch's code may serve in the meantime.

    Raises:
        InvalidInput: the variable says something else.
    """
    said = os.environ.get(VARIABLE) or CRANELIFT
    if said not in (CRANELIFT, WINCH_FIRST):
        raise InvalidInput(f"{VARIABLE} is {said!r}; write {CRANELIFT!r} or {WINCH_FIRST!r}.")
    return said == WINCH_FIRST


def serving() -> Runtime:
    """What sandboxes are made from that are made now: Cranelift's code as soon as it is there.

    Raises:
        InvalidInput: the variable says what is no compiler.
    """
    winch, best = wants_winch(), wasm_runtime.find()
    if best.is_compiled or not winch:
        return best
    quick = wasm_runtime.find(WINCH)
    return quick if quick.is_compiled else best


def make_ready(*, careful: bool) -> None:
    """Have something compiled that `serving` gives. Blocks, the first time; where `careful`, until it is Cranelift's.

    Raises:
        InvalidInput: the variable says what is no compiler.
        WallUnavailable: it did not work.
    """
    winch, best = wants_winch(), wasm_runtime.find()
    if best.is_compiled:
        return
    if careful or not winch:
        wasm_runtime.ensure(best)
        return
    try:
        wasm_runtime.ensure(wasm_runtime.find(WINCH))
    except WallUnavailable as error:
        raise WallUnavailable(error.message, hint=f"Winch cannot do without AVX2. Or unset {VARIABLE}.") from error
    begin(best)


def first_use(*, careful: bool) -> str | None:
    """What takes long now, as a sentence. Raises InvalidInput as `serving` does."""
    if wasm_runtime.find().is_compiled:
        return None
    if careful or not wants_winch():
        cores = len(os.sched_getaffinity(0))
        shared = "" if cores == 1 else f", shared by {cores} processors"
        return f"Compiling Python for WebAssembly, once for this user: one to two minutes of processor time{shared}."
    if wasm_runtime.find(WINCH).is_compiled:
        return None
    return "Compiling Python for WebAssembly with Winch: about ten seconds. Cranelift's code follows in the background."


def begin(runtime: Runtime) -> None:
    """Have it compiled by a process of its own, at the lowest priority. Returns at once.

    Nothing happens while somebody compiles it, and for an hour after that was tried in vain.

    Raises:
        WallUnavailable: the cache cannot be used.
    """
    import fcntl
    import subprocess

    lock = wasm_runtime.open_lock(runtime)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if runtime.is_compiled or was_tried(runtime):
            return
        places = [place for place in sys.path if place]
        code = f"import sys; sys.path[:] = {places!r}; from atoll.drivers import wasm_compiler as c; c.work"
        # The lock goes on to it, and is free when it ends, however it does.
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"{code}(sys.argv[1], {lock})", runtime.dumps()],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except OSError as error:  # what serves now serves on
        _tell(runtime, f"{sys.executable} cannot be started: {error.strerror}")
    finally:
        os.close(lock)


def was_tried(runtime: Runtime) -> str | None:
    """Why it is not tried again for now to compile it in the background, or None."""
    try:
        with open(_note(runtime), encoding="utf-8") as file:
            if abs(time.time() - os.fstat(file.fileno()).st_mtime) > _AGAIN_AFTER:
                return None
            return file.read() or "it was ended"
    except OSError:
        return None


def is_compiling(runtime: Runtime) -> bool:
    """Whether somebody does that now. It only looks."""
    import fcntl

    try:
        lock = os.open(f"{runtime.home}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def work(text: str, lock: int) -> NoReturn:
    """In the process that compiles in the background, which leaves the family of who has started it."""
    from ..engine import cgroups, kernel

    if os.fork():
        os._exit(0)
    try:
        os.setsid()
        os.nice(_LAST_PRIORITY)
        os.chdir("/")
        os.umask(0o077)
        kernel.close_from(3, (lock,))
        kernel.find_arguments()
        kernel.name_process("atoll-compile", "atoll: compiles Python for WebAssembly")
        cgroups.leave_callers(cgroups.find())
        runtime = Runtime.loads(text)
        _tell(runtime, "")
        try:
            wasm_runtime.compiled(runtime, lambda draft: wasm_runtime.compile_into(draft.dumps()))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the next who asks must hear of it
            _tell(runtime, error.message if isinstance(error, AtollError) else f"{type(error).__name__}: {error}")
        else:
            os.unlink(_note(runtime))
    finally:
        os._exit(0)


def _note(runtime: Runtime) -> str:
    return f"{runtime.home}.tried"


def _tell(runtime: Runtime, reason: str) -> None:
    """It is there from the beginning, so that it is also there after a death."""
    with contextlib.suppress(OSError), open(_note(runtime), "w", encoding="utf-8") as file:
        file.write(reason)
