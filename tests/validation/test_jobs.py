"""A job runs as it is told, in a fixed environment, and its verdict is what happened."""

from __future__ import annotations

import os

import pytest
from tests.thorough import amount

from atoll import InvalidInput, Sandbox
from atoll.validation import Job, diagnose, load, run, status, verify


def jail(**wishes):
    return Job(driver="jail", **wishes)


def test_a_command_that_succeeds_has_passed():
    result = run(jail(command="echo out; echo err >&2", name="greeting"))
    assert (result.verdict, result.passed, result.exit_code, result.reason) == ("passed", True, 0, "")
    assert (result.stdout, result.stderr, result.truncated) == ("out\n", "err\n", False)
    assert (result.driver, result.isolation, result.name, result.attempt) == ("jail", "container", "greeting", 1)
    assert result.started <= result.ended
    assert load(result.id) == result
    assert status(result.id).state == "passed"


@pytest.mark.parametrize(
    ("wishes", "verdict", "reason"),
    [
        ({"command": "exit 3"}, "failed", "Its exit code is 3."),
        ({"command": "sleep 100", "timeout": 0.3}, "timed_out", "It took longer than 0.3 s."),
        ({"command": "true", "outputs": ["report.json"]}, "failed", "It made no report.json."),
        ({"command": ["no-such-program"]}, "failed", "Its exit code is 127."),
        ({"code": "raise SystemExit(4)"}, "failed", "Its exit code is 4."),
        (
            {"command": "true", "source": "/no/such/directory"},
            "error",
            "The source /no/such/directory cannot be opened",
        ),
    ],
)
def test_what_does_not_pass_says_why(wishes, verdict, reason):
    result = run(jail(**wishes))
    assert (result.verdict, result.passed) == (verdict, False)
    assert reason in result.reason


def test_a_source_is_seen_and_never_changed(project):
    result = run(jail(command="python3 check.py && echo broken > check.py && cat link", source=project))
    assert (result.verdict, result.stdout) == ("passed", "fine\nbroken\n")
    assert "add(1, 2)" in (project / "check.py").read_text()


def test_files_of_the_job_lie_beside_the_source(project):
    result = run(jail(command="cat src/more.txt check.py", source=project, files={"src/more.txt": "more\n"}))
    assert result.stdout.startswith("more\nfrom src.adding")


def test_what_is_ignored_is_neither_seen_nor_measured(project):
    (project / ".env").write_text("TOKEN=1")
    job = jail(command="cat .env", source=project, ignore=[".env"])
    result = run(job)
    assert result.verdict == "failed"
    (project / ".env").write_text("TOKEN=2")
    assert verify(result).ok
    assert run(job._replace(ignore=())).stdout == "TOKEN=2"


def test_code_runs_in_a_fresh_interpreter_whose_hashes_are_always_the_same():
    job = jail(code="import os, time\nprint(hash('a'), time.tzname, os.getcwd())")
    one, two = run(job), run(job)
    assert one.passed
    assert one.stdout == two.stdout
    assert "('UTC', 'UTC') /workspace" in one.stdout


def test_the_environment_is_fixed_and_can_be_added_to():
    os.environ["OF_THE_HOST"] = "1"
    try:
        result = run(jail(command="env | sort", env={"TZ": "Asia/Tokyo", "MORE": "yes"}))
    finally:
        del os.environ["OF_THE_HOST"]
    lines = result.stdout.splitlines()
    assert {"LC_ALL=C.UTF-8", "PYTHONHASHSEED=0", "SOURCE_DATE_EPOCH=315532800", "TZ=Asia/Tokyo", "MORE=yes"} <= set(
        lines
    )
    assert not any(line.startswith("OF_THE_HOST") for line in lines)


def test_there_is_no_network():
    result = run(jail(command="ls /sys/class/net; cat /proc/net/route | wc -l"))
    assert result.stdout.splitlines()[-1] == "1", "nothing but the heading"


@pytest.mark.parametrize("wall", ["fake", "inprocess"])
def test_a_wall_that_cannot_keep_it_from_the_network_runs_nothing(wall, tmp_path):
    result = run(Job(command=f"touch {tmp_path}/ran", driver=wall))
    assert result.verdict == "error"
    assert "network" in result.reason
    assert not (tmp_path / "ran").exists()


def test_outputs_have_their_digests():
    job = jail(
        command="mkdir dist; printf a > dist/a.whl; printf b > dist/b.whl; printf c > log",
        outputs=["dist/*.whl", "log"],
    )
    result = run(job)
    assert result.passed
    assert {os.path.basename(path): digest[:8] for path, digest in result.files.items()} == {
        "a.whl": "ca978112", "b.whl": "3e23e816", "log": "2e7d2c03",
    }  # fmt: skip


def test_more_output_than_is_kept_is_said_to_be_cut():
    result = run(jail(command="head -c 3000000 /dev/zero | tr '\\0' x"))
    assert (result.verdict, result.truncated, len(result.stdout)) == ("passed", True, 1 << 20)
    again = run(jail(command="head -c 2999999 /dev/zero | tr '\\0' x; printf y"))
    assert again.stdout == result.stdout
    assert again.digests.stdout != result.digests.stdout, "the digest is of all of it"


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (Job(), "either a command or code"),
        (Job(command="a", code="b"), "either a command or code"),
        (Job(command="  "), "command is '  '"),
        (Job(command=[]), "command is []"),
        (Job(command=["a", 1]), "command is ['a', 1]"),
        (Job(code=b"1"), "code is a bytes"),
        (Job(command="a", timeout=None), "a job ends some day"),
        (Job(command="a", timeout=0), "timeout is 0"),
        (Job(command="a", files={"../a": ""}), "paths within the workspace"),
        (Job(command="a", files={"/a": ""}), "paths within the workspace"),
        (Job(command="a", files={"a": 1}), "give text or bytes"),
        (Job(command="a", outputs="report"), "outputs is 'report'"),
        (Job(command="a", ignore=["b"]), "there is none"),
        (Job(command="a", driver=""), "driver is ''"),
        (Job(command="a", name="x" * 201), "name is"),
        (Job(command="a", compare_text=1), "compare_text is 1"),
        (Job(command="a", resources={"ram": 1}), "resources has no 'ram'"),
        ({"command": "a"}, "job is a dict"),
        ("vj-1", "is no id of a job"),
    ],
)
def test_a_job_that_cannot_be_is_refused_before_anything_starts(job, sentence):
    before = len(Sandbox.list())
    with pytest.raises(InvalidInput) as caught:
        run(job)
    assert sentence in str(caught.value)
    assert len(Sandbox.list()) == before


# The strongest may be a kernel that has to be made first, which takes half a minute.
@pytest.mark.parametrize("driver", amount(["fake,jail", "strongest"], ["fake,jail"]))
def test_diagnose_names_the_wall_that_is_then_used(driver):
    job = Job(command="cat /proc/version", driver=driver)
    found = diagnose(job)
    result = run(job)
    assert result.passed, result.reason
    assert (result.driver, result.isolation) == (found.chosen, found.isolation)
    assert found.chosen in found.why


def test_the_strongest_is_tried_first():
    assert diagnose(Job(command="true")).walls[0].name == "gvisor"


def test_diagnose_passes_over_walls_that_cannot_do_what_the_job_needs():
    found = diagnose(Job(code="1", driver="wasm,fake,jail", packages=["six"]))
    assert found.chosen == "jail"
    reasons = {wall.name: wall.reason for wall in found.walls}
    assert reasons["fake"] == "it has no network none"
    assert reasons["wasm"]
    assert diagnose(Job(code="1", driver="fake")).chosen is None
