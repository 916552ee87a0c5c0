"""An image that was made to lead out: its links and names end inside the sandbox, or there is no sandbox."""

import io
import os
import tarfile

import pytest
from tests.escape.harness import Refused

SECRET = "not for images"


def read(path):
    with open(path) as file:
        return file.read()


def names(path):
    return sorted(os.listdir(path))


@pytest.fixture
def archive(maker, request):
    """Makes a tar archive with an ordinary root and what a test adds; `lead_out` is a host directory to lead to."""
    lead_out = f"{maker.home}/lead-out-{abs(hash(request.node.name))}"
    os.mkdir(lead_out, 0o755)
    os.chown(lead_out, maker.uid, maker.uid)
    with open(f"{lead_out}/secret.txt", "w") as file:
        file.write(SECRET)

    def make(*entries):
        path = f"{lead_out}.tar"
        with tarfile.open(path, "w") as tar:
            for name in ("usr", "usr/bin"):
                _add(tar, name, tarfile.DIRTYPE)
            for entry in entries:
                _add(tar, *entry)
        os.chown(path, maker.uid, maker.uid)
        return path

    make.lead_out = lead_out
    return make


def _add(tar, name, kind, target="", data=b""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode, member.size = kind, target, 0o755, len(data)
    tar.addfile(member, io.BytesIO(data))


def test_an_ordinary_image_is_the_root_of_its_sandbox(maker, archive):
    image = archive(("usr/marker", tarfile.REGTYPE, "", b"of the image"), ("etc", tarfile.DIRTYPE),
                    ("etc/own", tarfile.REGTYPE, "", b"its own"))  # fmt: skip
    with maker.create(image=image) as box:
        assert box.try_cell(read, "/usr/marker") == "of the image"
        assert box.try_cell(read, "/etc/own") == "its own"
        assert box.try_cell(read, "/etc/hostname") == "atoll\n"
        assert box.try_cell(names, "/usr") == ["bin", "marker"]


@pytest.mark.parametrize("name", ["etc", "srv", "opt", "var", "lib", "root", "home", "proc", "tmp"])
def test_links_of_an_image_lead_nowhere(maker, archive, name):
    image = archive((name, tarfile.SYMTYPE, archive.lead_out))
    try:
        box = maker.create(image=image)
    except Refused as refusal:
        assert refusal.type in ("CreateFailed", "InvalidInput")  # noqa: PT017  # either is fine
    else:
        with box:
            for path in (
                f"/{name}/secret.txt",
                f"{archive.lead_out}/secret.txt",
                f"/.host{archive.lead_out}/secret.txt",
            ):
                assert box.try_cell(read, path) in ("ENOENT", "ENOTDIR")
    assert names(archive.lead_out) == ["secret.txt"]


def test_a_link_where_the_workdir_should_be_is_refused_and_not_followed(maker, archive):
    image = archive(("srv", tarfile.SYMTYPE, archive.lead_out))
    with pytest.raises(Refused) as caught:
        maker.create(image=image, workdir="/srv/app")
    assert caught.value.type == "InvalidInput"
    assert "/srv" in caught.value.message
    assert names(archive.lead_out) == ["secret.txt"]


@pytest.mark.parametrize(
    "entries",
    [
        [("../escaped", tarfile.REGTYPE, "", b"x")],
        [("usr/../../escaped", tarfile.REGTYPE, "", b"x")],
        [("way", tarfile.SYMTYPE, "LEAD"), ("way/escaped", tarfile.REGTYPE, "", b"x")],
        [("way", tarfile.SYMTYPE, "LEAD"), ("way/deep/escaped", tarfile.REGTYPE, "", b"x")],
        [("usr/a", tarfile.SYMTYPE, "/"), ("usr/a/LEAD/escaped", tarfile.REGTYPE, "", b"x")],
        [("stolen", tarfile.LNKTYPE, "LEAD/secret.txt")],
        [("stolen", tarfile.LNKTYPE, "../../../../../../LEAD/secret.txt")],
    ],
    ids=[
        "dots",
        "dots inside",
        "through a link",
        "deep through a link",
        "through the root",
        "hard link",
        "hard link up",
    ],
)
def test_unpacking_writes_and_links_nothing_outside(maker, archive, entries):
    filled = [tuple(part.replace("LEAD", archive.lead_out) if isinstance(part, str) else part for part in entry)
              for entry in entries]  # fmt: skip
    image = archive(*filled)
    try:
        with maker.create(image=image) as box:
            assert SECRET not in str(box.try_cell(read, "/stolen"))
    except Refused as refusal:
        assert refusal.type in ("InvalidInput", "CreateFailed")  # noqa: PT017  # either is fine
    assert names(archive.lead_out) == ["secret.txt"]
    assert os.stat(f"{archive.lead_out}/secret.txt").st_nlink == 1
    assert not os.path.exists(f"{maker.state}/jail/images/escaped")
    assert not os.path.exists(f"{maker.state}/jail/escaped")
    assert not [name for name in os.listdir(f"{maker.state}/jail/images") if "." in name]


def test_devices_and_set_uid_bits_of_an_image_are_left_out(maker, archive):
    def describe(path):
        return oct(os.stat(path).st_mode)

    image = archive(("usr/null", tarfile.CHRTYPE), ("usr/program", tarfile.REGTYPE, "", b"x"))
    with maker.create(image=image) as box:
        assert box.try_cell(read, "/usr/null") == "ENOENT"
        assert box.try_cell(describe, "/usr/program") == "0o100755"
