"""Runs that are killed at moments of their own choosing, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

from tests.playedmodel import PlayedModel, calls, says

from atoll import Sandbox
from atoll.agent import journal

VICTIM = os.path.join(os.path.dirname(__file__), "victim.py")
HELPER = "help me"

SCRIPT = {
    "rules": [
        {"when": {"has_tools": False}, "replies": [says("s", usage=(5, 1))]},
        {
            "when": {"first": HELPER},
            "replies": [calls(("run_code", {"code": "h = len(context) + 1\nh"})), says("helped")],
        },
        {
            "replies": [
                calls(("run_code", {"code": "n = 1\nopen('f', 'a').write('a')\nlen(context)"})),
                calls(
                    ("run_code", {"code": "n += 1\nq = llm_query('one')\nb = llm_query_batched(['one', 'two'])\nn"}),
                    ("book", {"seat": "12A"}),
                    ("look", {"seat": "12B"}),
                ),
                calls(
                    ("run_command", {"command": "printf b >> f; cat f"}),
                    ("run_code", {"code": f"n += 1\nh = rlm_query('{HELPER}', [1, 2])\nprint(h)"}),
                ),
                calls(("run_code", {"code": "answer_text = f'n={n} f={open(\"f\").read()} q={q}{b} h={h}'"})),
                says("FINAL_VAR(answer_text)"),
            ]
        },
    ]
}
ANSWER = "n=3 f=ab q=s['s', 's'] h=helped"
CALLS = 5 + 3 + 2


class Died(NamedTuple):
    """`where` it was killed, None when it came to its end: then `result` and how many `moments` it had."""

    where: str | None
    result: dict | None = None
    moments: int = 0


def run(server, side, mode, kill_at, *more, **environment):
    done = subprocess.run(
        [sys.executable, VICTIM, mode, server.url, str(kill_at), str(side), *more],
        capture_output=True, text=True, timeout=150, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == -9:
        return Died(said[-1]["killed"])
    assert done.returncode == 0, done.stderr[-3000:]
    return Died(None, said[-1]["result"], said[-1]["moments"])


def newest():
    runs = journal.shared().runs(limit=1)
    return runs[0] if runs else None


def conversations(server):
    """How often each conversation was sent to the model, and what was asked by code how often."""
    counts: dict[str, int] = {}
    for request in server.requests:
        messages = request.body["messages"]
        words = json.dumps([messages[1]["content"] if len(messages) > 1 else messages[0]["content"], len(messages)])
        counts[words] = counts.get(words, 0) + 1
    return counts


def doubtful(run):
    """How many calls of models a killed process had under way, with those of helpers."""
    kept = journal.shared()
    own = sum(step.kind in ("model", "query") and step.outcome is None for step in kept.steps(run.id))
    return own + sum(map(doubtful, kept.parts(run.id)))


def check(server, side, result, doubts):
    """What must hold of a run that has come to its end, after kills at which so many calls were under way in all."""
    assert result["state"] == "completed"
    assert result["response"] == ANSWER
    assert result["validated"] is True
    assert CALLS <= len(server.requests) <= CALLS + doubts, conversations(server)
    booked = side.read_text().splitlines() if side.exists() else []
    assert booked in ([], ["12A"]), "what cannot be undone is done once at the most"
    steps = journal.shared().steps(result["trajectory_id"])
    assert all(step.outcome is not None for step in steps)
    booking = next(step for step in steps if step.name == "book")
    assert booked == ["12A"] or booking.outcome.get("unknown")
    assert Sandbox.list({"atoll.run": result["trajectory_id"]}) == [], "no sandbox is left"
    for part in journal.shared().parts(result["trajectory_id"]):
        assert Sandbox.list({"atoll.run": part.id}) == []


def played():
    return PlayedModel(SCRIPT)
