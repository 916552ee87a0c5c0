"""A host that lacks something: a typed error that says what, and what to do."""

import os

import pytest
from tests.escape.harness import SOURCE, Refused, eventually
from tests.escape.prelude import libc
from tests.faults import truth

from atoll.engine import launch, probe, seccomp

NO_NEW_PRIVS = """
from atoll.engine import kernel
original = kernel.prctl
kernel.prctl = lambda option, *rest: refuse() if option == 38 else original(option, *rest)
"""


@pytest.mark.parametrize(
    ("files", "fix"),
    [
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "apparmor_restrict_unprivileged_userns=0"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"),
        ({"/proc/sys/user/max_user_namespaces": "0"}, "max_user_namespaces="),
        ({}, "seccomp=unconfined"),
    ],
    ids=["Ubuntu", "Debian", "sysctl", "container"],
)
def test_the_fix_fits_the_host(files, fix):
    assert fix in probe.namespace_fix(lambda path: files.get(path, ""))


def test_a_machine_without_a_filter_gets_no_sandbox(maker):
    """Fail closed: what cannot be enforced is refused."""
    before = "from atoll.engine import kernel; kernel.MACHINE = 'riscv64'"
    with pytest.raises(Refused) as caught:
        maker.call("start_zygote", before=before)
    assert "no system call table for riscv64" in caught.value.message
    assert not any(name.startswith("zygote-") for name in os.listdir(f"{maker.state}/jail/run"))
    truth.check(maker)


@pytest.mark.parametrize(
    ("layer", "broken"),
    [
        ("seccomp", "from atoll.engine import seccomp; seccomp.install = refuse"),
        ("Landlock", "from atoll.engine import landlock; landlock.restrict = refuse"),
        ("capabilities", "from atoll.engine import kernel; kernel.drop_capabilities = refuse"),
        ("no_new_privs", NO_NEW_PRIVS),
        ("proc", "from atoll.engine import jail; jail.mount_proc = refuse"),
        ("mounts", "from atoll.engine import jail; jail.enter = refuse"),
        ("limits", "from atoll.engine import jail; jail.set_rlimits = refuse"),
    ],
)  # fmt: skip
def test_a_layer_that_cannot_be_put_up_means_no_sandbox(maker, layer, broken):
    refuse = "def refuse(*_, **__):\n    raise OSError(95, 'this layer was broken by a test')\n"
    maker.call("start_zygote", before=refuse + broken)
    with pytest.raises(Refused) as caught:
        maker.create()
    assert caught.value.type in ("CreateFailed", "WallUnavailable")
    assert "this layer was broken by a test" in caught.value.message
    assert maker.list() == []
    # What is parked with its last layers still to come is not seen by anybody.
    eventually(lambda: truth.is_tidy(maker, set()), "nothing is left of it")


def test_where_namespaces_are_refused_the_fix_is_named(maker):
    """Inside a sandbox the filter refuses them, as a container does."""
    script = """
import os, sys
sys.path.insert(0, "/workspace")
os.environ["ATOLL_HOME"] = "/tmp/state"
from atoll import Sandbox
from atoll.errors import AtollError
try:
    Sandbox.create()
except AtollError as error:
    print(type(error).__name__, error)
"""
    with maker.create(source=SOURCE, preset="full-access") as box:
        said = box.run(["python3", "-S", "-"], stdin=script, timeout=40)
        assert said["stdout"].startswith("WallUnavailable"), said
        assert "unshare: Operation not permitted" in said["stdout"]
        # The switch that keeps user namespaces out of a sandbox is the one that it sees.
        assert "max_user_namespaces" in said["stdout"]
        assert box.run("ps aux | grep -c '[a]toll: [^g]' || true")["exit_code"] == 0


def in_user_namespace(source, python_path, uid, more):
    """Run Python as `uid` of a user namespace of one's own, which may have `more` of them below it."""
    import subprocess
    import sys

    maps = [("setgroups", "deny"), ("uid_map", f"{uid} {os.getuid()} 1"), ("gid_map", f"{uid} {os.getgid()} 1")]
    assert libc.unshare(0x10000000) == 0
    for name, text in maps:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    if not more:
        with open("/proc/sys/user/max_user_namespaces", "w") as file:
            file.write("0")
    env = {"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-S", "-c", source]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    return done.stdout + done.stderr


def script_that_creates(maker):
    home = f"{maker.home}/inside"
    os.mkdir(home, 0o700)
    os.chown(home, maker.uid, maker.uid)
    return (
        f"import os; os.environ['ATOLL_HOME'] = {home!r}\n"
        "from atoll import Sandbox\n"
        "from atoll.engine import launch\n"
        "try:\n"
        "    with Sandbox.create() as box:\n"
        "        print(box.run('id -u; grep CapEff /proc/self/status').stdout)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
        f"launch.shut_down({home!r})\n"
    )


def test_a_user_without_user_namespaces_is_told_what_to_do(maker):
    said = maker.try_outside(in_user_namespace, script_that_creates(maker), maker.source, 1000, False)
    assert said.startswith("WallUnavailable"), said
    assert "sysctl user.max_user_namespaces" in said


def test_the_root_of_a_user_namespace_makes_sandboxes_as_a_user_does(maker):
    """As in a container without privilege: its root has one id, and those of root's sandboxes do not exist."""
    said = maker.try_outside(in_user_namespace, script_that_creates(maker), maker.source, 0, True)
    assert said.split()[:3] == ["1000", "CapEff:", "0000000000000000"], said


def test_the_zygote_takes_nothing_from_the_callers_directory(maker):
    """A tree that looks like a Python installation must not become the one that the zygote runs on."""
    trap = f"{maker.home}/trap"
    library = f"{trap}/lib/python{os.sys.version_info.major}.{os.sys.version_info.minor}"
    os.makedirs(library)
    for name in ("os.py", "json.py", "sitecustomize.py", "encodings.py", "socket.py"):
        with open(f"{library}/{name}", "w") as file:
            file.write(f"open({maker.home + '/sprung'!r}, 'w').close()\n")
    os.chmod(trap, 0o755)
    maker.call("change_directory", path=trap)
    with maker.create() as box:
        assert box.run("echo fine")["stdout"] == "fine\n"
    assert not os.path.exists(f"{maker.home}/sprung")


def test_the_tag_of_a_zygote_changes_with_what_it_runs():
    assert launch.tag() == launch.tag()
    assert seccomp.program("x86_64") != seccomp.program("aarch64")
