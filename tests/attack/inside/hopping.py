"""Threads that are never where one looks: each starts its successor and ends. Some rewrite code that others run."""

import ctypes
import os
import random
import struct
import sys
import threading
import time

from tests.attack.inside import machine
from tests.attack.inside.machine import Code, call, in_process, in_thread, places
from tests.attack.inside.plain import Clock


def _rest(code, seconds):
    code.system(machine.NANOSLEEP, code.data(struct.pack("<qq", int(seconds), int(seconds % 1 * 1e9))), 0)


def _chain(code, between):
    """A thread that clones itself; what was cloned does so in turn, and the elder does something and ends."""
    code.label("hop")
    code.system(machine.CLONE, machine.THREAD_FLAGS, 0, 0, 0, 0)
    code.jump_if_zero("hop")
    code.jump_if_error("wait")
    between(code)
    code.system(machine.EXIT, 0)
    code.label("wait")
    _rest(code, 0.001)
    code.jump("hop")


def hop(chance, options):
    """Chains of threads, of which no list is true by the time that it is read."""
    pause = chance.choice([0, 0, 50e-6, 1e-3])
    for _ in range(chance.randint(1, 3)):
        code = Code()
        _chain(code, lambda code: _rest(code, pause) if pause else None)
        in_thread(code.finish())


def _payload(options, near):
    """For whoever runs it with more rights than it should have: a task of its own, and the marker."""
    code = Code(near)
    code.system(machine.CLONE, machine.UNTRACED | 17, 0, 0, 0, 0)
    code.jump_if_zero("free")
    code.label("stay")
    code.system(machine.PAUSE)
    code.jump("stay")
    code.label("free")
    code.system(machine.PRCTL, machine.SET_NAME, code.data(options["tag"].encode() + b"\0"), 0, 0, 0)
    code.system(machine.OPEN, code.data(options["marker"].encode() + b"\0"), 0o101, 0o644)
    _rest(code, 8)
    code.system(machine.EXIT_GROUP, 0)
    return code


def _target(options):
    """Where the kernel's own code in this process has its first call, what is there, and a jump from it elsewhere."""
    first, last = places("[vdso]")[0]
    original = ctypes.string_at(first, last - first)
    at = first + original.find(b"\x0f\x05")
    near = _payload(options, at)
    near.finish()
    return at, original[at - first : at - first + 5], b"\xe9" + struct.pack("<i", near.address - at - 5)


def _flipper(options):
    """Code that turns the call into a jump to the payload, and the next time back."""
    at, original, jump = _target(options)
    memory = os.open("/proc/self/mem", os.O_RDWR)
    code = Code()
    counter, good, bad = code.data(bytes(8)), code.data(original), code.data(jump)

    def flip(code):
        code.jump_if_odd(counter, "good")
        code.system(machine.PWRITE, memory, bad, 5, at)
        code.system(machine.EXIT, 0)
        code.label("good")
        code.system(machine.PWRITE, memory, good, 5, at)

    _chain(code, flip)
    return code.finish()


def rewrite(chance, options):
    """Hop, and rewrite the code that a helper of the wall's might run in this memory."""
    for _ in range(chance.randint(2, 3)):
        in_thread(_flipper(options))


def rewrite_in_a_crowd(chance, options):
    """The same by a process that shares this memory, and is the last of more than fit on a page of their list."""
    count = options["pids"] * 3 // 4
    in_process(_sleepers, count, options["seconds"])
    clock = Clock(5)
    while clock.is_on() and sum(name.isdigit() for name in os.listdir("/proc")) < count:
        time.sleep(0.05)
    code = Code()
    code.system(machine.CLONE, machine.VM | 17, 0, 0, 0, 0)
    code.jump_if_zero("inside")
    code.back()
    code.label("inside")
    at, original, jump = _target(options)
    memory, good, bad = os.open("/proc/self/mem", os.O_RDWR), code.data(original), code.data(jump)
    code.system(machine.PWRITE, memory, bad, 5, at)
    _rest(code, 0.0002)
    code.system(machine.PWRITE, memory, good, 5, at)
    code.jump("inside")
    in_thread(code.finish())


def _sleepers(count, seconds):
    for _ in range(count):
        in_process(time.sleep, seconds)
    time.sleep(seconds)


def spoil(chance, options):
    """Break the kernel's code in this process, or its own, for good or for moments."""

    def body():
        first, last = places("[vdso]")[0]
        memory = os.open("/proc/self/mem", os.O_RDWR)
        original = ctypes.string_at(first, last - first)
        broken = original.replace(b"\x0f\x05", chance.choice([b"\x0f\x0b", b"\xeb\xfe", b"\xcd\x80", b"\x90\x90"]))
        clock = Clock(options["seconds"])
        if chance.random() < 0.2:
            machine.libc.munmap(ctypes.c_void_p(first), ctypes.c_size_t(last - first))
        while clock.is_on():
            os.pwrite(memory, broken, first)
            time.sleep(chance.choice([0, 0.001]))
            os.pwrite(memory, original, first)

    in_process(body) if chance.random() < 0.5 else in_thread(body)


def exec_storm(chance, options):
    """A thread of many calls exec, just when somebody has begun to stop the others."""
    for _ in range(chance.randint(1, 3)):
        in_process(_become, options, chance.choice([0.05, 0.5, 2]))


def _become(options, wait):
    for _ in range(options["threads"]):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    first = os.open(f"/proc/self/task/{os.getpid()}/stat", os.O_RDONLY)
    clock = Clock(wait)

    def body():
        while clock.is_on() and b") t" not in os.pread(first, 200, 0):
            pass
        os.execv(sys.executable, [sys.executable, "-I", "-c", options["source"] + "import time\ntime.sleep(5)\n"])

    threading.Thread(target=body).start()
    time.sleep(600)


def wait_in_vfork(chance, options):
    """Threads that wait for a child in a way that no signal but the last one ends."""
    code = Code()
    code.system(machine.CLONE, machine.VFORK | machine.VM | 17, 0, 0, 0, 0)
    code.jump_if_zero("child")
    code.back()
    code.label("child")
    _rest(code, options["seconds"] * chance.random())
    code.system(machine.EXIT_GROUP, 0)
    run = code.finish()
    for _ in range(chance.randint(1, 6)):
        in_thread(run) if chance.random() < 0.5 else in_process(run)


def leave_a_dead_leader(chance, options):
    """A process whose first thread has ended while others go on, and hop."""

    def body():
        hop(chance, options)
        for _ in range(4):
            in_thread(time.sleep, options["seconds"])
        call(machine.EXIT, 0)

    for _ in range(chance.randint(1, 3)):
        in_process(body)


def churn(chance, options):
    """Threads and processes that are born and die as fast as they can."""

    def body():
        clock = Clock(options["seconds"])
        pick = random.Random(chance.random())
        while clock.is_on():
            if pick.random() < 0.5:
                in_process(time.sleep, 0.001)
            else:
                in_thread(time.sleep, 0.001)
            time.sleep(0.001)

    for _ in range(chance.randint(1, 2)):
        in_process(body)
