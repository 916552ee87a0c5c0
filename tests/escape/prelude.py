"""What every attempt may use. Its text goes inside the wall ahead of the attempt's own."""

import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"


def failed(what):
    return OSError(ctypes.get_errno(), what)


def syscall(number, *arguments):
    """A system call by number, or by its two numbers on x86-64 and aarch64."""
    if isinstance(number, tuple):
        number = number[0 if X86 else 1]
    ctypes.set_errno(0)
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *converted)
    if result == -1:
        raise failed(f"system call {number}")
    return result


def outcome(attempt, *arguments):
    """What an attempt gives, "ok" for nothing, or the name of the errno that it was refused with."""
    try:
        value = attempt(*arguments)
    except TimeoutError as error:
        return errno.errorcode.get(error.errno, "timeout")
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "ok" if value is None else value
