"""A hostile context that is forked into another sandbox: it gains nothing, harms nobody, and nothing is left of it."""

import concurrent.futures
import contextlib
import os
import signal
import threading
import time

import pytest
from tests.engine.twins import all_live, context_process, fork, held, members, new, text, traces, transplant

from atoll.engine import tracing
from atoll.errors import AtollError

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not tracing.available(), reason="needs root on x86-64")

TOOLS = """
import ctypes, mmap, os, re, signal, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.syscall.restype = ctypes.c_long
def places(name):
    found = []
    for line in open('/proc/self/maps'):
        if name in line:
            first, last = line.split()[0].split('-')
            found.append((int(first, 16), int(last, 16)))
    return found
def protect(place, protection):
    return libc.mprotect(ctypes.c_void_p(place[0]), ctypes.c_size_t(place[1] - place[0]), protection)
x = 'precious'
"""


@pytest.fixture
def make():
    with contextlib.ExitStack() as stack:
        yield lambda **wishes: new(stack, **wishes)


def check_unharmed(*boxes):
    """Each answers, whatever became of its context, and ends without a trace."""
    for box in boxes:
        assert text(box, "1 + 1") == "2"
        processes = members(box)
        box.destroy()
        assert traces(box) == []
        deadline = time.monotonic() + 20
        while any(os.path.exists(f"/proc/{pid}") for pid in processes):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_code_that_shadows_run_cannot_be_changed_under_them(make):
    """Threads write a jump to their own instructions over those of the kernel's, as fast as they can, and back.

    If a shadow, which is root outside, ran them, there would be a file in the host's root directory.
    """
    box = make()
    name = f"atoll-escaped-{os.getpid()}"
    text(
        box,
        TOOLS
        + f"""
place = places('[vdso]')[0]
original = ctypes.string_at(place[0], place[1] - place[0])
at = place[0] + original.find(b'\\x0f\\x05')
near = libc.mmap(ctypes.c_void_p((place[0] - (1 << 24)) & ~4095), ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
assert abs(near - at) < 1 << 31
# open(path, O_CREAT | O_WRONLY, 0644), and then for ever nothing
code = (b'\\x48\\xbf' + struct.pack('Q', near + 256) + b'\\xbe\\x41\\x00\\x00\\x00\\xba\\xa4\\x01\\x00\\x00'
        b'\\xb8\\x02\\x00\\x00\\x00\\x0f\\x05\\xeb\\xfe')
ctypes.memmove(near, code, len(code))
ctypes.memmove(near + 256, b'/{name}\\0', {len(name) + 2})
jump = b'\\xe9' + struct.pack('i', near - at - 5)
memory = os.open('/proc/self/mem', os.O_RDWR)
changed = bytearray(original.replace(b'\\x0f\\x05', b'\\x0f\\x0b'))
changed[at - place[0]:at - place[0] + 5] = jump
writes = 0
def attack():
    global writes
    while True:
        os.pwrite(memory, changed, place[0])
        os.pwrite(memory, original, place[0])
        writes += 1
threading.Thread(target=attack, daemon=True).start()
""",
    )
    outcomes = []
    try:
        for _ in range(24):
            twin = make()
            outcomes.append(fork(box, twin)[twin.id]["main"]["live"])
            assert not os.path.exists(f"/{name}")
            assert text(twin, "1 + 1") == "2"
            twin.destroy()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"/{name}")
    assert set(outcomes) == {True, False}, "the control: the attack is there, and not always in time"
    assert int(text(box, "writes")) > 100


def test_who_has_changed_the_kernels_code_for_good_cannot_be_forked(make):
    box, twin = make(), make()
    code = """
place = places('[vdso]')[0]
code = ctypes.string_at(place[0], place[1] - place[0])
os.pwrite(os.open('/proc/self/mem', os.O_RDWR), code.replace(b'\\x0f\\x05', b'\\x0f\\x0b'), place[0])
"""
    text(box, TOOLS + code)
    outcome = fork(box, twin)
    assert not outcome[twin.id]["main"]["live"]
    assert text(box, "x") == "'precious'"
    check_unharmed(box, twin)


def test_who_has_thrown_the_kernels_code_away_cannot_be_forked(make):
    box, twin = make(), make()
    code = "place = places('[vdso]')[0]\nlibc.munmap(ctypes.c_void_p(place[0]), ctypes.c_size_t(place[1] - place[0]))"
    # Python asks for the time through that code, so what follows may be its end.
    box.run_code(TOOLS + code)
    with contextlib.suppress(AtollError):
        fork(box, twin)
    check_unharmed(box, twin)


@pytest.mark.parametrize(
    "act", ["libc.munmap(ctypes.c_void_p({0}), ctypes.c_size_t({1}))", "ctypes.memset({0}, 0xFF, {1})"]
)
def test_a_page_that_is_forged_or_gone_harms_only_its_context(make, act):
    box, twin = make(), make()
    code = "place = places('memfd:page')[0]\n" + act.format("place[0]", "place[1] - place[0]")
    with contextlib.suppress(AtollError):
        box.run_code(TOOLS + code)
    with contextlib.suppress(AtollError):
        fork(box, twin)
    box.contexts.restart()
    check_unharmed(box, twin)


