"""The journal by itself: fences, leases, and what is written when."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll import Busy, InvalidInput, LeaseLost, TrajectoryNotFound
from atoll.agent.journal import Journal, dump, is_held, state_of
from atoll.procid import ProcessId

SETTINGS = {"prompt": "p", "model": "m", "sandbox": {}}


@pytest.fixture
def kept(tmp_path):
    made = Journal(str(tmp_path / "agent.db"))
    yield made
    made.close()


def test_a_step_has_a_row_before_it_and_one_after_it(kept):
    id = kept.create("agent", SETTINGS)
    hold = kept.claim(id)
    assert kept.begin(hold, "m0", "model", "m", {"added": []}) == 1
    (step,) = kept.steps(id)
    assert (step.outcome, step.ended, step.tries) == (None, None, 1)
    assert kept.begin(hold, "m0", "model", "m", {}) == 1, "one that is begun again keeps its number"
    kept.end(hold, "m0", {"text": "x"}, "snap")
    (step,) = kept.steps(id)
    assert (step.outcome, step.snapshot, step.tries) == ({"text": "x"}, "snap", 2)


def test_who_was_overtaken_writes_nothing(kept):
    id = kept.create("agent", SETTINGS)
    first = kept.claim(id)
    kept.begin(first, "m0", "model", "m", {})
    second = kept.claim(id, force=True)
    assert not second.clean, "the process that had it lives"
    for write in (
        lambda: kept.begin(first, "m1", "model", "m", {}),
        lambda: kept.end(first, "m0", {}),
        lambda: kept.renew(first),
        lambda: kept.is_cancelled(first),
        lambda: kept.set_sandbox(first, "sb"),
        lambda: kept.set_settings(first, {}),
        lambda: kept.finish(first, "completed", {}),
    ):
        with pytest.raises(LeaseLost):
            write()
    kept.release(first, {})
    kept.undo(first, "m0")
    assert is_held(kept.run(id))
    assert len(kept.steps(id)) == 1
    kept.end(second, "m0", {"by": "second"})
    assert kept.steps(id)[0].outcome == {"by": "second"}


def test_a_run_is_taken_over_when_its_process_is_dead_or_its_lease_is_over(kept):
    id = kept.create("agent", SETTINGS)
    assert state_of(kept.run(id)) == "waiting"
    kept.claim(id)
    assert state_of(kept.run(id)) == "running"
    with pytest.raises(Busy, match=str(os.getpid())):
        kept.claim(id)
    kept._db.write("UPDATE runs SET lease = 0 WHERE id = ?", (id,))
    assert state_of(kept.run(id)) == "interrupted"
    assert not kept.claim(id).clean
    kept._db.write("UPDATE runs SET owner_started = 1 WHERE id = ?", (id,))
    assert kept.run(id).owner == ProcessId(os.getpid(), 1, kept.run(id).owner.boot)
    assert state_of(kept.run(id)) == "interrupted"
    assert kept.claim(id).clean


def test_what_has_ended_is_not_claimed_nor_cancelled(kept):
    id = kept.create("agent", SETTINGS)
    kept.finish(kept.claim(id), "completed", {"response": "x"})
    with pytest.raises(InvalidInput, match="fork"):
        kept.claim(id)
    assert not kept.request_cancel(id)
    other = kept.create("agent", SETTINGS)
    assert kept.request_cancel(other)
    assert kept.run(other).state == "cancelled", "nobody works on it, so nobody else can"


def test_ids_by_their_beginning(kept):
    one = kept.create("agent", SETTINGS, id="tr-ab12")
    kept.create("agent", SETTINGS, id="tr-ab34")
    assert kept.resolve("tr-ab1").id == kept.resolve("ab1").id == one
    with pytest.raises(InvalidInput, match="Several"):
        kept.resolve("tr-ab")
    with pytest.raises(TrajectoryNotFound):
        kept.resolve("tr-x")
    with pytest.raises(TrajectoryNotFound):
        kept.resolve("%")


def test_what_was_under_way_is_in_doubt_in_a_fork(kept):
    id = kept.create("agent", SETTINGS, context="long")
    hold = kept.claim(id)
    for number in range(4):
        kept.begin(hold, f"m{number}", "model", "m", {})
        if number != 1:
            kept.end(hold, f"m{number}", {"n": number}, f"snap{number}")
    twin = kept.fork(id, 3, {"more": 1})
    assert [(step.key, step.outcome) for step in kept.steps(twin)] == [("m0", {"n": 0}), ("m1", None), ("m2", {"n": 2})]
    assert kept.context(twin) == "long"
    assert kept.run(twin).settings == {**SETTINGS, "more": 1}
    assert kept.snapshots(id) == {"snap3"}, "the others belong to the second line, too"
    with pytest.raises(InvalidInput, match="no step of that number"):
        kept.fork(id, 2, {})


def test_deleting_waits_for_nobody_and_spares_what_is_at_work(kept):
    id = kept.create("agent", SETTINGS)
    hold = kept.claim(id)
    with pytest.raises(Busy, match="cancel it first"):
        kept.delete(id)
    kept.finish(hold, "completed", {})
    kept.delete(id)
    with pytest.raises(TrajectoryNotFound):
        kept.run(id)


@examples(300, 40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
        max_leaves=10,
    )
)
def test_whatever_a_model_or_a_guest_says_can_be_written(tmp_path_factory, value):
    """Half a surrogate pair, NUL, and everything else that JSON can hold."""
    kept = Journal(str(tmp_path_factory.mktemp("j") / "agent.db"))
    id = kept.create("agent", {"prompt": value}, context=value)
    hold = kept.claim(id)
    kept.begin(hold, "k", "tool", "t", {"value": value})
    kept.end(hold, "k", {"value": value})
    assert kept.steps(id)[0].outcome == {"value": value}
    assert kept.run(id).settings == {"prompt": value}
    assert dump(value).isascii()
    kept.close()
