"""A stored source tree as the workspace of containers: each with a layer of its own, all by the same gate."""

from __future__ import annotations

import os

import pytest

from atoll import Codebases, Sandbox, Snapshots

from ..containers import needs_docker, shared_engine

pytestmark = needs_docker


@pytest.fixture(scope="module", autouse=True)
def engine():
    with shared_engine():
        yield


def test_sandboxes_of_a_codebase_share_it_and_an_apply_is_its_next_version(tmp_path):
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "secret.key").write_text("hidden\n")
    made = Codebases().create("docker-" + os.urandom(4).hex(), tmp_path)
    name = "codebase-" + os.urandom(4).hex()
    try:
        wishes = {"codebase": made.id, "permissions": "development"}
        with Sandbox.create("docker", **wishes) as one, Sandbox.create("docker", **wishes) as two:
            assert one.run("cat file; ls").stdout == two.run("cat file; ls").stdout == "one\nfile\n"
            one.run("echo two > file")
            one.snapshot(name)
            twin = one.fork()
            assert twin.run("cat file").stdout == "two\n"
            twin.destroy()
            assert [change.path for change in one.diff()] == ["file"]
            assert one.apply().applied == ("file",)
            assert two.run("cat file").stdout == "one\n"
        assert Codebases().get(made.id).version == 2
        with Sandbox.create("docker", snapshot=name) as again:
            assert again.run("cat file; ls").stdout == "two\nfile\n"
        with Sandbox.create("docker", codebase=made.id, preset="full-access") as newest:
            assert newest.run("cat file secret.key").stdout == "two\nhidden\n"
    finally:
        Snapshots("docker").delete(name)
        Codebases().delete(made.id)


def test_other_rules_for_a_snapshot_hold_for_what_was_changed_before(tmp_path):
    (tmp_path / "secret").write_text("TOKEN\n")
    (tmp_path / "file").write_text("one\n")
    name = "stricter-" + os.urandom(4).hex()
    with Sandbox.create("docker", source=tmp_path, preset="full-access") as one:
        one.run("echo more >> secret; echo more >> file", check=True)
        one.snapshot(name)
    try:
        rules = [("**", "read"), ("secret", "none"), ("/out/**", "write")]
        with Sandbox.create("docker", snapshot=name, permissions=rules) as again:
            for _ in range(2):
                assert again.run("cat secret; echo x >> file; cat file").stdout == "one\nmore\n"
                again.stop()
                again.resume()
        with Sandbox.create("docker", snapshot=name) as as_it_was:
            assert as_it_was.run("cat secret; echo x >> file; cat file").stdout == "TOKEN\nmore\none\nmore\nx\n"
    finally:
        Snapshots("docker").delete(name)
