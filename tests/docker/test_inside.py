"""atoll inside real containers: what works with which options, and that `doctor` says so."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from tests.containers import RUNSC, needs_docker, shared_engine

pytestmark = needs_docker
ROOT = pathlib.Path(__file__).parents[2]
SECCOMP, PATHS = ("--security-opt", "seccomp=unconfined"), ("--security-opt", "systempaths=unconfined")
USER = ("--user", "1000")
NO_RIGHTS = ("--cap-drop", "ALL")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Directories for what is mounted from this machine, and nothing else."""
    root = tmp_path_factory.mktemp("root")
    for name in ("tmp", "etc", "usr", "root"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(os.readlink(f"/{name}"))
    with shared_engine():
        packed = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(["docker", "import", "-", "atoll-inside"], stdin=packed.stdout, capture_output=True, check=True)
        packed.stdout.close()
        assert packed.wait() == 0
        yield "atoll-inside"


def atoll(image, options, *words):
    """The command, in a container with these options; what it said, and how it ended."""
    prefix = os.path.realpath(sys.base_prefix)
    shown = {"/usr", prefix, str(ROOT), os.path.dirname(os.path.dirname(pytest.__file__))}
    mounts = [word for path in sorted(shown) for word in ("-v", f"{path}:{path}:ro")]
    path = f"{ROOT}/src:{os.path.dirname(os.path.dirname(pytest.__file__))}"
    variables = {
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "ATOLL_HOME": "/tmp/state",
        "PATH": "/usr/bin:/bin",
    }
    settings = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    python = f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    argv = ["docker", "run", "--rm", "--network", "none", *options, *mounts, *settings, image, python, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "works", "advice"),
    [
        ((), False, "seccomp=unconfined --security-opt systempaths=unconfined"),
        (USER, False, "seccomp=unconfined --security-opt systempaths=unconfined"),
        ((*SECCOMP, *USER), False, "systempaths=unconfined"),
        ((*SECCOMP, *PATHS, *USER), True, ""),
        ((*SECCOMP, *PATHS), True, ""),
        ((*SECCOMP, *PATHS, "--ulimit", "nofile=512:512"), True, ""),
        (("--cap-add", "SYS_ADMIN", *SECCOMP), False, "systempaths=unconfined"),
        ((*NO_RIGHTS, *SECCOMP, *PATHS), False, "--user 1000"),
        ((*NO_RIGHTS, *SECCOMP, *PATHS, *USER), True, ""),
    ],
    ids=[
        "root",
        "user",
        "seccomp",
        "user-both",
        "root-both",
        "few-files",
        "sys-admin",
        "root-no-rights",
        "user-no-rights",
    ],
)
def test_doctor_and_the_wall_agree_and_the_advice_is_what_works(image, options, works, advice):
    code, said = atoll(image, options, "-m", "atoll", "run", "echo it; echo works")
    assert (code == 0) is works, said
    assert ("it\nworks" in said) is works
    assert advice in said
    assert "run as root" not in said
    code, told = atoll(image, options, "-m", "atoll", "doctor")
    assert (code == 0) is works, told
    assert advice in told
    assert "Linux 5.12" not in told


def test_an_engine_that_is_around_this_container_is_told(image):
    socket = os.environ["DOCKER_HOST"].removeprefix("unix://")
    options = ("-v", f"{socket}:/var/run/docker.sock")
    code, told = atoll(image, options, "-m", "atoll", "doctor", "-p", "docker")
    assert code == 1
    assert "runs the container that this is in" in told
    code, told = atoll(image, options, "-m", "atoll", "run", "-p", "docker", "true")
    assert code == 125
    assert "runs the container that this is in" in told


@pytest.mark.skipif(RUNSC is None, reason="needs runsc")
def test_root_without_its_rights_has_gvisor_too(image):
    code, said = atoll(image, (*SECCOMP, *PATHS), "-m", "atoll", "run", "-p", "gvisor", "echo it works")
    assert code == 0, said
    assert "it works" in said
    assert "Making a root file system of this machine" in said, "what takes long the first time is said"
