"""Whatever is altered after it was sealed is noticed, and what is not, is not."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll import InvalidInput, StoreError
from atoll.validation import Job, Result, begin, forget, gate, load, run, shelf, verify, wait
from atoll.validation.results import result_from_json, result_to_json
from atoll.validation.sealing import flaw, sealed


def passed(**wishes):
    result = run(Job(driver="jail", **{"command": "echo hi", **wishes}))
    assert result.passed, result.reason
    return result


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A result with a seal of a directory of its own; no sandbox has to run for it."""
    directory = tmp_path_factory.mktemp("seals")
    value = json.loads((pathlib.Path(__file__).parent / "sample.json").read_text())
    return sealed(result_from_json(value), str(directory)), str(directory)


def test_a_result_is_intact_by_value_by_id_and_as_a_file(tmp_path):
    result = passed()
    shelf.write_copy(result, str(tmp_path / "r.json"))
    for each in (result, result.id, str(tmp_path / "r.json"), tmp_path / "r.json"):
        assert verify(each).ok
    assert verify(result.id).result == result


@pytest.mark.parametrize("field", [name for name in Result._fields if name not in ("key", "seal")])
def test_each_field_is_under_the_seal(sample, field):
    result, directory = sample
    assert flaw(result, directory) is None
    other = {
        "digests": result.digests._replace(outputs="0" * 64),
        "files": {"a": "0" * 64},
        "job": {},
        "truncated": True,
    }
    value = other.get(field, getattr(result, field))
    if field not in other:
        value = f"{value}x" if isinstance(value, str) or value is None else value + 1
    assert (
        flaw(result._replace(**{field: value}), directory) == "Its seal is broken: it was altered after it was sealed."
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@examples(2000, 60)
@given(data=st.data())
def test_no_altered_file_passes_for_a_sealed_one(sample, data):
    result, directory = sample
    value = result_to_json(result)
    key = data.draw(st.sampled_from(sorted(value)))
    put = data.draw(json_values)
    if put == value[key] and type(put) is type(value[key]):
        return
    try:
        forged = result_from_json({**value, key: put})
    except InvalidInput:
        return
    assert flaw(forged, directory) is not None or forged == result


@examples(2000, 60)
@given(value=json_values)
def test_a_file_with_anything_else_in_it_is_refused_with_a_sentence(value):
    with pytest.raises(InvalidInput):
        result_from_json(value)


def test_the_value_itself_cannot_be_made_to_say_something_else():
    result = run(Job(command="false", driver="jail"))
    assert verify(result).ok
    assert verify(result._replace(verdict="passed")).problems == (
        "Its seal is broken: it was altered after it was sealed.",
    )
    assert verify(result._replace(seal="")).problems == ("It has no seal.",)


def test_a_result_of_another_state_directory_is_not_ours(sample):
    result, _ = sample
    assert "was not sealed here" in verify(result).problems[0]


def test_what_a_forged_file_says_is_not_acted_upon(tmp_path):
    value = result_to_json(passed())
    value["job"]["command"] = f"touch {tmp_path}/ran"
    (tmp_path / "r.json").write_text(json.dumps(value))
    checked = verify(tmp_path / "r.json", rerun=True)
    assert checked.problems == ("Its seal is broken: it was altered after it was sealed.",)
    assert checked.again is None


def test_the_key_is_its_owners_alone(sample):
    result, directory = sample
    path = f"{directory}/key"
    assert os.stat(path).st_mode & 0o777 == 0o600
    os.chmod(path, 0o644)
    try:
        with pytest.raises(StoreError, match="not yours alone"):
            flaw(result, directory)
    finally:
        os.chmod(path, 0o600)
    assert flaw(result, directory) is None


def test_inputs_that_have_changed_are_noticed(project):
    result = passed(command="python3 check.py", source=project)
    assert verify(result).ok
    before = (project / "src" / "adding.py").read_text()
    (project / "src" / "adding.py").write_text(before + "# more\n")
    assert "Its inputs have changed since" in verify(result).problems[0]
    (project / "src" / "adding.py").write_text(before)
    assert verify(result).ok


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "new").write_text(""),
        lambda root: (root / "check.py").unlink(),
        lambda root: (root / "check.py").chmod(0o755),
        lambda root: (root / "empty").mkdir(),
        lambda root: ((root / "link").unlink(), (root / "link").symlink_to("src")),
        lambda root: (root / "check.py").rename(root / "checks.py"),
    ],
)
def test_every_kind_of_change_counts(project, change):
    from atoll.validation.inputs import measure
    from atoll.validation.jobs import check_job

    job = check_job(Job(command="true", source=project))
    before = measure(job)
    assert measure(job) == before
    change(project)
    assert measure(job) != before


