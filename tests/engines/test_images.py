"""What a container's root may be, and that the same guest runs in all of them."""

from __future__ import annotations

import os
import subprocess

import pytest

from atoll import InvalidInput, Sandbox, SnapshotNotFound, Snapshots
from atoll.drivers.docker_engine import Engine

from ..containers import needs_docker, shared_engine, small_root

pytestmark = needs_docker


@pytest.fixture(scope="module", autouse=True)
def engine():
    with shared_engine() as place:
        yield Engine(str(place / "docker.sock"))


def docker(engine, *arguments):
    done = subprocess.run(["docker", f"--host=unix://{engine.path}", *arguments], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def named(engine, tmp_path_factory):
    """An image that the engine knows by name, with an environment, a volume and another user, and without Python."""
    directory = tmp_path_factory.mktemp("image")
    root = small_root(directory)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\npostgres:x:70:70::/data:/bin/sh\n")
    tar = subprocess.run(["tar", "-C", str(root), "-c", "."], capture_output=True, check=True).stdout
    changes = ["ENV COLOUR=blue PATH=/opt/tools:/bin LD_PRELOAD=/no/such.so", "VOLUME /data", "USER root"]
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run(
        ["docker", f"--host=unix://{engine.path}", "import", *options, "-", "atoll-test:named"],
        input=tar, capture_output=True, check=True,
    )  # fmt: skip
    return "atoll-test:named"


def test_an_image_by_name_needs_no_python_of_its_own(named):
    with Sandbox.create("docker", image=named, env={"OWN": "too"}) as sandbox:
        assert sandbox.run("echo $COLOUR $OWN; cat /etc/passwd").stdout.startswith("blue too\nroot:x:0:0:")
        assert "postgres:x:70:70:" in sandbox.run("cat /etc/passwd").stdout
        assert "/opt/tools:/bin" in sandbox.run("echo $PATH").stdout
        assert sandbox.run_code("import os, sqlite3; os.getuid() != 0").text == "True"
        assert sandbox.info.spec.image == named


def test_what_an_image_wants_as_a_volume_is_a_bit_of_memory_and_gone_with_it(named, engine):
    before = (engine.get("/volumes") or {}).get("Volumes") or []
    with Sandbox.create("docker", image=named) as sandbox:
        assert "tmpfs" in sandbox.run("cat /proc/mounts").stdout.split(" /data ")[1].split("\n")[0]
        assert ((engine.get("/volumes") or {}).get("Volumes") or []) == before


def test_what_the_engine_is_asked_for_is_the_whole_wall(engine):
    with Sandbox.create("docker", labels={"project": "walls"}, resources={"memory": "64M", "pids": 50}) as sandbox:
        found = engine.get(f"/containers/atoll-{sandbox.id}/json")
        host, config = found["HostConfig"], found["Config"]
        assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (64 << 20, 64 << 20, 50)
        assert (host["CapDrop"], host["ReadonlyRootfs"], host["NetworkMode"]) == (["ALL"], True, "none")
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert not host["Privileged"]
        assert config["User"].split(":")[0] not in ("", "0", "root")
        labels = {"project": "walls", "atoll.id": sandbox.id, "atoll.home": os.environ["ATOLL_HOME"]}
        assert labels.items() <= config["Labels"].items()


def test_an_environment_is_in_no_place_where_others_could_read_it(engine):
    with Sandbox.create("docker", env={"TOKEN": "very-secret"}) as sandbox:
        assert sandbox.run("echo $TOKEN").stdout == "very-secret\n"
        assert "very-secret" not in str(engine.get(f"/containers/atoll-{sandbox.id}/json"))


def test_the_default_image_is_made_once_and_pulled_from_nowhere(engine):
    images = [tag for image in engine.get("/images/json") for tag in image.get("RepoTags") or ()]
    with Sandbox.create("docker") as sandbox:
        assert sandbox.run("python3 -c 'import sys; print(sys.version_info[0])'").stdout == "3\n"
        assert sandbox.run("id -un; echo ~").stdout == "user\n/home/user\n"
    after = [tag for image in engine.get("/images/json") for tag in image.get("RepoTags") or ()]
    assert len([tag for tag in after if tag.startswith("atoll-default:")]) == 1
    assert set(images) <= set(after)


def test_a_directory_that_is_no_root_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no root file system"):
        Sandbox.create("docker", image=tmp_path)
    with pytest.raises(InvalidInput, match="neither a directory nor a tar"):
        Sandbox.create("docker", image=tmp_path / "nothing")


def test_a_snapshot_is_an_image_that_the_engine_shows_and_removes(engine):
    name = "image-" + os.urandom(4).hex()
    with Sandbox.create("docker", env={"TOKEN": "very-secret"}) as sandbox:
        sandbox.files.write("note", "kept")
        taken = sandbox.snapshot(name)
        filters = {"label": [f"atoll.snapshot={name}"]}
        images = engine.get("/images/json", filters=filters)
        assert [image["Id"] for image in images] == list(taken.layers)
        assert "very-secret" not in str(images) + str(engine.get(f"/images/{images[0]['Id']}/json"))
        assert name in [each.name for each in Snapshots("docker").list()]
        docker(engine, "rmi", images[0]["RepoTags"][0])
        with pytest.raises(SnapshotNotFound):
            Sandbox.create("docker", snapshot=name)
        assert sandbox.run("cat note").stdout == "kept"