def test_the_page_of_a_twin_is_not_its_parents(make):
    box, twin = make(), make()
    text(box, TOOLS)
    fork(box, twin)
    inodes = set()
    for each in (box, twin):
        with open(f"/proc/{context_process(each)}/maps", encoding="ascii", errors="replace") as file:
            shared = [line.split() for line in file if line.split()[1][1:4:2] == "ws"]
        assert [fields[5] for fields in shared] == ["/memfd:page"]
        inodes.add(shared[0][4])
    assert len(inodes) == 2


@pytest.mark.parametrize("numbers", ["(0, 1, 2)", "(3,)", "(4, 5)", "range(0, 50)"])
def test_closed_descriptors_harm_only_their_context(make, numbers):
    box, twin = make(), make()
    with contextlib.suppress(AtollError):
        box.run_code(TOOLS + f"for n in {numbers}:\n    try: os.close(n)\n    except OSError: pass")
    with contextlib.suppress(AtollError):
        fork(box, twin)
    with contextlib.suppress(AtollError):
        box.contexts.restart()
    check_unharmed(box, twin)


def test_blocked_and_handled_signals_change_nothing(make):
    box, twin = make(), make()
    text(
        box,
        TOOLS + "heard = []\nfor n in range(1, 65):\n    try: signal.signal(n, lambda *a: heard.append(a[0]))\n"
        "    except (OSError, ValueError): pass\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    )
    assert all_live(fork(box, twin))
    assert text(twin, "x, heard, len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))") == text(
        box, "x, heard, len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    )
    check_unharmed(box, twin)


def test_a_context_that_may_not_fork_by_a_filter_of_its_own_is_forked_all_the_same(make):
    """The fork never happens in it. Its twin has the wall of its sandbox, and not the filter."""
    box, twin = make(), make()
    text(
        box,
        TOOLS
        + """
def op(code, value, yes=0, no=0): return struct.pack('HBBI', code, yes, no, value)
filter = b''.join([op(0x20, 0), op(0x15, 56, 0, 1), op(6, 0x50001), op(6, 0x7fff0000)])
held = ctypes.create_string_buffer(filter, len(filter))
program = struct.pack('HxxxxxxP', 4, ctypes.addressof(held))
assert libc.syscall(317, 1, 0, program) == 0
try: os.fork()
except PermissionError: print('refused')
""",
    )
    assert all_live(fork(box, twin))
    assert text(twin, "x, [line for line in open('/proc/self/status') if 'Seccomp_filters' in line]").endswith(
        "1\\n'])"
    )
    assert box.run_code("os.fork()").error.name == "PermissionError"
    check_unharmed(box, twin)


def test_memory_that_changes_all_the_time_is_forked_at_one_moment(make):
    box, twin = make(), make()
    text(
        box,
        TOOLS + "data = bytearray(8 << 20)\ndef change():\n    n = 0\n    while True:\n        n = (n + 1) % 256\n"
        "        data[:] = bytes([n]) * len(data)\n"
        "for _ in range(3): threading.Thread(target=change, daemon=True).start()",
    )
    for _ in range(5):
        twin = make()
        assert all_live(fork(box, twin))
        assert text(twin, "x, len(data), threading.active_count() >= 1") == f"('precious', {8 << 20}, True)"
        first = text(twin, "bytes(data)")
        assert text(twin, "bytes(data)") == first, "nobody changes it in a twin"


def test_processes_that_share_the_memory_of_a_context_are_stopped_too(make):
    """They are no threads of it, and run in it as well."""
    box, twin = make(), make()
    text(
        box,
        TOOLS
        + """
stack = mmap.mmap(-1, 1 << 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + (1 << 16) - 64
counter = ctypes.c_uint64(0)
# for ever: increase the counter
code = b'\\x48\\xb8' + struct.pack('Q', ctypes.addressof(counter)) + b'\\x48\\xff\\x00\\xeb\\xfb'
page = mmap.mmap(-1, 4096, prot=7, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page.write(code)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
CLONE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
child = libc.clone(CLONE(start), ctypes.c_void_p(top), 0x100 | 17, None)
assert child > 0
""",
    )
    for _ in range(3):
        twin = make()
        assert all_live(fork(box, twin))
        assert text(twin, "x") == "'precious'"
    before = int(text(box, "counter.value"))
    assert int(text(box, "time.sleep(0.05); counter.value")) > before, "the control: it goes on"
    check_unharmed(box)


def test_memory_that_is_shared_with_others_does_not_join_two_sandboxes(make):
    box, twin = make(), make()
    text(
        box,
        TOOLS + "one = mmap.mmap(-1, 1 << 16)\nfile = open('/workspace/shared', 'w+b')\nfile.truncate(1 << 16)\n"
        "two = mmap.mmap(file.fileno(), 1 << 16)\nthree = open('/dev/shm/shared', 'w+b')\nthree.truncate(1 << 16)\n"
        "three = mmap.mmap(three.fileno(), 1 << 16)\nfour = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)",
    )
    assert all_live(fork(box, twin))
    text(twin, "one[:4] = two[:4] = three[:4] = b'twin'")
    assert text(box, "one[:4], two[:4], three[:4], four[:1]") == str((bytes(4),) * 3 + (bytes(1),))
    assert twin.run("ls /workspace /dev/shm").stdout.split() == ["/dev/shm:", "/workspace:"]
    check_unharmed(box, twin)


def test_who_shares_very_much_memory_is_not_forked(make):
    box, twin = make(), make()
    text(box, TOOLS + "much = mmap.mmap(-1, 300 << 20)")
    outcome = fork(box, twin)
    assert "300 MB" in outcome[twin.id]["main"]["reason"] or "memory" in outcome[twin.id]["main"]["reason"]
    assert text(box, "x") == "'precious'"
    check_unharmed(box, twin)


def test_a_bomb_of_processes_ends_in_an_error_that_says_so(make):
    box, twin = make(), make()
    text(
        box,
        TOOLS + "if os.fork() == 0:\n    os.setsid()\n    while True:\n        try:\n"
        "            if os.fork() > 0: os._exit(0)\n        except OSError: pass",
    )
    try:
        outcome = fork(box, twin)
        assert outcome[twin.id]["main"]["live"] or outcome[twin.id]["main"]["reason"]
    except AtollError:
        pass
    box.destroy()
    assert traces(box) == []
    check_unharmed(twin)


def kill_at(box, when):
    """Kill the process of a context so long after now."""
    pid = context_process(box)

    def kill():
        time.sleep(when)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize("turn", range(12))
def test_a_context_that_is_killed_at_any_step_leaves_all_others_alone(make, turn):
    box, twin = make(), make()
    text(box, TOOLS + "big = bytearray(20 << 20)")
    thread = kill_at(box, turn * 0.003)
    with contextlib.suppress(AtollError):
        fork(box, twin)
    thread.join()
    check_unharmed(box, twin)


@pytest.mark.parametrize("turn", range(8))
def test_a_shadow_that_is_killed_at_any_step_leaves_all_others_alone(make, turn):
    box, twin = make(), make()
    text(box, TOOLS + "big = bytearray(20 << 20)")
    inside = context_process(box)
    with open(f"/proc/{inside}/status", encoding="ascii", errors="replace") as file:
        shadow = int(next(line for line in file if line.startswith("PPid:")).split()[1])

    def kill():
        time.sleep(turn * 0.004)
        with contextlib.suppress(ProcessLookupError):
            os.kill(shadow, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with contextlib.suppress(AtollError):
        fork(box, twin)
    thread.join()
    assert text(box, "x") == "'precious'", "a context does without its shadow"
    check_unharmed(box, twin)


@pytest.mark.parametrize("turn", range(6))
def test_a_keeper_that_is_killed_at_any_step_takes_its_own_sandbox_with_it(make, turn):
    box, twin = make(), make()
    text(box, TOOLS + "big = bytearray(20 << 20)")
    processes = members(box)
    keeper = box._core._record.handle.data["pid"]

    def kill():
        time.sleep(turn * 0.005)
        os.kill(keeper, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with contextlib.suppress(AtollError):
        fork(box, twin)
    thread.join()
    with contextlib.suppress(AtollError):
        box.destroy()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    check_unharmed(twin)


def test_a_twin_whose_keeper_is_killed_goes_with_it_and_its_parent_stays(make):
    box, twin = make(), make()
    text(box, TOOLS)
    fork(box, twin)
    processes = members(twin)
    os.kill(twin._core._record.handle.data["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert text(box, "x") == "'precious'"
    check_unharmed(box)


def test_the_signals_that_mean_go_and_stay_do_nothing_from_inside(make):
    box, twin = make(), make()
    text(box, TOOLS)
    for number in ("URG", "WINCH"):
        with held(box):
            box.run(f"for p in /proc/[0-9]*; do kill -{number} ${{p#/proc/}}; done 2>/dev/null")
            with contextlib.suppress(AtollError):
                transplant(box, twin)
        assert text(box, "x") == "'precious'"
    check_unharmed(box, twin)


def test_many_forks_at_once_of_many_sandboxes(make):
    boxes = [make() for _ in range(3)]
    for number, box in enumerate(boxes):
        text(box, f"x = {number}")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        twins = [[make() for _ in range(3)] for _ in boxes]
        outcomes = list(pool.map(lambda pair: fork(pair[0], *pair[1]), zip(boxes, twins, strict=True)))
    assert all(map(all_live, outcomes))
    assert [[text(twin, "x") for twin in some] for some in twins] == [[str(n)] * 3 for n in range(3)]
