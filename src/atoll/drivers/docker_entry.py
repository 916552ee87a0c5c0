"""The first steps inside a container: wait until its places are there; atoll's own filter of system calls; the guest.

An engine's filter allows what some program may need, io_uring for one; the guest and what it starts do without.
"""

from __future__ import annotations

from ..engine import kernel, seccomp

ENTER, FILTER, GATE = "enter", "filter", "gate"


def files(inside: str) -> dict[str, bytes]:
    """What lies in the directory that a container sees as `inside`, by name."""
    program = _PROGRAM.format(gate=f"{inside}/{GATE}", filter=f"{inside}/{FILTER}")
    return {ENTER: program.encode(), FILTER: seccomp.program(kernel.MACHINE)}


# Without `engine`, which is not inside. Its arguments are the program that comes next, and that one's.
_PROGRAM = """\
import ctypes, socket, struct, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gate:
    gate.connect({gate!r})
    if not gate.recv(1):
        sys.exit("nobody is at the gate")
with open({filter!r}, "rb") as file:
    code = file.read()
buffer = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
if ctypes.CDLL(None, use_errno=True).prctl(22, 2, program, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "the filter of system calls cannot be loaded")
del sys.argv[0]
with open(sys.argv[0], "rb") as file:
    source = file.read()
exec(compile(source, sys.argv[0], "exec"), {{"__name__": "__main__", "__file__": sys.argv[0]}})
"""
