"""Root file systems from hostile images, and the places that a sandbox may work in."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from atoll import InvalidInput, Sandbox


def image(path, *, directories=("usr",), links=None):
    with tarfile.open(path, "w:gz") as tar:
        for name in directories:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        entry = tarfile.TarInfo("usr/mark")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"mine"))
    return str(path)


@pytest.mark.parametrize("name", [".etc", "etc", "root", "home", "tmp", "var", ".python", ".host", "workspace"])
def test_links_of_an_image_never_lead_to_the_host(tmp_path, name):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "passwd").write_text("the host's")
    with Sandbox.create(image=image(tmp_path / "i.tar.gz", links={name: str(victim)})) as sandbox:
        seen = sandbox.run_code("import os, json; open('/usr/mark').read(), open('/etc/passwd').read()")
        assert "mine" in seen.text
        assert "the host's" not in seen.text
    assert os.listdir(victim) == ["passwd"]
    assert (victim / "passwd").read_text() == "the host's"


def test_a_working_directory_of_the_image_is_used_and_a_linked_one_refused(tmp_path):
    path = image(tmp_path / "i.tar.gz", directories=("usr", "opt", "opt/app"), links={"srv": str(tmp_path)})
    with Sandbox.create(image=path, workdir="/opt/app") as sandbox:
        assert sandbox.run_code("import os; os.getcwd()").text == "'/opt/app'"
    for workdir in ("/srv/made", "/opt/other"):
        with pytest.raises(InvalidInput, match="choose another workdir"):
            Sandbox.create(image=path, workdir=workdir)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("workdir", ["/app/deep", "/home/user", "/var/tmp/atoll-test", "/opt"])
def test_one_may_work_in_a_place_of_ones_own(workdir):
    with Sandbox.create(workdir=workdir) as sandbox:
        assert sandbox.run("pwd; touch file && ls").stdout.split() == [workdir, "file"]
    assert not os.path.exists("/tmp/atoll-test")


@pytest.mark.parametrize("workdir", ["/tmp/w", "/usr/w", "/etc", "/.host", "/home/user/w", "/root/w"])
def test_one_may_not_work_where_the_system_is(workdir):
    with pytest.raises(InvalidInput, match="choose one like /workspace"):
        Sandbox.create(workdir=workdir)


def test_a_source_never_shows_other_sandboxes(tmp_path, monkeypatch):
    home = tmp_path / "project" / "state"
    home.parent.mkdir()
    monkeypatch.setenv("ATOLL_HOME", str(home))
    for source in (home.parent, tmp_path, "/"):
        with pytest.raises(InvalidInput, match="files of other sandboxes"):
            Sandbox.create(source=source, preset="full-access")


def test_a_disk_that_cannot_be_made_is_said():
    with pytest.raises(InvalidInput, match="1M to 8T"):
        Sandbox.create(resources={"disk": "100T"})
