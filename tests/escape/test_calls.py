"""The system call filter, from inside: each call that it refuses works, or fails for another reason, outside."""

import fcntl
import os
import signal
import struct
import termios

import pytest
from tests.escape.prelude import X86, ctypes, libc, syscall

# name: numbers on x86-64 and aarch64, and arguments with which it does no harm to the host
CALLS = {
    "ptrace": ((101, 117), (0, 0, 0, 0)),
    "process_vm_readv": ((310, 270), (0, 0, 0, 0, 0, 0)),
    "process_vm_writev": ((311, 271), (0, 0, 0, 0, 0, 0)),
    "process_madvise": ((440, 440), (-1, 0, 0, 0, 0)),
    "kcmp": ((312, 272), (0, 0, 0, 0, 0)),
    "pidfd_getfd": ((438, 438), (-1, 0, 0)),
    "mount": ((165, 40), (0, 0, 0, 0, 0)),
    "umount2": ((166, 39), (0, 0)),
    "pivot_root": ((155, 41), (0, 0)),
    "open_tree": ((428, 428), (-1, 0, 0)),
    "move_mount": ((429, 429), (-1, 0, -1, 0, 0)),
    "fsopen": ((430, 430), (0, 0)),
    "fsconfig": ((431, 431), (-1, 0, 0, 0, 0)),
    "fsmount": ((432, 432), (-1, 0, 0)),
    "fspick": ((433, 433), (-1, 0, 0)),
    "mount_setattr": ((442, 442), (-1, 0, 0, 0, 0)),
    "setns": ((308, 268), (-1, 0)),
    "bpf": ((321, 280), (-1, 0, 0)),
    "perf_event_open": ((298, 241), (0, 0, 0, 0, 0)),
    "userfaultfd": ((323, 282), (0,)),
    "keyctl": ((250, 219), (0, -3, 0)),
    "add_key": ((248, 217), (0, 0, 0, 0, 0)),
    "request_key": ((249, 218), (0, 0, 0, 0)),
    "kexec_load": ((246, 104), (0, 99, 0, -1)),
    "kexec_file_load": ((320, 294), (-1, -1, 0, 0, -1)),
    "init_module": ((175, 105), (0, 0, 0)),
    "finit_module": ((313, 273), (-1, 0, 0)),
    "delete_module": ((176, 106), (0, 0)),
    "io_uring_setup": ((425, 425), (0, 0)),
    "io_uring_enter": ((426, 426), (-1, 0, 0, 0, 0, 0)),
    "io_uring_register": ((427, 427), (-1, 0, 0, 0)),
    "reboot": ((169, 142), (0, 0, 0, 0)),
    "swapon": ((167, 224), (0, 0)),
    "swapoff": ((168, 225), (0,)),
    "quotactl": ((179, 60), (-1, 0, 0, 0)),
    "syslog": ((103, 116), (10, 0, 0)),
    "clock_settime": ((227, 112), (-1, 0)),
    "settimeofday": ((164, 170), (1, 0)),
    "sethostname": ((170, 161), (0, 8)),
    "setdomainname": ((171, 162), (0, 8)),
    "open_by_handle_at": ((304, 265), (-1, 0, 0)),
    "name_to_handle_at": ((303, 264), (-1, 0, 0, 0, 0)),
    "fanotify_init": ((300, 262), (-1, 0)),
    "move_pages": ((279, 239), (0, 0, 0, 0, 0, 0)),
    "migrate_pages": ((256, 238), (0, 0, 0, 0)),
    "mbind": ((237, 235), (0, 0, 0, 0, 0, 0)),
    "set_mempolicy": ((238, 237), (0, 0, 0)),
}


def make_all(calls):
    """The outcome of each call, in a child of its own: some of them change their caller."""
    outcomes = {}
    for name, (number, arguments) in calls.items():
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, str(outcome(syscall, tuple(number), *arguments)).encode())  # noqa: F821
            os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            outcomes[name] = pipe.read()
        os.waitpid(pid, 0)
    return outcomes


def push_into_terminal():
    """TIOCSTI on a terminal of one's own: what it types would be read as if by its owner."""
    pid, _ = os.forkpty()
    if pid == 0:
        try:
            fcntl.ioctl(0, termios.TIOCSTI, b"x")
            os._exit(100)
        except OSError as error:
            os._exit(100 + error.errno)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended != 100:
        raise OSError(ended - 100, "TIOCSTI")


def ask_terminal():
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    return struct.unpack("HHHH", fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)))[:2]


def call_as_x32():
    syscall((0x40000000 | 39, 172))


def call_as_32_bit():
    """getpid through `int 0x80`, the door of 32-bit programs, in a child that may be killed for it."""
    import mmap

    pid = os.fork()
    if pid == 0:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        # push rbx; mov eax, 20; int 0x80; pop rbx; ret
        code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        os._exit(0 if function() == os.getpid() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def switch_filter_off():
    """A second filter that allows everything changes nothing."""
    program = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(program, len(program))
    syscall((317, 277), 1, 0, struct.pack("HxxxxxxP", 1, ctypes.addressof(buffer)))
    return libc.unshare(0x10000000)


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to show that each call is not refused outside")
def test_each_refused_call_is_refused_by_the_filter_alone(maker, root_maker):
    inside = maker.box.try_command(make_all, CALLS)
    assert inside == dict.fromkeys(CALLS, "EPERM")
    outside = root_maker.try_outside(make_all, CALLS)
    assert [name for name, said in outside.items() if said == "EPERM"] == []


def test_nobody_types_into_a_terminal_but_its_owner(maker):
    assert maker.box.try_command(push_into_terminal) == "EPERM"
    assert maker.box.try_command(ask_terminal) == [24, 80]


def test_root_outside_can_type_into_a_terminal(root_maker):
    assert root_maker.try_outside(push_into_terminal) == "ok"


@pytest.mark.skipif(not X86, reason="only x86-64 has other doors into the kernel")
def test_the_other_doors_into_the_kernel_are_shut(maker):
    assert maker.box.try_command(call_as_x32) == "ENOSYS"
    assert maker.box.try_command(call_as_32_bit) == -signal.SIGSYS
    # Where the kernel has that door at all, it is open outside.
    assert maker.try_outside(call_as_32_bit) in (0, -signal.SIGSEGV)


def test_another_filter_takes_nothing_away_from_the_first(maker):
    assert maker.box.try_command(switch_filter_off) == -1
