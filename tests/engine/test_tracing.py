"""Stopping real processes, having them make calls, and letting them go on as if nothing had been."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from atoll.engine import holding, tracing

pytestmark = pytest.mark.skipif(not tracing.available(), reason="only x86-64 is known")


class Started:
    """A Python program that says `ready` and then goes on; `say` is what it prints next."""

    def __init__(self, code, directory="/"):
        program = (
            "import os, sys, time, signal, socket, threading, select\n"
            "def ready(): print('ready', flush=True)\n" + textwrap.dedent(code)
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory, text=True
        )
        self.pid = self.process.pid
        assert self.line() == "ready"

    def line(self, timeout=20.0):
        assert select.select([self.process.stdout], [], [], timeout)[0], "it says nothing"
        return self.process.stdout.readline().strip()

    def tell(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def wait_until(self, *states):
        """Until its first thread is in one of these states: S sleeps, R runs."""
        deadline = time.monotonic() + 20
        while state(self.pid) not in states:
            assert time.monotonic() < deadline
            os.sched_yield()

    @property
    def directory(self):
        return os.readlink(f"/proc/{self.pid}/cwd")


def text_of(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def children(pid):
    return [int(each) for each in text_of(f"/proc/{pid}/task/{pid}/children").split()]


def state(pid):
    return text_of(f"/proc/{pid}/stat").rpartition(") ")[2][0]


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:

        def started(code, **options):
            made = Started(code, **options)
            stack.callback(made.process.communicate)
            stack.callback(made.process.kill)
            return made

        yield started


def move_directories(pid, moves, timeout=5.0):
    """Have each thread of a process, stopped, go to where `moves` says; gives what went wrong, by thread."""
    failed = {}
    for each in tracing.threads(pid):
        try:
            task = tracing.Task(each)
            task.interrupt()
            task.halt(task.wait(timeout), timeout)
            try:
                holding._change_directory(task, moves(each), timeout)
            finally:
                task.release(timeout)
        except tracing.TaskEnded:
            continue
        except (OSError, tracing.Strayed) as error:
            tracing.let_go(each)
            failed[each] = error
    return failed


def change_directory(pid, path):
    for error in move_directories(pid, lambda _task: path).values():
        raise error


BLOCKED = {
    "a read": "ready(); line = sys.stdin.readline().strip(); print('heard', line, os.getcwd(), flush=True)",
    "a poll with a timeout": """
        poll = select.poll(); poll.register(0, select.POLLIN); ready()
        found = poll.poll(60000); print('heard', sys.stdin.readline().strip(), os.getcwd(), flush=True)
    """,
    "a poll without one": """
        poll = select.poll(); poll.register(0, select.POLLIN); ready()
        found = poll.poll(); print('heard', sys.stdin.readline().strip(), os.getcwd(), flush=True)
    """,
    "a lock": """
        lock = threading.Lock(); lock.acquire()
        def hear():
            global said
            said = sys.stdin.readline().strip(); lock.release()
        threading.Thread(target=hear).start(); ready()
        lock.acquire(); print('heard', said, os.getcwd(), flush=True)
    """,
    "a lock with a timeout": """
        lock = threading.Lock(); lock.acquire()
        def hear():
            global said
            said = sys.stdin.readline().strip(); lock.release()
        threading.Thread(target=hear).start(); ready()
        assert lock.acquire(timeout=60); print('heard', said, os.getcwd(), flush=True)
    """,
    "a spin": """
        os.set_blocking(0, False); ready()
        said = None
        while not said:
            said = os.read(0, 100) if select.select([0], [], [], 0)[0] else None
        print('heard', said.decode().strip(), os.getcwd(), flush=True)
    """,
}


@pytest.mark.parametrize("code", BLOCKED.values(), ids=BLOCKED)
def test_who_waits_goes_on_waiting_in_the_other_directory(start, tmp_path, code):
    program = start(code)
    for _ in range(20):
        change_directory(program.pid, "/usr")
        change_directory(program.pid, str(tmp_path))
    assert program.directory == str(tmp_path)
    program.tell("something")
    assert program.line() == f"heard something {tmp_path}"


def test_a_sleep_is_not_longer_and_not_shorter(start):
    program = start("ready(); t = time.monotonic(); time.sleep(0.5); print(time.monotonic() - t, flush=True)")
    program.wait_until("S")
    for _ in range(5):
        change_directory(program.pid, "/usr")
    assert 0.5 <= float(program.line()) < 0.9


def test_a_system_call_that_was_interrupted_by_a_signal_too_still_hears_of_it(start):
    """`pause` ends with any signal that has a handler; one that came while it was stopped must not be lost."""
    program = start(
        """
        got = []
        signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
        ready()
        for _ in range(200):
            signal.pause()
            print('paused', len(got), flush=True)
        """
    )
    for turn in range(200):
        program.wait_until("S")

        def signalled(_task):
            os.kill(program.pid, signal.SIGUSR1)
            return "/usr"

        assert move_directories(program.pid, signalled) == {}
        assert program.line() == f"paused {turn + 1}"


def test_no_signal_is_lost_and_none_comes_twice(start):
    program = start(
        """
        got = 0
        def count(*_):
            global got
            got += 1
            os.write(1, b'.\\n')
        signal.signal(signal.SIGUSR1, count)
        ready()
        while True:
            time.sleep(0.01)
        """
    )
    for _ in range(100):
        move_directories(program.pid, lambda task: os.kill(task, signal.SIGUSR1) or "/usr")
        assert program.line() == "."


def test_threads_that_run_and_wait_all_go_on(start, tmp_path):
    program = start(
        """
        stop = False
        def spin():
            while not stop: pass
        def sleep():
            while not stop: time.sleep(0.001)
        threads = [threading.Thread(target=f) for f in (spin, sleep, spin, sleep)]
        for thread in threads: thread.start()
        ready()
        sys.stdin.readline()
        stop = True
        for thread in threads: thread.join()
        print('joined', os.getcwd(), flush=True)
        """
    )
    for _ in range(10):
        assert move_directories(program.pid, lambda _task: str(tmp_path)) == {}
    program.tell("")
    assert program.line() == f"joined {tmp_path}"


def test_a_process_that_was_stopped_stays_stopped(start, tmp_path):
    program = start("ready(); sys.stdin.readline(); print('on', os.getcwd(), flush=True)")
    os.kill(program.pid, signal.SIGSTOP)
    program.wait_until("T")
    change_directory(program.pid, str(tmp_path))
    program.wait_until("T")
    program.tell("")
    assert not select.select([program.process.stdout], [], [], 0.05)[0]
    os.kill(program.pid, signal.SIGCONT)
    assert program.line() == f"on {tmp_path}"


def test_a_directory_that_is_not_there_is_told_and_harms_nobody(start):
    program = start("ready(); print('heard', sys.stdin.readline().strip(), os.getcwd(), flush=True)")
    with pytest.raises(FileNotFoundError):
        change_directory(program.pid, "/nowhere")
    program.tell("me")
    assert program.line() == "heard me /"


def test_who_is_gone_is_told(start):
    program = start("ready(); sys.stdin.readline()")
    program.tell("")
    program.process.wait()
    with pytest.raises(tracing.TaskEnded):
        tracing.Task(program.pid)


def test_who_threw_the_kernels_code_away_is_left_alone(start):
    program = start(
        """
        import ctypes
        place = next(line for line in open('/proc/self/maps') if '[vdso]' in line).split()[0]
        first, last = (int(part, 16) for part in place.split('-'))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.munmap(ctypes.c_void_p(first), ctypes.c_size_t(last - first))
        os.write(1, b'ready\\n')
        os.write(1, b'on ' + os.read(0, 100))
        """
    )
    with pytest.raises(tracing.Strayed):
        change_directory(program.pid, "/usr")
    assert program.directory == "/"
    program.tell("and on")
    assert program.line() == "on and on"


def test_a_task_that_is_killed_while_it_is_stopped_has_ended(start):
    program = start("ready(); sys.stdin.readline()")
    assert move_directories(program.pid, lambda task: os.kill(task, signal.SIGKILL) or "/usr") == {}
    assert program.process.wait(10) == -signal.SIGKILL


def test_who_cannot_stop_in_time_is_named_and_goes_on_later(start, tmp_path):
    """It waits for its child to exec, which waits for somebody at the other end of a pipe."""
    os.mkfifo(tmp_path / "pipe")
    program = start(
        """
        ready()
        os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, 'pipe', os.O_RDONLY, 0)])
        print('on', flush=True)
        """,
        directory=str(tmp_path),
    )
    while not children(program.pid):
        os.sched_yield()
    failed = move_directories(program.pid, lambda _task: "/usr", timeout=0.05)
    assert isinstance(failed[program.pid], tracing.NotStopped)
    with open(tmp_path / "pipe", "wb"):
        program.wait_until("t")
    tracing.settle()
    assert program.line() == "on"


def test_a_call_that_is_not_the_one_that_was_meant_is_skipped(start):
    """The place where it is sent jumps elsewhere: as if another who shares the memory had written there."""
    program = start("ready(); sys.stdin.readline()")
    program.wait_until("S")
    task = tracing.Task(program.pid)
    task.interrupt()
    task.halt(task.wait())
    task.begin()
    task.call("munmap", 0, 4096)  # the positive control
    vdso = tracing.find_instruction(program.pid)
    with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
        # mov eax, 39; syscall: getpid in place of what was asked for.
        memory.seek(vdso)
        memory.write(b"\xb8\x27\0\0\0\x0f\x05")
        with pytest.raises(tracing.Strayed, match="another call"):
            task.call("munmap", 0, 4096)
