"""The attack itself. Ten minutes of it are part of a thorough run; else one round shows that it works."""

import os

import pytest
from tests import thorough
from tests.attack.__main__ import attack
from tests.attack.walls import WALLS, missing

USERS = ("root", "user") if os.getuid() == 0 else ("user",)
MINUTES = 10


@pytest.mark.slow
@pytest.mark.escape
@pytest.mark.parametrize("user", USERS)
def test_one_round_of_random_attackers_breaks_nothing(user):
    report = attack(0, thorough.SEED, (user,), rounds=[0])
    assert report.violations == [], report.text()


@pytest.mark.slow
@pytest.mark.escape
@pytest.mark.timeout(600)
@pytest.mark.parametrize("wall", ["docker", "gvisor", "wasm"])
def test_one_round_behind_another_wall_breaks_nothing(wall):
    if reason := missing(wall):
        pytest.skip(reason)
    report = attack(0, thorough.SEED, WALLS[wall].users[:1], rounds=[0], walls=(wall,))
    assert report.violations == [], report.text()


@pytest.mark.escape
@pytest.mark.timeout((MINUTES + 5) * 60)
@pytest.mark.skipif(not thorough.THOROUGH, reason="ten minutes of random attacks: ATOLL_THOROUGH=1, or make attack")
def test_ten_minutes_of_random_attackers_break_nothing():
    report = attack(MINUTES, thorough.SEED, USERS)
    assert report.violations == [], report.text()
