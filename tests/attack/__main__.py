"""`python -m tests.attack --minutes 10 --seed 7`: hostile code at random, and a judge outside.

Exits with 1 if something was found that must not be.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time

from tests.attack import plan
from tests.attack.arena import Arena
from tests.attack.report import Report
from tests.attack.walls import WALLS
from tests.containers import shared_engine


def attack(minutes, seed, users, rounds=None, tell=str, walls=("jail",)):
    """Play rounds until the time is over, or these only; gives the report."""
    with shared_engine() if "docker" in walls and not os.environ.get("DOCKER_HOST") else contextlib.nullcontext():
        how = f"--users {','.join(users)} --walls {','.join(walls)}"
        return _attack(Report(seed, how, tell), minutes, users, rounds, tell, walls)


def _attack(report, minutes, users, rounds, tell, walls):
    place = tempfile.mkdtemp(prefix="atoll-attack-", dir="/run" if os.access("/run", os.W_OK) else None)
    number, told = 0, 0.0
    try:
        while report.elapsed < minutes * 60 if rounds is None else number < len(rounds):
            played = plan.make(report.seed, number if rounds is None else rounds[number], users, walls)
            Arena(played, report, f"{place}/marker").play()
            number += 1
            if report.elapsed - told >= 60:
                told = report.elapsed
                tell(report.line())
    finally:
        shutil.rmtree(place)
    return report


def _say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--users", default="root,user" if os.getuid() == 0 else "user", help="root, user, or both")
    parser.add_argument("--walls", default="jail", help=f"some of {','.join(WALLS)}; each has its turn")
    parser.add_argument("--round", type=int, action="append", help="play this one only, as a report names it")
    parser.add_argument("--report", help="a file for what is printed at the end")
    wanted = parser.parse_args()
    users = tuple(wanted.users.split(","))
    if not set(users) <= {"root", "user"} or ("root" in users and os.getuid() != 0):
        parser.error("--users is root, user or root,user; only root can be root.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("The attack was ended by a signal."))  # its sandboxes end, too
    walls = tuple(wanted.walls.split(","))
    if not set(walls) <= set(WALLS) or not any(user in WALLS[wall].users for wall in walls for user in users):
        parser.error(f"--walls is some of {', '.join(WALLS)}, which one of --users can make sandboxes of.")
    report = attack(wanted.minutes, wanted.seed, users, wanted.round, _say, walls)
    _say(report.text())
    if wanted.report:
        with open(wanted.report, "w", encoding="utf-8") as file:
            file.write(report.text())
    return bool(report.violations)


if __name__ == "__main__":
    sys.exit(main())
