"""A process that works on a run and is killed: `python victim.py start|resume URL KILL_AT SIDE [ID]`.

KILL_AT is the number of the moment at which it kills itself, or 0. A moment is before or after each thing that leaves a
trace: a row of the journal, a request to the model, a snapshot, a sandbox made or destroyed, a cell. With NAP=seconds
in the environment it is not killed then, but sleeps for so long. SIDE is a file that the tool `book` appends to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from atoll import AsyncSandbox
from atoll.agent import Agent, journal, tool
from atoll.models.compatible import Compatible

MODE, URL, KILL_AT, SIDE = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
moments = 0


def say(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def moment(where):
    global moments  # noqa: PLW0603 - it counts for the whole process
    moments += 1
    if moments == KILL_AT:
        if "NAP" in os.environ:
            say({"asleep": where})
            time.sleep(float(os.environ["NAP"]))
            return
        say({"killed": where})
        os.kill(os.getpid(), signal.SIGKILL)


def watched(owner, name):
    original = getattr(owner, name)
    plain = getattr(original, "__func__", original)

    if name in ("begin", "end", "finish", "set_sandbox", "claim", "create") and owner is journal.Journal:

        def wrapper(self, *arguments, **keywords):
            moment(f"before {name}")
            value = plain(self, *arguments, **keywords)
            moment(f"after {name}")
            return value

    else:

        async def wrapper(self, *arguments, **keywords):
            moment(f"before {name}")
            value = await plain(self, *arguments, **keywords)
            moment(f"after {name}")
            return value

    setattr(owner, name, classmethod(wrapper) if isinstance(owner.__dict__.get(name), classmethod) else wrapper)


for name in ("begin", "end", "finish", "set_sandbox", "claim"):
    watched(journal.Journal, name)
watched(Compatible, "ask")
for name in ("create", "connect", "snapshot", "destroy", "run_code", "run"):
    watched(AsyncSandbox, name)


@tool
def book(seat: str) -> str:
    """Book a seat, which cannot be undone."""
    with open(SIDE, "a") as file:
        file.write(f"{seat}\n")
    return f"booked {seat}"


@tool(idempotent=True)
def look(seat: str) -> str:
    """Look at a seat."""
    return f"seen {seat}"


agent = Agent("played", base_url=URL, tools=[book, look], token_budget=100_000, max_subcalls=50)
if MODE == "start":
    result = agent.run("do it", context="some long text", validate={"code": "answer.startswith('n=3')"})
else:
    result = agent.resume(sys.argv[5])
say({"result": result._asdict(), "moments": moments})
