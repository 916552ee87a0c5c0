"""Which processes die for memory where the guest has to see to it."""

from __future__ import annotations

from atoll.guest.thrift import _FREEING, Decision

LIMIT = 100


def test_nobody_dies_below_the_limit():
    assert not Decision(LIMIT).must_kill(0.0, LIMIT, victim_alive=False)


def test_one_dies_beyond_it_and_nobody_else_while_its_memory_is_being_freed():
    decision = Decision(LIMIT)
    assert decision.must_kill(0.0, 130, victim_alive=False)
    assert not decision.must_kill(0.01, 130, victim_alive=True)
    # It is gone from the list of processes, and what it had is not free yet.
    assert not decision.must_kill(0.02, 130, victim_alive=False)
    assert not decision.must_kill(0.03, 120, victim_alive=False)


def test_another_dies_at_once_when_more_is_used_meanwhile():
    decision = Decision(LIMIT)
    assert decision.must_kill(0.0, 130, victim_alive=False)
    assert decision.must_kill(0.01, 131, victim_alive=False)


def test_another_dies_when_what_was_to_be_freed_never_is():
    decision = Decision(LIMIT)
    assert decision.must_kill(0.0, 130, victim_alive=False)
    assert not decision.must_kill(0.5, 130, victim_alive=True)
    assert not decision.must_kill(0.5 + _FREEING - 0.01, 130, victim_alive=False)
    assert decision.must_kill(0.5 + _FREEING, 130, victim_alive=False)
