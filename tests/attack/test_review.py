"""What a review broke, played as it was: each attacker by itself, against just what it was aimed at."""

import os
import tempfile

import pytest
from tests.attack.arena import Arena
from tests.attack.plan import SECONDS, Box, Round, Step
from tests.attack.report import Report

_FORKS = [Step("fork", {"n": 1, "wait": 1.0, "force": True}, 0.1)] * 6
_ENDS = [Step("destroy", {}, 0)]


def _snapshots(kind):
    return [Step("snapshot", {"name": f"{kind}-{number}", "wait": 1.0, "force": True}, 0.1) for number in range(4)]


def _attack(kind, pids):
    options = {"seconds": SECONDS, "pids": pids, "threads": 40, "open": 4}
    return Step("attack", {"kind": kind, "seed": 7, "in_context": True, "options": options}, 0)


ATTEMPTS = {
    # A thread that starts its successor and ends was missed by the hold; it made the shadow, root, run other code.
    "rewrite": (256, [*_FORKS, *_snapshots("rewrite"), *_ENDS]),
    # The same behind more processes than one page of the kernel's list names.
    "rewrite_in_a_crowd": (1200, [*_FORKS, *_ENDS]),
    # Who executes another program waits for its threads, and who traces those waited for it: for ever.
    "exec_storm": (256, [*_snapshots("exec"), Step("expire", {}, 0)]),
    # Whose change of directory waits for an answer that does not come: five seconds for each.
    "ask_a_supervisor": (256, [*_snapshots("ask"), *_ENDS]),
}


@pytest.mark.slow
@pytest.mark.escape
@pytest.mark.parametrize("user", ("root", "user") if os.getuid() == 0 else ("user",))
@pytest.mark.parametrize("kind", ATTEMPTS)
def test_what_a_review_broke_holds(kind, user):
    pids, steps = ATTEMPTS[kind]
    wishes = {"resources": {"pids": pids, "memory": "512M"}, "lifetime": 300.0, "timeout": 10.0}
    report = Report(0)
    played = Round(0, user, [Box(wishes, False, [_attack(kind, pids), *steps])])
    with tempfile.TemporaryDirectory(
        prefix="atoll-attack-", dir="/run" if os.access("/run", os.W_OK) else None
    ) as place:
        Arena(played, report, f"{place}/marker").play()
    assert report.violations == [], report.text()
    assert report.attackers[kind], report.text()