def test_run_again_the_same_comes_out():
    checked = verify(passed(command="echo $PYTHONHASHSEED > made; echo hi", outputs=["made"]), rerun=True)
    assert checked.ok
    assert checked.again is not None
    assert checked.again.id != checked.result.id


def test_run_again_something_else_comes_out():
    noisy = "head -c 8 /dev/urandom | od -x | tee made"
    checked = verify(passed(command=noisy, outputs=["made"]), rerun=True)
    assert checked.problems == ("Run again its stdout is another.", "Run again it makes another made.")
    assert verify(passed(command="head -c 8 /dev/urandom | od -x", compare_text=False), rerun=True).ok


def test_the_gate_opens_for_what_has_passed_and_is_fresh(project, tmp_path):
    good, bad = passed(source=project, name="good"), run(Job(command="false", driver="jail", name="bad"))
    assert gate([good, good.id], max_age=3600).open
    closed = gate([good, bad])
    assert not closed.open
    assert closed.problems == (f"{bad.id} (bad): It is failed. Its exit code is 1.",)
    assert gate([]).problems == ("There are no results, so nothing has passed.",)
    assert "at most 0 are allowed" in gate([good], max_age=1e-6).problems[0]
    assert "There is no file" in gate([tmp_path / "none.json"]).problems[0]
    assert "Its seal is broken" in gate([bad._replace(verdict="passed")]).problems[0]
    (project / "check.py").write_text("")
    assert "Its inputs have changed" in gate([good]).problems[0]
    with pytest.raises(InvalidInput, match="give a list"):
        gate(good.id)
    with pytest.raises(InvalidInput, match="max_age"):
        gate([good], max_age=-1)


def test_the_sealed_result_of_another_job_does_not_stand_for_this_one():
    good, bad = passed(), run(Job(command="false", driver="jail"))
    shutil.copy(f"{shelf.place_of(good.id)}/result.json", f"{shelf.place_of(bad.id)}/result.json")
    sentence = f"is the result of another job: of {good.id} instead of {bad.id}."
    for checked in (verify(bad.id), gate([bad.id])):
        assert len(checked.problems) == 1
        assert sentence in checked.problems[0]
    with pytest.raises(StoreError, match="another job"):
        load(bad.id)
    forget(bad.id)


def test_of_a_file_it_can_be_said_which_job_it_is_of(project, tmp_path):
    job = Job(command="cat check.py", source=project, driver="jail")
    result, other = run(job), passed()
    path, bare = tmp_path / "r.json", tmp_path / "other.json"
    shelf.write_copy(result, str(path))
    shelf.write_copy(other, str(bare))
    assert gate({path: result.id, str(bare): None, other.id: other.id}).open
    assert gate({path: job}).open
    assert gate([bare]).open, "alone, any job will do"
    assert verify(bare, job=result.id).problems == (f"It is the result of the job {other.id}, and not of {result.id}.",)
    assert "It is the result of another job: 'echo hi'" in gate({bare: job}).problems[0]
    assert "It is the result of another job" in gate({path: job._replace(timeout=5)}).problems[0]
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(project, elsewhere, symlinks=True)
    assert gate({path: job._replace(source=elsewhere, name="the same")}).open
    (elsewhere / "check.py").write_text("")
    assert "Its inputs have changed since" in gate({path: job._replace(source=elsewhere)}).problems[0]
    for wrong in ("vj-1", 5, Job()):
        with pytest.raises(InvalidInput):
            gate({path: wrong})


def test_inputs_that_change_before_it_is_run_again_are_noticed(project, monkeypatch):
    from atoll.validation import checking

    result = passed(source=project)
    monkeypatch.setattr(checking, "_stale", lambda *_: [(project / "new").write_text("")][:0])
    assert "Its inputs changed before it was run again" in verify(result, rerun=True).problems[0]


def test_what_is_not_at_its_end_does_not_open_the_gate():
    id = begin(Job(command="sleep 100", driver="jail"))
    assert "has no result: it is" in gate([id]).problems[0]


def test_what_a_process_of_its_own_has_sealed_is_as_good():
    id = begin(Job(command="echo hi", driver="jail"))
    assert wait(id, 60).state == "passed"
    assert gate([id]).open
