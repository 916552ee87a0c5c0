"""Root without its rights, as in a container, makes sandboxes as an ordinary user does: their user has root's id."""

import os
import shutil
import subprocess
import sys

import pytest

from atoll.testing import wheels

# It is opened, and nothing is written to it.
LOOK = """
import os
def opened(path, flags):
    try:
        os.close(os.open(path, flags))
        return "opened"
    except OSError as error:
        return os.strerror(error.errno)
FOUND = {
    path: opened(path, os.O_WRONLY)
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/panic", "/proc/irq/default_smp_affinity")
}
TABLE = opened("/proc/slabinfo", os.O_RDONLY) == "opened" and len(open("/proc/slabinfo").read())
"""
# The maker, whose id code inside has, tries it first.
MAKE = f"""
import os, sys
from atoll import Sandbox
from atoll.engine import launch, threshold
exec({LOOK!r})
print("maker", threshold.is_rootless(), *FOUND.values())
try:
    with Sandbox.create("jail", packages=sys.argv[1:]) as sandbox:
        print("code", sandbox.run_code({LOOK!r} + "print(*FOUND.values(), TABLE)").stdout.strip())
        for name in sys.argv[1:]:
            print("package", sandbox.run_code("import looks; print(*looks.FOUND.values())").stdout.strip())
        print("program", sandbox.run("cat /proc/self/uid_map").stdout.split())
finally:
    launch.shut_down(os.environ["ATOLL_HOME"])
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes root, and setpriv")
@pytest.mark.parametrize("packages", [[], ["looks"]], ids=["plain", "nursed"])
def test_the_kernels_own_files_are_not_the_sandboxs_to_write(packages, tmp_path, monkeypatch):
    """Whoever writes core_pattern has a program run as the host's root."""
    wheels.use_only(tmp_path, monkeypatch)
    wheels.make(tmp_path, "looks", {"looks.py": LOOK})
    weak = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]
    done = subprocess.run(
        [*weak, sys.executable, "-c", MAKE, *packages],
        env={**os.environ, "ATOLL_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert said["maker"] == "True opened opened opened", "the control: such a root may write them"
    refused = " ".join(["Read-only file system"] * 3)
    assert said["code"] in (f"{refused} 0", f"{refused} False")
    if packages:
        assert said["package"] == refused, "nor while a package is imported"
