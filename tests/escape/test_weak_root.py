"""Root without its rights, as in a container, makes sandboxes as an ordinary user does: their user has root's id."""

import os
import shutil
import subprocess
import sys

import pytest

from atoll.testing import wheels

# It is opened, and nothing is written to it; the mode of a device stays what it is.
LOOK = """
import os, stat
def attempted(function, *arguments):
    try:
        function(*arguments)
        return "done"
    except OSError as error:
        return os.strerror(error.errno)
def opened(path, flags):
    return attempted(lambda: os.close(os.open(path, flags)))
FOUND = {
    path: opened(path, os.O_WRONLY)
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/panic", "/proc/irq/default_smp_affinity")
}
FOUND["device"] = attempted(os.chmod, "/dev/null", stat.S_IMODE(os.stat("/dev/null").st_mode))
TABLE = opened("/proc/slabinfo", os.O_RDONLY) == "done" and len(open("/proc/slabinfo").read())
"""
# The maker, whose id code inside has, tries it first.
MAKE = f"""
import os, sys
from atoll import Sandbox
from atoll.engine import launch, threshold
exec({LOOK!r})
print("maker", threshold.is_rootless(), *FOUND.values())
try:
    with Sandbox.create(sys.argv[1], packages=sys.argv[2:]) as sandbox:
        print("code", sandbox.run_code({LOOK!r} + "print(*FOUND.values(), TABLE)").stdout.strip())
        for name in sys.argv[2:]:
            print("package", sandbox.run_code("import looks; print(*looks.FOUND.values())").stdout.strip())
finally:
    launch.stop_helpers(os.environ["ATOLL_HOME"])
"""
# A tenth of a second is quicker than whoever looks now and then.
CROWD = """
import os, time
made = 0
while made < 150:
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    made += 1
print(made, flush=True)
time.sleep(30)
"""
COUNT = f"""
import os, time
from atoll import Sandbox
from atoll.engine import launch
try:
    with Sandbox.create("jail", resources={{"pids": 40}}) as sandbox:
        print(sandbox.info.limits["pids"], "before")
        sandbox.run_code({CROWD!r}, timeout=8)
        end = time.monotonic() + 10
        while sandbox.metrics().processes > 40 and time.monotonic() < end:
            time.sleep(0.02)
        print(sandbox.metrics().processes, "after")
finally:
    launch.stop_helpers(os.environ["ATOLL_HOME"])
"""
WEAK = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes root, and setpriv")


def say(words, home):
    done = subprocess.run(
        words, env={**os.environ, "ATOLL_HOME": str(home)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("wall", ["jail", "nursed", "bwrap"])
def test_the_kernels_own_files_are_not_the_sandboxs_to_write(wall, tmp_path, monkeypatch):
    """Whoever writes core_pattern has a program run as the host's root."""
    if wall == "bwrap" and not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap")
    packages = ["looks"] if wall == "nursed" else []
    wheels.use_only(tmp_path, monkeypatch)
    wheels.make(tmp_path, "looks", {"looks.py": LOOK})
    said = say(
        [*WEAK, sys.executable, "-c", MAKE, "bwrap" if wall == "bwrap" else "jail", *packages], tmp_path / "home"
    )
    found = {who: " ".join(rest) for who, *rest in said}
    assert found["maker"] == "True done done done done", "the control: such a root may write them"
    refused = " ".join(["Read-only file system"] * 4)
    assert found["code"] in (f"{refused} 0", f"{refused} False")
    if packages:
        assert found["package"] == refused, "nor while a package is imported"


def test_processes_that_the_kernel_does_not_count_are_counted_by_looking(tmp_path):
    """Of root's id it counts none (RLIMIT_NPROC), which the info says."""
    hidden = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", hidden, "sh", *WEAK, sys.executable, "-c", COUNT]
    (held, _), (left, _) = say(words, tmp_path / "home")
    assert held == "polled"
    assert int(left) <= 40
