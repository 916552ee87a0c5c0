"""What happens in a round, by its seed alone: sandboxes, attackers in them, what is done to them and when."""

import random
from typing import Any, NamedTuple

from tests.attack import attackers
from tests.attack.walls import WALLS

SECONDS = 25.0
"""How long attackers go on, unless their sandbox ends first."""

# How often each is done, of all that is done to a sandbox.
_OPERATIONS = {
    "snapshot": 5, "rollback": 3, "fork": 5, "set_permissions": 4, "pause": 2, "stop": 2, "set_lifetime": 2, "run": 2,
    "run_code": 2, "checkpoint": 1, "metrics": 1, "forget": 1, "connect": 1,
}  # fmt: skip
# How often each attacker comes, if not once: what has broken a wall before comes more often.
_FAVOURITES = {"rewrite": 5, "rewrite_in_a_crowd": 2, "hop": 2, "exec_storm": 3, "wait_in_vfork": 2}
_PRESETS = ("development", "agent-safe", "read-only", "full-access", "view-only", None)
OPERATIONS = ("create", "attack", "resume", "refresh", "list", "destroy", "expire", *_OPERATIONS)

# How long each may take at most, in seconds; what is refused has as long. What keeps variables waits some 20 for
# hostile contexts of 512M (see `client/lasting.py`), and has as long as others besides.
_KEEPS = 40.0
DEADLINES = {
    "snapshot": _KEEPS, "fork": _KEEPS, "stop": _KEEPS, "checkpoint": _KEEPS,
    "create": 20.0, "destroy": 10.0, "expire": 12.0, "refresh": 2.0, "list": 2.0, "metrics": 5.0, "set_lifetime": 5.0,
    "pause": 10.0, "connect": 5.0,
}  # fmt: skip
DEADLINE = 20.0


class Step(NamedTuple):
    """Something that is done to a sandbox."""

    operation: str
    keywords: dict[str, Any]
    wait: float
    """How long to wait before, in seconds."""


class Box(NamedTuple):
    """A sandbox: what it is made with, and all that is done to it."""

    wishes: dict[str, Any]
    has_source: bool
    steps: list[Step]


class Round(NamedTuple):
    """Some sandboxes at once, of one user."""

    number: int
    user: str
    boxes: list[Box]
    wall: str = "jail"


def make(seed, number, users, walls=("jail",)):
    """The same for the same arguments. Each wall has its turn, and behind it each user that can make its sandboxes."""
    chance = random.Random(f"{seed}/{number}")
    turns = [(wall, user) for wall in walls for user in users if user in WALLS[wall].users]
    wall, user = turns[number % len(turns)]
    boxes = [_box(chance, WALLS[wall]) for _ in range(chance.choice([2, 2, 3]))]
    return Round(number, user, boxes, wall)


def _box(chance, wall):
    pids = chance.choice([256, 256, 1200])
    resources = {"pids": pids, "memory": "512M", "disk": "256M"}
    has_source = chance.random() < 0.7
    wishes = {"resources": resources, "lifetime": 300.0, "timeout": 10.0}
    if has_source and chance.random() < 0.7 and "set_permissions" not in wall.lacks:
        wishes["permissions"] = chance.choice(_PRESETS[:2])
    steps = [_attack(chance, pids, wall) for _ in range(chance.randint(2, 4))]
    names = []
    for _ in range(chance.randint(8, 14)):
        steps += _operation(chance, names, has_source, pids, wall)
    steps.append(Step(chance.choice(["destroy", "destroy", "expire"]), {}, 0))
    return Box(wishes, has_source, steps)


def _attack(chance, pids, wall):
    kinds = wall.kinds
    kind = chance.choices(kinds, [_FAVOURITES.get(each, 1) for each in kinds])[0]
    options = {"seconds": SECONDS, "pids": pids, "threads": chance.choice([3, 40]), "open": chance.choice([4, 60])}
    in_context = wall.stays or kind in attackers.IN_CONTEXTS or chance.random() < 0.6
    return Step(
        "attack", {"kind": kind, "seed": chance.randrange(1 << 30), "in_context": in_context, "options": options}, 0
    )


def _operation(chance, names, has_source, pids, wall):
    """One operation, with what must come before or after it."""
    offered = {name: often for name, often in _OPERATIONS.items() if name not in wall.lacks}
    operation = chance.choices(list(offered), list(offered.values()))[0]
    wait = chance.choice([0, 0, 0.05, 0.3, 1.0])
    if operation == "snapshot" or (operation in ("rollback", "forget") and not names):
        names.append(f"s{len(names)}-{chance.randrange(1 << 20):x}")
        return [Step("snapshot", {"name": names[-1], "wait": 1.0, "force": chance.random() < 0.5}, wait)]
    if operation in ("rollback", "forget"):
        return [Step(operation, {"name": chance.choice(names)}, wait), _attack(chance, pids, wall)]
    if operation == "set_permissions" and has_source:
        return [Step(operation, {"permissions": chance.choice(_PRESETS), "force": chance.random() < 0.5}, wait)]
    if operation in ("fork", "set_permissions"):
        force = chance.random() < 0.7
        return [Step("fork", {"n": chance.choice([1, 1, 1, 3]), "wait": 1.0, "force": force}, wait)]
    if operation in ("pause", "stop"):
        first = Step(operation, {"wait": 1.0} if operation == "stop" else {}, wait)
        return [first, Step("resume", {}, chance.choice([0, 0.2])), *(_attack(chance, pids, wall) for _ in range(2))]
    return [Step(operation, _KEYWORDS.get(operation, {}), wait)]


_KEYWORDS = {
    "run": {"command": "echo alive", "timeout": 5.0},
    "run_code": {"code": "1 + 1", "timeout": 5.0},
    "set_lifetime": {"seconds": 250.0},
    "checkpoint": {"wait": 1.0},
}
