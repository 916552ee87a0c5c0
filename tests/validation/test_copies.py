"""A job runs over the very files that its digest is of, whatever is done to the source meanwhile."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from atoll import InvalidInput, StoreError, home
from atoll.validation import Job, begin, forget, gate, inputs, recover, run, shelf, status, verify
from atoll.validation.executing import execute
from atoll.validation.jobs import check_job


def over(source, command="true", **wishes):
    return Job(command=command, source=source, driver="jail", **wishes)


def run_while(job, doing):
    """The result of a job between whose measuring and whose sandbox something is done: the flag is looked at there."""
    looks = iter([doing])
    id = shelf.add(check_job(job))
    return shelf.save(execute(id, check_job(job), shelf.claim(id, own=False), lambda: bool(next(looks, lambda: 0)())))


def test_a_directory_that_is_swapped_and_put_back_is_not_what_runs(project, tmp_path):
    (project / "src" / "adding.py").write_text("raise SystemExit('a bug')\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "adding.py").write_text("def add(a, b):\n    return a + b\n")

    def swap():
        (project / "src").rename(tmp_path / "away")
        other.rename(project / "src")

    result = run_while(over(project, "python3 check.py"), swap)
    assert result.verdict == "failed"
    assert result.stderr == "a bug\n"
    (project / "src").rename(other)
    (tmp_path / "away").rename(project / "src")
    assert verify(result).ok, "it is an honest result of what is there"


def test_what_is_written_meanwhile_is_not_run_and_makes_the_result_stale(project):
    result = run_while(over(project, "python3 check.py"), lambda: (project / "check.py").write_text("1 / 0\n") and 0)
    assert (result.verdict, result.stdout) == ("passed", "fine\n")
    assert "Its inputs have changed since" in gate([result.id]).problems[0]


def test_the_copy_is_like_the_source(project):
    (project / "tool").write_text("#!/bin/sh\necho ran\n")
    (project / "tool").chmod(0o755)
    (project / "shut").mkdir()
    (project / "shut" / "in").write_text("x")
    (project / "shut").chmod(0o500)
    with open(project / "holes", "wb") as file:
        file.truncate(3 << 20)
        file.seek(2 << 20)
        file.write(b"end")
    os.mkfifo(project / "pipe")
    os.utime(project / "check.py", (1e9, 1e9))
    job = over(
        project, "./tool; cat shut/in; stat -c '%a %s %Y' shut holes check.py; readlink link; sha256sum <holes; ls"
    )
    try:
        result = run(job)
        assert result.passed, result.stderr
        said = result.stdout.split()
        assert said[:2] == ["ran", "x500"]
        assert ["644", str(3 << 20)] == said[4:6]
        assert "1000000000" in said
        assert "pipe" not in said, "what cannot be measured is not there"
        assert inputs.measure(check_job(job)) == result.digests.inputs
    finally:
        (project / "shut").chmod(0o755)


def test_a_source_with_more_than_is_copied_is_refused(project, monkeypatch):
    with open(project / "large", "wb") as file:
        file.truncate(inputs.MOST_BYTES)
    result = run(over(project))
    assert result.verdict == "error"
    assert "has 4.0 GiB in it, and a job has at most 4. ignore= leaves parts of it out" in result.reason
    assert run(over(project, ignore=["large"])).passed
    monkeypatch.setattr(inputs, "MOST_PATHS", 3)
    assert "more than 3 files" in run(over(project, ignore=["large"])).reason


def test_the_state_directory_is_copied_to_no_sandbox():
    for source in (home.state_dir(), os.path.dirname(home.state_dir())):
        result = run(over(source))
        assert result.verdict == "error"
        assert "lie in one another" in result.reason


def test_where_no_copy_can_be_made_the_reason_says_so(project, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/proc/none")
    result = run(over(project))
    assert result.verdict == "error"
    assert "The source cannot be copied to /proc/none/" in result.reason
    assert "TMPDIR says where copies are made" in result.reason
    assert run(Job(command="true", driver="jail")).passed, "without a source there is no copy"


@pytest.mark.parametrize("clean", [lambda _: recover(), forget])
def test_the_copy_of_a_job_that_was_killed_is_removed(project, clean):
    here, there = socket.socketpair()
    id = shelf.add(check_job(over(project)))
    pid = os.fork()
    if pid == 0:
        shelf.claim(id, own=False)

        def halted():
            there.send(b"1")
            signal.pause()

        execute(id, check_job(over(project)), 1, halted)
    assert here.recv(1) == b"1"
    copy = os.readlink(f"{shelf.place_of(id)}/copy")
    assert os.path.exists(f"{copy}/tree/check.py")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    here.close()
    there.close()
    assert status(id).state == "interrupted"
    clean(id)
    assert not os.path.exists(copy)


def test_only_copies_are_removed(project):
    id = shelf.add(check_job(over(project)))
    os.symlink(project, f"{shelf.place_of(id)}/copy")
    with pytest.raises(StoreError, match="no copy that atoll made"):
        forget(id)
    assert (project / "check.py").exists()


def test_trees_whose_names_look_alike_are_told_apart(tmp_path):
    digests = set()
    names = (b"a\xff", b"a\\xff", b"a\xed\xb3\xbf", "a\ufffd".encode())
    for number, name in enumerate(names):
        tree = tmp_path / str(number)
        tree.mkdir()
        (tree / os.fsdecode(name)).write_text("x")
        digests.add(inputs.measure(check_job(over(tree))))
        (tree / os.fsdecode(name)).unlink()
        (tree / "link").symlink_to(os.fsdecode(name))
        digests.add(inputs.measure(check_job(over(tree))))
    assert len(digests) == 2 * len(names)
    assert run(over(tmp_path)).passed


def test_a_source_that_may_not_be_read_is_refused():
    with pytest.raises(InvalidInput, match="cannot be opened"):
        inputs.measure(check_job(over("/no/such")))


def test_begun_jobs_have_their_copy_too(project):
    from atoll.validation import wait

    assert wait(begin(over(project, "cat check.py")), 60).result.stdout.startswith("from src")
